from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cimtool import api
from cimtool.demo.data import DemoFiles
from cimtool.experiments.compiled import Outcome
from cimtool.experiments.sweep import Sweep

RunSweep = Callable[..., Sweep]


@pytest.fixture(scope="session")
def sweep_small(small_trunk: DemoFiles) -> RunSweep:
    """Sweep the small model on its evaluation rows; what is not given is for `isaac-rram-128`."""

    def run(output: Path, grid: dict[str, list[Any]], **options: Any) -> Sweep:
        files = small_trunk
        if "target" not in grid:
            options.setdefault("target", "isaac-rram-128")
        given = {"calibration": files.calibration, "data": files.eval, "poly": files.poly}
        return api.sweep(files.projectors, grid=grid, output=output, **given | options)

    return run


def outcome(drift: float, **cost: Any) -> Outcome:
    """A point that is done, with a drift and some costs; losses are a tenth of the drift.

    Its errors are the same centred and not: no query has an offset.
    """
    costs = {"arrays": 10, "conversions": 100, "energy_pj": None, "energy_missing": ""}
    costs |= {"energy_coverage": 1.0, "energy_basis": "arrays own"}
    losses = ("top1_agreement_loss", "r1_loss", "r5_loss", "r10_loss")
    return Outcome(
        metrics=dict.fromkeys(("centred_rmse", "logit_rmse"), drift)
        | dict.fromkeys(losses, drift / 10),
        cost=costs | cost,
    )


@pytest.fixture(scope="session")
def made() -> Callable[..., Outcome]:
    return outcome
