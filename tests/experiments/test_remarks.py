"""Sentences before the figures: broken scores, raw embeddings, training on these rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.demo.data import DemoFiles
from cimtool.experiments.engine import PointsFailed
from cimtool.experiments.render_sweep import points_table
from cimtool.experiments.sweep import Sweep
from cimtool.experiments.tuned import Tuned
from cimtool.report.html import html
from cimtool.report.terminal import terminal
from cimtool.verification.notes import NOT_CHECKED

RunSweep = Callable[..., Sweep]
GRID = {"weight_bits": [8]}
BROKEN = "The surrogate is BROKEN: the polynomial itself loses "


def polynomial(path: Path, slope: float, **known: float) -> Path:
    """A polynomial of degree 1 in ed alone; reversed where its slope is above 0."""
    path.write_text(json.dumps({"degree": 1, "coeff": [slope, 0.0], "bias": 0.5, **known}))
    return path


@pytest.fixture(scope="module")
def backwards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return polynomial(tmp_path_factory.mktemp("polynomials") / "reversed.json", 0.1)


def test_a_broken_score_is_told_before_the_figures_without_a_and_b(
    sweep_small: RunSweep, backwards: Path, tmp_path: Path
) -> None:
    found = sweep_small(tmp_path / "s", GRID, poly=backwards)
    assert found.first[0].startswith(BROKEN)
    assert NOT_CHECKED in found.first
    assert terminal(found.document()).splitlines()[1].startswith(BROKEN)
    assert BROKEN in html(found.document())
    values = json.loads((tmp_path / "s" / "results.json").read_text())
    assert values["warnings"] == found.first
    again = sweep_small(tmp_path / "s", GRID, poly=backwards)
    assert (again.resumed, again.first) == (1, found.first)


def test_no_budget_is_kept_against_a_broken_score(
    sweep_small: RunSweep, small_trunk: DemoFiles, backwards: Path, tmp_path: Path
) -> None:
    with pytest.raises(PointsFailed, match=r"no point is within logit_rmse=100: .* is BROKEN") as e:
        sweep_small(tmp_path / "s", GRID, poly=backwards, budget={"logit_rmse": 100.0})
    assert e.value.exit_status == 1
    assert e.value.found.chosen is not None
    assert e.value.found.chosen.index is None
    assert terminal(e.value.found.document()).splitlines()[1].startswith(BROKEN)
    with pytest.raises(
        CimError, match=r"^budget logit_rmse=100 would be measured from the float score.* a "
    ):
        tune(small_trunk, backwards, tmp_path, budget={"logit_rmse": 100.0})
    assert not (tmp_path / "bits.toml").exists()


def test_a_broken_score_whose_a_and_b_are_known_is_told_too(
    sweep_small: RunSweep, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    poly = polynomial(tmp_path / "p.json", 0.1, a=0.1, b=0.5)
    budget = {"logit_rmse": 1e6}
    found = sweep_small(tmp_path / "s", GRID, poly=poly, budget=budget)
    assert found.reference == "exact"
    assert found.first[0].startswith("The surrogate is BROKEN: ")
    assert NOT_CHECKED not in found.first
    assert found.chosen is not None
    assert found.chosen.index == 0, "the budget is of the drift from the exact score"


def tune(files: DemoFiles, poly: Path | None, folder: Path, **options: Any) -> Tuned:
    """Tune the small model from the fewest bits, to have no steps."""
    low = {"weight_bits": 2, "activation_bits": 2, "target": "isaac-rram-128"}
    given = {"calibration": files.calibration, "data": files.eval, "output": folder / "bits.toml"}
    return api.tune(files.projectors, poly, **{**low, **given, **options})


@pytest.fixture(scope="module")
def turned(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The evaluation rows with videos that equal their texts: raw embeddings find all of them."""
    with np.load(small_trunk.eval) as held:
        text = held["text"]
    path = tmp_path_factory.mktemp("data") / "easy.npz"
    np.savez(path, text=text, video=text + np.float32(0.01))
    return path


@pytest.mark.thorough("a whole sweep")
def test_raw_rows_are_a_row_and_in_the_first_line_where_they_are_better(
    sweep_small: RunSweep, small_trunk: DemoFiles, turned: Path, tmp_path: Path
) -> None:
    (raw,) = api.evaluate(turned, resamples=2).scores
    found = sweep_small(tmp_path / "s", GRID, data=turned, budget={"logit_rmse": 1e6})
    assert found.verdict[0].text.startswith(
        "The chosen point, 0 (weight_bits=8), is WORSE than raw rows in int8, "
    )
    assert found.verdict[0].tone == "bad"
    row = points_table(found).rows[-1]
    assert row.cells[0].text == "raw rows, int8"
    assert "100.0" in [cell.text for cell in row.cells]
    for way in ("text_to_video", "video_to_text"):
        assert found.baselines["raw rows, int8"][f"r1_{way}"] == raw.metrics[f"r1_{way}"]
        low, high = found.outcomes[0].intervals[f"r1_{way}"]
        assert low <= found.outcomes[0].metrics[f"r1_{way}"] <= high
    tuned = tune(small_trunk, small_trunk.poly, tmp_path, data=turned, budget={"logit_rmse": 1e6})
    text = terminal(tuned.document(), verbose=True)
    assert text.splitlines()[1].startswith("The chosen model is WORSE than raw rows in int8")
    assert "raw rows, int8" in text
    assert "only 40 texts are queries: below 200" in text
    assert tuned.to_json()["warnings"] == tuned.first
    assert tuned.to_json()["verdict"][0] == text.splitlines()[1]
    assert tuned.baselines["raw rows, int8"]["r1_text_to_video"] == 1


@pytest.mark.thorough("more of the same kind")
def test_rows_that_are_not_such_as_the_model_knows_are_told(
    sweep_small: RunSweep, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with np.load(small_trunk.calibration) as held:
        rows = dict(held)
    swapped = {"text": rows["video"], "video": rows["text"]}
    larger = {name: 5 * rows[name] for name in ("text", "video")}
    swap = "the two arrays of the data, are probably swapped"
    scale = "times smaller than those that calibrated"
    budget = {"logit_rmse": 1e6}
    for name, told, given in (("swapped", swap, swapped), ("larger", scale, larger)):
        file = tmp_path / f"{name}.npz"
        np.savez(file, **given)
        found = sweep_small(tmp_path / name, GRID, calibration=file)
        tuned = tune(small_trunk, small_trunk.poly, tmp_path, calibration=file, budget=budget)
        for said in (found.first, tuned.first):
            assert any(told in text for text in said), name
    plain = sweep_small(tmp_path / "plain", GRID)
    assert not any(swap in text or scale in text for text in plain.first)


def test_few_queries_are_told(sweep_small: RunSweep, tmp_path: Path) -> None:
    few = "only 40 texts are queries: below 200, R@1 means little"
    found = sweep_small(tmp_path / "s", GRID)
    assert few in terminal(found.document(), verbose=True)
    assert few in found.to_json()["notes"]
