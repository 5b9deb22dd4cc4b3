"""Norms of rows by multiply, add and clip."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

from cimtool.ir.arithmetic import Clip, scalar
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.ir.source import L2Normalize, Sqrt
from cimtool.simulation.simulator import Simulator

from .conftest import WIDTH, D, curved, dense, passed, program


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_norms_below_a_limit_are_the_limit(models: SimpleNamespace, share: float) -> None:
    job = models.job(*models.data)
    (plain,) = passed(curved(L2Normalize(), 1.0), job, "calibrated")
    rows = Simulator(plain).values("text", job.text, ["fc"])["fc"]
    norms = np.linalg.norm(rows, axis=1)
    least = 1.001 * float(np.quantile(norms, share)) if share else 1e-5
    pair = passed(curved(L2Normalize(least), 1.0), job, "calibrated", "lowered")
    exact, close = (Simulator(p).values("text", job.text, ["curve"])["curve"] for p in pair)
    np.testing.assert_allclose(exact, rows / np.maximum(norms, least)[:, None], rtol=1e-12)
    assert np.abs(close - exact).max() <= 1e-5
    assert (np.linalg.norm(exact, axis=1) < 0.999).mean() >= share / 2


def rooted(least: float) -> Graph:
    """A layer, the roots of its values from a limit on, and the heads on them."""
    rng, builder = np.random.default_rng(2), TowerBuilder(WIDTH)
    hidden = builder.add("fc", dense(rng, WIDTH, WIDTH), "x")
    hidden = builder.add("root", Sqrt(), builder.add("c", Clip(scalar(least), scalar(9.0)), hidden))
    mu, logvar = (builder.add(name, dense(rng, WIDTH, D), hidden) for name in ("mu", "logvar"))
    return builder.tower(mu, logvar)


@pytest.mark.parametrize("least", [0.0, 1e-3, 0.5])
def test_a_root_is_within_its_stated_errors(models: SimpleNamespace, least: float) -> None:
    notes: list[str] = []
    job = models.job(*models.data, notes=notes)
    pair = passed(program(rooted(least), rooted(least)), job, "calibrated", "lowered")
    exact, close = (Simulator(p).values("text", job.text, ["root"])["root"] for p in pair)
    said = next(note for note in notes if note.startswith("text.root: sqrt on ["))
    relative, below = (float(part) for part in re.findall(r"error ([\d.e-]+\d)", said))
    assert np.abs(close - exact).max() <= max(1.05 * relative * exact.max(), 1.05 * below)
    assert below <= 2.0**-7 * exact.max() or least == 0.5
