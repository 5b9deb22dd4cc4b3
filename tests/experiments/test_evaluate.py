"""Evaluations of embeddings, trained models and bundles."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cimtool
from cimtool.base.errors import CimError, CimWarning
from cimtool.demo.data import DemoFiles
from cimtool.experiments import evaluate as run
from cimtool.experiments.evaluate import Score, check_truth
from cimtool.experiments.options import EvaluateOptions
from cimtool.experiments.render_evaluation import evaluation_table
from cimtool.experiments.subjects import raw_subject
from cimtool.loading.embeddings import embeddings_of
from cimtool.loading.source import ModelSource
from cimtool.reference.exact import exact
from cimtool.reference.measures import RANKINGS
from cimtool.verification.references import gaussians, trained_features
from cimtool.verification.report import Report

WAYS = ("text_to_video", "video_to_text")


def rows(n: int = 60, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    text = rng.normal(size=(n, 8))
    return {"text": text, "video": text + rng.normal(size=text.shape)}


def classes(n: int = 60) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    labels = np.arange(n) % 4
    return {"rows": rng.normal(size=(4, 8))[labels] + rng.normal(size=(n, 8)), "labels": labels}


@pytest.fixture(scope="module")
def labelled(small_trunk: DemoFiles) -> dict[str, Any]:
    arrays = dict(np.load(small_trunk.eval))
    return arrays | {"labels": np.arange(len(arrays["text"])) % 5}


@pytest.fixture(scope="module")
def report(small_bundle: Path, labelled: dict[str, Any], tmp_path_factory: Any) -> Report:
    return cimtool.verify(small_bundle, labelled, report=tmp_path_factory.mktemp("report"))


def same_as(row: Any, score: Score) -> None:
    """The metrics and the intervals are those of a row of the drift table, to the last bit."""
    for way in WAYS:
        for metric in (one for one in RANKINGS if not one.texts_only):
            assert score.metrics[f"{metric.name}_{way}"] == row.get(f"{metric.name}_{way}")
    for name in ("cosine_gap", "centred_rmse", "logit_rmse"):
        assert score.metrics[name] == row.get(name)
    shared = set(row.intervals) & set(score.intervals)
    assert len(shared) == 30
    assert {name: row.intervals[name] for name in shared} == {
        name: score.intervals[name] for name in shared
    }


@pytest.mark.thorough("a report beside an evaluation")
def test_metrics_are_those_of_verify(
    small_bundle: Path, small_trunk: DemoFiles, labelled: dict[str, Any], report: Report
) -> None:
    found = cimtool.evaluate(labelled, small_trunk.projectors, small_bundle, poly=small_trunk.poly)
    trained, compiled, *_ = found.scores
    assert (trained.kind, compiled.kind, compiled.name) == (
        "float",
        "compiled",
        report.subject.bundle,
    )
    same_as(next(row for row in report.drift.rows if row.stage == report.drift.surrogate), trained)
    same_as(report.drift.final, compiled)
    assert "only 40 texts are queries: below 200, R@1 means little" in found.notes


def test_models_are_scored_by_several_heads_with_what_their_probabilities_say(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(160, 6))
    seen = {m: latent + 0.5 * rng.normal(size=latent.shape) for m in ("text", "video")}
    data = {m: x.astype(np.float32) for m, x in seen.items()}
    train, unseen = (
        {m: x[part] for m, x in data.items()} for part in (slice(100), slice(100, 160))
    )
    model = cimtool.train(train, tmp_path / "run", model="posthoc").model
    heads = ("csd", "probcosine", "euclidean")
    found = cimtool.evaluate(unseen, model, heads=heads, resamples=50)
    assert [(one.kind, one.head) for one in found.scores] == [
        *(("float", head) for head in heads), ("embeddings", "cosine")
    ]  # fmt: skip
    own = cimtool.evaluate(unseen, ModelSource(model, head="probcosine"), resamples=50).scores[0]
    assert found.scores[1].metrics == own.metrics
    ranks = [{k: v for k, v in one.metrics.items() if k.startswith("r")} for one in found.scores]
    assert ranks[0] == ranks[2]  # one variance for all rows
    table = evaluation_table(found)
    assert [column.title for column in table.columns if column.essential] == [
        "score", "text to video R@1, %", "video to text R@1, %", "text to video AURC, %",
        "video to text AURC, %", "calibration error, %",
    ]  # fmt: skip
    assert [bool(row.cells[-3].text.strip("-")) for row in table.rows[:3]] == [True, False, False]


def test_several_heads_are_of_projectors_and_no_head_beside(
    small_trunk: DemoFiles, small_bundle: Path
) -> None:
    data = dict(np.load(small_trunk.eval))
    with pytest.raises(CimError, match=r"^heads and head are both given; expected one of them"):
        cimtool.evaluate(data, small_trunk.projectors, heads=("csd",), head="cosine")
    with pytest.raises(CimError, match=r"^heads sets the score .* but a bundle has its score; exp"):
        cimtool.evaluate(data, small_bundle, heads=("csd",))


def test_the_distance_from_the_exact_score_is_of_logits_with_an_a_and_a_b(
    small_trunk: DemoFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ModelSource(small_trunk.projectors, small_trunk.poly)
    computed, encoded = [], []
    monkeypatch.setattr(run, "exact", lambda *given: computed.append(1) or exact(*given))
    for function in (trained_features, gaussians):
        counted = partial(lambda one, *given: encoded.append(one) or one(*given), function)
        monkeypatch.setattr(run, function.__name__, counted)
    found = cimtool.evaluate(
        small_trunk.eval,
        source,
        ModelSource(small_trunk.projectors, head="cosine"),
        samples=(1, 2, 8),
    )
    assert len(computed) == 1, "samples share the exact score of their model"
    assert encoded == [trained_features, gaussians, *[trained_features] * 2], "as their rows"
    errors = {one.name: one.metrics.get("logit_rmse") for one in found.scores}
    name = small_trunk.projectors.stem
    one, few, more = (errors[f"{name}, K={samples}"] for samples in (1, 2, 8))
    assert one is not None
    assert few is not None
    assert more is not None
    assert 0 < more < few < one
    assert {one.head for one in found.scores if "logit_rmse" not in one.metrics} == {"cosine"}
    monkeypatch.setattr(run, "MOST_PAIRS", 10)
    found = cimtool.evaluate(small_trunk.eval, source)
    assert "logit_rmse" not in found.scores[0].metrics
    assert any("no logit RMSE for more than 10 pairs" in note for note in found.notes)


def test_differences_are_paired_with_the_first(small_trunk: DemoFiles, small_bundle: Path) -> None:
    found = cimtool.evaluate(
        small_trunk.eval, small_bundle, small_bundle, small_trunk.projectors, poly=small_trunk.poly
    )
    first, same, other, *_ = found.scores
    assert [one.name for one in found.scores[:2]] == [
        "small@isaac-rram-128 (1)", "small@isaac-rram-128 (2)",
    ]  # fmt: skip
    assert first.differences == {}
    assert all((d.value, d.low, d.high) == (0, 0, 0) for d in same.differences.values())
    for name, change in other.differences.items():
        assert change.value == pytest.approx(other.metrics[name] - first.metrics[name])
        assert change.low <= change.value <= change.high
    assert any(change.value for change in other.differences.values())


def test_raw_embeddings_by_cosine_and_by_distance() -> None:
    data = rows()
    text, video = data["text"].astype(np.float32), data["video"].astype(np.float32)
    text, video = text.astype(np.float64), video.astype(np.float64)
    unit = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in (text, video)]
    distances = ((text[:, None] - video) ** 2).sum(axis=2)
    for head, scores in (("cosine", unit[0] @ unit[1].T), ("euclidean", -distances)):
        (found,) = cimtool.evaluate(data, head=head, resamples=2).scores
        ranks = [1 + sum(row > row[i]) for i, row in enumerate(scores)]
        assert found.metrics["r1_text_to_video"] == np.mean([rank <= 1 for rank in ranks])
        assert found.metrics["mean_rank_text_to_video"] == pytest.approx(np.mean(ranks))
        assert found.head == head


def test_items_of_one_modality_leave_themselves_out() -> None:
    found = cimtool.evaluate(classes(), resamples=20)
    assert found.leave_one_out
    data = classes()
    twice = {"text": data["rows"], "video": data["rows"], "labels": data["labels"]}
    assert not cimtool.evaluate(twice, resamples=2).leave_one_out
    again = cimtool.evaluate(twice, leave_one_out=True, resamples=20)
    assert again.scores == found.scores
    (score,) = found.scores
    assert 0.5 < score.metrics["r1_text_to_video"] < 1
    assert score.metrics["r1_video_to_text"] == score.metrics["r1_text_to_video"]


def test_the_seed_decides_the_intervals() -> None:
    first, again, other = (cimtool.evaluate(rows(), seed=seed, resamples=50) for seed in (0, 0, 1))
    assert first == again
    assert first.scores[0].metrics == other.scores[0].metrics
    assert first.scores[0].intervals != other.scores[0].intervals


def test_warnings_of_the_model_are_notes() -> None:
    subject = replace(raw_subject(embeddings_of(rows()), "cosine"), warnings=("it leaks",))
    found = run.evaluate_subjects([subject], EvaluateOptions(data=rows(), resamples=2))
    assert "embeddings: it leaks" in found.notes
    assert found.scores[0].warnings == ("it leaks",)


def test_constant_scores_are_said() -> None:
    data = {"text": np.ones((5, 3)), "video": np.ones((5, 3))}
    found = cimtool.evaluate(data, resamples=2)
    assert any("every pair gets the same score" in note for note in found.notes)
    assert found.scores[0].metrics["r1_text_to_video"] == 0  # ties count against


@pytest.mark.thorough("a gallery in the arrays; its own tests are in the first tier")
@pytest.mark.parametrize("mapping", ["in-memory", "hybrid"])
def test_a_gallery_in_the_memory(small_trunk: DemoFiles, tmp_path: Path, mapping: str) -> None:
    bundle = cimtool.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        target="isaac-rram-128", output=tmp_path / "b", score_mapping=mapping,
        shortlist=12 if mapping == "hybrid" else None,
    )  # fmt: skip
    held = cimtool.program(bundle.folder, small_trunk.eval).bundle.folder
    report = cimtool.verify(held, small_trunk.eval, report=tmp_path / "report")
    score, *_ = cimtool.evaluate(small_trunk.eval, held).scores
    for way in WAYS:
        assert score.metrics[f"r1_{way}"] == report.drift.final.get(f"r1_{way}")
    assert score.metrics["cosine_gap"] == report.drift.final.get("cosine_gap")
    first = {name: values[:-1] for name, values in np.load(small_trunk.eval).items()}
    with pytest.raises(CimError, match="39 videos are not the gallery of 40 items"):
        cimtool.evaluate(first, held)


def test_scores_are_float64_where_no_layer_comes_before_them() -> None:
    rng = np.random.default_rng(0)
    text = (300 * rng.normal(size=8) + 0.1 * rng.normal(size=(100, 8))).astype(np.float32)
    video = (text + 0.02 * rng.normal(size=text.shape)).astype(np.float32)
    real = [one.astype(np.float64) for one in (text, video)]
    distances = ((real[0][:, None] - real[1]) ** 2).sum(axis=2)
    ranks = [1 + sum(row < row[i]) for i, row in enumerate(distances)]
    (found,) = cimtool.evaluate(
        {"text": text, "video": video}, head="euclidean", resamples=2
    ).scores
    assert found.metrics["mean_rank_text_to_video"] == np.mean(ranks)
    assert found.metrics["r1_text_to_video"] == np.mean([rank == 1 for rank in ranks])


def test_equal_cosines_are_ties_whatever_the_length_of_a_row() -> None:
    rng = np.random.default_rng(0)
    text = rng.integers(1, 50, size=(30, 8)).astype(np.float32)
    video = np.concatenate([text, 3 * text])  # three times as long: the same direction
    data = {"text": text, "video": video, "text_to_video": np.arange(30)}
    (found,) = cimtool.evaluate(data, head="cosine", resamples=2).scores
    assert found.metrics["r1_text_to_video"] == 0
    assert found.metrics["mean_rank_text_to_video"] == 2
    (tiny,) = cimtool.evaluate(
        {name: rows * np.float32(1e-30) for name, rows in (("text", text), ("video", text))},
        head="cosine",
        resamples=2,
    ).scores
    assert tiny.metrics["r1_text_to_video"] == 1


def test_one_class_and_equal_scores_are_said() -> None:
    with pytest.raises(
        CimError, match="the label of every item is 3; expected at least two classes"
    ):
        cimtool.evaluate({"rows": rows()["text"], "labels": np.full(60, 3)})
    same = np.ones((4, 8))
    found = cimtool.evaluate({"text": same, "video": same}, resamples=2)
    assert "embeddings: the scores are constant: every pair gets the same score" in found.notes


def test_rows_that_cannot_be_normalised_are_named(tmp_path: Path) -> None:
    pairs = {name: value.astype(np.float32) for name, value in rows().items()}
    options = {"model": "cross-attention", "loss": "clip", "epochs": 1, "batch": 16}
    trained = cimtool.train(pairs, tmp_path / "run", **options).folder / "model.pth"
    bundle = cimtool.compile(
        trained, calibration=pairs, drift="given", target="ideal", output=tmp_path / "b"
    )
    other = rows(seed=5)
    other["video"][7] = 0.0
    for what in (trained, bundle.folder):
        with pytest.raises(CimError, match="video row 7 has no mu: a norm or a spread that it is"):
            cimtool.evaluate(other, what)
    with pytest.raises(CimError, match="video row 7 has no mu"):
        cimtool.verify(bundle.folder, other)
    huge = {name: value * np.float32(1e30) for name, value in rows(seed=6).items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", CimWarning)  # their scale is told
        report = cimtool.verify(bundle.folder, huge)
    assert sum(count.differing for count in report.checks.bits) == 0


@pytest.mark.parametrize(
    ("values", "alone", "sentence"),
    [
        ({"text": 3, "video": 2}, False, "text_to_video is missing"),
        ({"text": 3, "video": 2}, True, "3 texts and 2 videos; expected equal numbers"),
        ({"text": 3, "video": 3}, True, "labels, the class of each item, is missing"),
        ({"rows": 3, "labels": None}, True, "no two items share a label"),
    ],
)
def test_data_that_do_not_say_what_is_right(
    values: dict[str, int | None], alone: bool, sentence: str
) -> None:
    arrays = {k: np.arange(3) if n is None else np.ones((n, 2)) for k, n in values.items()}
    with pytest.raises(CimError, match=sentence):
        check_truth(embeddings_of(arrays), alone)


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        ([[1, 1], [0, 1], [0, 1]], "the label of every item is 1; expected at least two classes"),
        ([[1, 1, 0], [0, 0, 1], [0, 0, 0]], "no two items share a label"),
    ],
)
def test_several_classes_that_leave_nothing_to_find(sets: list[list[int]], sentence: str) -> None:
    with pytest.raises(CimError, match=sentence):
        check_truth(embeddings_of({"rows": np.ones((3, 2)), "labels": np.array(sets)}), True)


def test_several_classes_of_which_each_item_has_one_are_labels() -> None:
    data = classes()
    sets = data["labels"][:, None] == np.arange(4)
    first = cimtool.evaluate(data, resamples=20).scores[0]
    second = cimtool.evaluate({**data, "labels": sets}, resamples=20).scores[0]
    assert first == second
