"""Benchmarks that measure the score itself, on tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from cimtool.demo.data import DemoFiles
from cimtool.training.polynomial import fit_logit

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def claim(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import claim

    return claim


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import third_cumulant

    return third_cumulant


def test_every_score_stands_in_the_table_of_the_claim(
    claim: ModuleType, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    model, file = str(small_trunk.projectors), tmp_path / "claim.json"
    words = [model, str(small_trunk.eval), str(small_trunk.calibration), "--seeds", model]
    effort = ["--a", "0.1", "--b", "0", "--pairs", "900", "--draws", "2", "--sigmoids", "2000000"]
    claim.main([*words, *effort, "--json", str(file)])
    rows = json.loads(file.read_text())["rows"]
    names = [row["score"] for row in rows if row["model"] == model]
    assert len(names) == 2 * 24
    assert names[0] == "exact"
    assert {"Monte Carlo, K = 1", "degree 6", "degree 1, ed alone", "csd, b - a ed"} < set(names)
    assert [name for name in names if name.endswith("texts)")][::2] == [
        "Monte Carlo, K = 50 (28 texts)"
    ] * 2
    assert len([row for row in rows if row["model"] == "mean"]) == 24
    assert len({json.dumps(row) for row in rows if row["model"] == model}) == 24


def test_without_calibration_half_of_the_data_is_measured(
    claim: ModuleType, small_trunk: DemoFiles
) -> None:
    case = claim.read_case(small_trunk.projectors, small_trunk.train, None, 0.1, 0.0)
    assert abs(len(case.unseen.text) - len(case.fitted.text)) <= 1
    seen, unseen = (one.rows[0] for one in (case.fitted, case.unseen))
    assert not {row.tobytes() for row in seen} & {row.tobytes() for row in unseen}


def test_the_third_cumulant_is_a_sum_of_products(third: ModuleType) -> None:
    items, _ = third.constructed(20, 8)
    i, j = np.divmod(np.arange(400), 20)
    pairs = third.third_cumulants(items.text, items.video, (i, j)).reshape(20, 20)
    assert np.allclose(pairs, third.third_cumulants_by_products(items.text, items.video))
    rng = np.random.default_rng(0)
    text, video = (
        one.mu[0] + np.sqrt(one.s[0]) * rng.normal(size=(200_000, 8))
        for one in (items.text, items.video)
    )
    distances = ((text - video) ** 2).sum(axis=1)
    sampled = ((distances - distances.mean()) ** 3).mean()
    assert pairs[0, 0] == pytest.approx(sampled, rel=0.05)


def test_errors_of_ed_and_vd_are_those_of_the_projects_fit(third: ModuleType) -> None:
    items, sigmoid = third.constructed(60, 8)
    teacher = third.make_teacher(items, 2000, 0.5, "exact", sigmoid)
    pairs = third.labelled(items, sigmoid, 2000)
    fitted = fit_logit(teacher.labels.of(np.flatnonzero(~pairs.held)), 3)
    held = teacher.labels.of(np.flatnonzero(pairs.held))
    errors = fitted.evaluate(held.ed, held.vd) - held.logit
    assert np.allclose(third.squared_errors(pairs, 2, 3), np.square(errors), rtol=1e-4, atol=1e-9)


def test_a_row_a_model_and_degree_says_whether_the_third_cumulant_pays(
    third: ModuleType, small_trunk: DemoFiles, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "third.json"
    model = [str(small_trunk.projectors), str(small_trunk.train), "--a", "0.1", "--b", "0"]
    third.main([*model, "--pairs", "1500", "--degrees", "1,2", "--json", str(file)])
    rows = json.loads(file.read_text())["rows"]
    names = [model[0], model[0], "constructed", "constructed"]
    assert [(row["model"], row["degree"]) for row in rows] == list(zip(names, "1212", strict=True))
    assert {row["less than half"] for row in rows} <= {"yes", "no"}
    assert "7 and 3 more" in capsys.readouterr().out
