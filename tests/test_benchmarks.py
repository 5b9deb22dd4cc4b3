"""Benchmarks that measure the score itself, on tiny models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cimtool
from cimtool.base.intervals import Change
from cimtool.bundle.bit_choice import DriftGoal
from cimtool.demo.data import DemoFiles
from cimtool.experiments import solved_bits
from cimtool.loading.embeddings import embeddings_of
from cimtool.reference.exact import exact
from cimtool.reference.metrics import on_grid
from cimtool.reference.queries import once
from cimtool.reference.retrieval import measured
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


@pytest.mark.thorough("a benchmark run whole")
def test_every_score_stands_in_the_table_of_the_claim(
    claim: ModuleType, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    model, file = str(small_trunk.projectors), tmp_path / "claim.json"
    words = [model, str(small_trunk.eval), str(small_trunk.calibration), "--seeds", model]
    effort = ["--a", "0.1", "--b", "0", "--pairs", "900", "--draws", "2", "--sigmoids", "2000000"]
    claim.main([*words, *effort, "--json", str(file)])
    tables = json.loads(file.read_text())
    rows, probabilities = tables["rows"], tables["probabilities"]
    names = [row["score"] for row in rows if row["model"] == model]
    assert len(names) == 2 * 30
    assert names[0] == "exact"
    assert {"Monte Carlo, K = 1", "degree 8", "degree 1, ed alone", "csd, b - a ed"} < set(names)
    few = [row for row in rows if row["model"] == model and row["score"].endswith("texts)")]
    assert [row["score"] for row in few[:2]] == [
        "exact (28 texts)",
        "Monte Carlo, K = 50 (28 texts)",
    ]
    assert all(row["R@1 text to video, %"] != "-" for row in few)
    assert [row["R@1 loss, points"] == "-" for row in few] == [True, False] * 4
    assert len([row for row in rows if row["model"] == "mean"]) == 30
    assert len({json.dumps(row) for row in rows if row["model"] == model}) == 30
    assert not [title for title in rows[0] if title.startswith("mAP")]
    assert [row["score"] for row in probabilities] == [row["score"] for row in rows]
    logits = {row["score"]: row["log loss"] != "-" for row in probabilities[:30]}
    ranked = "distance of means", "raw rows, cosine", "raw rows, int8"
    assert {name for name, known in logits.items() if not known} == set(ranked)
    assert all(row["answer AUROC video to text, %"] != "-" for row in probabilities)


@pytest.mark.thorough("a benchmark run whole")
def test_the_figures_of_the_claim_are_those_of_the_report(
    claim: ModuleType, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    qrels = tmp_path / "q.txt"
    qrels.write_text("".join(f"{i} 0 {j} 1\n" for i in range(30) for j in (i, (i + 7) % 40)))
    files = small_trunk.projectors, small_trunk.eval, small_trunk.train
    case = claim.read_case(*files, qrels, 0.1, 0.0)
    rows = claim.rows_of(case, claim.Effort(900, 0.5, 2, 2_000_000))
    found = {(one.name, one.items): one.figures for one in rows}
    unseen = case.unseen
    exact_logit = exact(unseen.text, unseen.video, 0.1, 0.0).logit
    expected = once(measured(on_grid(exact_logit), unseen.truth, of_logit=True))
    assert unseen.truth.judged is not None
    own = found["exact", None]
    for name in ("r1_text_to_video", "map_video_to_text", "nll", "brier", "calibration_error"):
        assert own[name].value == expected[name]
    # Few items: the loss is from the exact score of the same ones.
    (count,) = {items for name, items in found if name == "Monte Carlo, K = 50"}
    same, few = found["exact", count], found["Monte Carlo, K = 50", count]
    losses = [same[name].value - few[name].value for name in claim.R1.keys.values()]
    assert few["r1_loss"].value == max(losses)
    part, text, video = claim.first_items(unseen, 28)
    assert len(part.text) == count
    right = unseen.truth.right_pairs()[np.ix_(text, video)]
    assert np.array_equal(part.truth.right_pairs(), right)
    assert right.any(axis=1).all()


def test_without_calibration_half_of_the_data_is_measured(
    claim: ModuleType, small_trunk: DemoFiles
) -> None:
    case = claim.read_case(small_trunk.projectors, small_trunk.train, None, None, 0.1, 0.0)
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


@pytest.mark.thorough("a benchmark run whole")
def test_goals_are_counted_on_the_rows_that_compile_never_saw(
    small_trunk: DemoFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import drift_goals

    monkeypatch.setattr(solved_bits, "ROUNDS", 2)
    with np.load(small_trunk.calibration) as held:
        text, video = held["text"], held["video"]
    options = {"projectors": small_trunk.projectors, "poly": small_trunk.poly}
    case = drift_goals.GoalCase("small", options, text, video, 64, ())
    calibration, others = case.split(3)
    rows = np.concatenate([calibration["text"], others["text"]])
    assert np.array_equal(np.unique(rows, axis=0), np.unique(text, axis=0))
    model = case.model()
    found = drift_goals.held(case, model, DriftGoal.of("logit_rmse=1"), 3)
    assert isinstance(found, drift_goals.Held)
    assert found.share.value == found.error.value < 1
    assert 0 < found.conversions < 1
    why = drift_goals.held(case, model, DriftGoal.of("r1_loss=0.01"), 3)
    assert "may hide from 32 pairs" in why
    over = replace(found, share=Change(1.2, 0.9, 1.4))
    far = replace(found, share=Change(1.2, 1.1, 1.4))
    row = drift_goals.summary("small", "logit_rmse=1", [found, over, far], refused=1)
    assert (row["splits"], row["kept"], row["kept within its interval"]) == (4, 1, 2)
    assert row["largest"] == 1.2


def _case_of(files: DemoFiles) -> Any:
    """The small model as benchmarks have theirs, once their folder is on the path."""
    import data_sets

    with np.load(files.eval) as held:
        unseen = embeddings_of(dict(held))
    return data_sets.Case("small", files.projectors, files.poly, files.calibration, unseen)


@pytest.mark.thorough("a benchmark run whole, an earlier version in a process of its own")
def test_cells_of_accuracy_are_kept_and_an_earlier_version_scores_for_itself(
    small_trunk: DemoFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import accuracy

    labels, poly = tmp_path / "labels.npz", tmp_path / "poly.json"
    cimtool.teacher(
        small_trunk.projectors, small_trunk.eval, pairs=900, a=0.1, b=0.0, output=labels
    )
    cimtool.fit(labels, degree=range(1, 7), output=poly)
    case = replace(_case_of(small_trunk), poly=poly, labels=labels)
    monkeypatch.setattr(accuracy, "case_of", lambda *words: case)
    monkeypatch.setattr(accuracy, "PLACES", {"small": "demo"})
    monkeypatch.setattr(accuracy, "GOALS", {"small": "logit_rmse=1e-9"})
    monkeypatch.setattr(accuracy, "FIRST", (accuracy.Build("8 bits", {"drift": "given"}),))
    former = accuracy.Build("former 8 bits", {"drift": "given"}, costs="8 bits")
    monkeypatch.setattr(accuracy, "OTHERS", (former, accuracy.Build(accuracy.GOAL)))
    monkeypatch.setattr(accuracy, "SIGMOIDS", 1_000_000)
    work, file = tmp_path / "work", tmp_path / "table.json"
    words = ["--work", str(work), "--demo", "demo", "--seeds", "0", "--former", str(ROOT)]
    accuracy.main([*words, "--json", str(file)])
    lines = (work / "cells.jsonl").read_text().splitlines()
    cells = {cell["build"]: cell for cell in map(json.loads, lines)}
    assert [*cells] == [
        accuracy.POLYNOMIAL, *accuracy.MONTE_CARLO, "8 bits", "former 8 bits", accuracy.GOAL,
    ]  # fmt: skip
    # The earlier version is this one, so both fit and score alike.
    assert (tmp_path / "labels-former.json").read_bytes() == poly.read_bytes()
    assert cells["8 bits"]["figures"] == cells["former 8 bits"]["figures"]
    assert cells["8 bits"]["figures"]["logit_rmse"][0] > 0
    assert "expected" in cells[accuracy.GOAL]["refused"]
    table = {row["build"]: row for row in json.loads(file.read_text())["rows"]}
    assert table["former 8 bits"]["arrays"] == table["8 bits"]["arrays"] != ""
    assert table[accuracy.GOAL]["seeds"] == 0
    (work / "cells.jsonl").write_text("".join(f"{line}\n" for line in lines[:-1]))
    monkeypatch.setattr(accuracy, "compiled", lambda *words: {"refused": "asked again"})
    accuracy.main(words)
    again = (work / "cells.jsonl").read_text().splitlines()
    assert again[:-1] == lines[:-1]
    assert json.loads(again[-1])["refused"] == "asked again"


@pytest.mark.thorough("a benchmark run whole")
def test_few_rows_are_drawn_with_their_texts_and_choose_bits(
    small_trunk: DemoFiles, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import few_rows

    files, case = small_trunk, _case_of(small_trunk)
    drawn = few_rows.few(case, 32, 1, tmp_path)
    assert drawn is not None
    with np.load(drawn.calibration) as held, np.load(files.calibration) as whole:
        assert {name: len(held[name]) for name in held.files} == {
            "text": 32, "video": 32, "text_to_video": 32,
        }  # fmt: skip
        own = [np.flatnonzero((whole["video"] == row).all(axis=1)) for row in held["video"]]
        right = whole["text"][np.concatenate(own)]
        assert np.array_equal(held["text"], right[held["text_to_video"]])
    assert few_rows.few(case, 1000, 0, tmp_path) is None
    monkeypatch.setattr(few_rows, "case_of", lambda *words: case)
    monkeypatch.setattr(few_rows, "PLACES", {"small": "demo"})
    file = tmp_path / "table.json"
    words = ["--work", str(tmp_path / "work"), "--demo", "demo", "--draws", "0", "--videos"]
    few_rows.main([*words, "32", "1000", "--json", str(file)])
    (row,) = json.loads(file.read_text())["rows"]
    assert (row["rows"], row["videos"], row["draw"]) == ("small", 32, 0)
    assert 0 < float(row["chosen bits"]) < float(row["the target's bits"])
