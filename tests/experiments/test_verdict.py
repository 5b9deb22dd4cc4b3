"""The verdict of a sweep and a tuning: its gallery, its samples, its energy."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.demo.data import DemoFiles
from cimtool.experiments.compiled import Outcome
from cimtool.experiments.sweep import Sweep
from cimtool.experiments.tuned import Tuned
from cimtool.report.document import sentences
from cimtool.report.table import Table
from cimtool.verification.worth_table import worth_table

RunSweep = Callable[..., Sweep]
GRID = {"weight_bits": [8]}
LARGE = 100_000


def tuned_to(files: DemoFiles, folder: Path, **options: Any) -> Tuned:
    """The small model with the fewest bits, so that there are no steps."""
    low = {"weight_bits": 2, "activation_bits": 2, "target": "isaac-rram-128"}
    given = {"calibration": files.calibration, "data": files.eval, "output": folder / "bits.toml"}
    return api.tune(
        files.projectors, files.poly, budget={"logit_rmse": 1e6}, **low, **given, **options
    )


@pytest.mark.thorough("a sweep and a report of the same")
def test_it_is_that_of_verify_for_a_larger_gallery_and_other_samples(
    sweep_small: RunSweep, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    found = sweep_small(tmp_path / "s", GRID, gallery=LARGE, samples=50)
    lead, energy, larger = sentences(found.verdict)
    assert lead.startswith("The nearest point, 0 (weight_bits=8), is ")
    assert "Monte Carlo with K=50" in lead
    assert f"not shown to differ among {LARGE:,})" in lead
    assert energy.endswith(f"raw rows in int8 among {LARGE:,} items.")
    files = small_trunk
    bundle = api.compile(
        files.projectors, files.poly, calibration=files.calibration, target="isaac-rram-128",
        output=tmp_path / "bundle", weight_bits=8,
    )  # fmt: skip
    report = api.verify(bundle.folder, files.eval, gallery=LARGE, samples=50)
    worth = found.outcomes[0].worth
    assert worth is not None
    assert worth.larger == report.drift.worth.larger
    assert worth.about("The compiled model") == report.drift.worth.sentence
    assert worth.larger is not None
    assert larger == worth.larger.sentence
    assert tuple(one for one in found.verdict if isinstance(one, Table)) == tuple(
        replace(one, level="shown", name="") for one in worth_table(worth)
    )
    plan = api.cost(bundle.folder, gallery=LARGE)
    assert plan.query is not None
    assert found.outcomes[0].cost["energy_pj"] == plan.query.energy_pj.value


@pytest.mark.thorough("four sweeps")
def test_a_point_is_kept_for_its_gallery_and_its_samples(
    sweep_small: RunSweep, tmp_path: Path
) -> None:
    first = sweep_small(tmp_path / "s", GRID)
    again = sweep_small(tmp_path / "s", GRID, gallery=LARGE)
    assert (again.resumed, again.outcomes[0].metrics) == (0, first.outcomes[0].metrics)
    other = sweep_small(tmp_path / "s", GRID, samples=2)
    assert (other.resumed, list(other.baselines)[1]) == (0, "Monte Carlo (K=2)")
    kept = sweep_small(tmp_path / "s", GRID, gallery=LARGE)
    assert (kept.resumed, kept.outcomes) == (1, again.outcomes)
    values = json.loads((tmp_path / "s" / "results.json").read_text())
    assert values["verdict"] == sentences(again.verdict)
    (outcome,) = kept.outcomes
    assert Outcome.from_json(json.loads(json.dumps(outcome.to_json()))) == outcome


@pytest.mark.thorough("the same by another command")
def test_a_tuning_has_it_too(small_trunk: DemoFiles, tmp_path: Path) -> None:
    found = tuned_to(small_trunk, tmp_path, gallery=LARGE, samples=50)
    lead, energy, *_ = sentences(found.verdict)
    assert lead.startswith("The chosen model is ")
    assert f"among {LARGE:,} items" in lead
    assert f"among {LARGE:,} items" in energy
    assert found.to_json()["verdict"][0] == lead


@pytest.mark.thorough("the same with more rows")
def test_distractors_are_ranked_too(
    sweep_small: RunSweep, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with np.load(small_trunk.calibration) as held:
        np.savez(tmp_path / "more.npz", video=-held["video"][:20])
    plain = sweep_small(tmp_path / "plain", GRID)
    found = sweep_small(tmp_path / "s", GRID, distractors=tmp_path / "more.npz")
    assert found.data["videos"] == plain.data["videos"] + 20
    worth = found.outcomes[0].worth
    assert worth is not None
    assert worth.items == plain.data["videos"] + 20
    assert any(f"among {worth.items:,} items" in one for one in sentences(found.verdict)[1:])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"gallery": 39}, r"gallery is 39; expected at least 40, the number of videos that texts"),
        (
            {"gallery": 2**63},
            r"gallery is 9,223,.*,808; expected 2 to 1,000,000,000,000 items",
        ),
        ({"samples": 0}, "samples is 0; expected at least 1"),
    ],
)
def test_bad_values_are_refused(
    options: dict[str, int],
    sentence: str,
    sweep_small: RunSweep,
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    with pytest.raises(CimError, match=sentence):
        sweep_small(tmp_path / "s", GRID, **options)
    assert not (tmp_path / "s").exists()
    with pytest.raises(CimError, match=sentence):
        tuned_to(small_trunk, tmp_path, **options)


def test_distractors_of_another_width_are_refused(sweep_small: RunSweep, tmp_path: Path) -> None:
    np.savez(tmp_path / "wide.npz", video=np.ones((3, 7)))
    with pytest.raises(CimError, match=r"wide.npz: video rows have 7 numbers"):
        sweep_small(tmp_path / "s", GRID, distractors=tmp_path / "wide.npz")
    assert not (tmp_path / "s").exists()
