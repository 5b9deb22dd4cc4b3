from __future__ import annotations

import numpy as np
import pytest

from cimtool.base.intervals import Change
from cimtool.reference.bootstrap import counted_share
from cimtool.reference.retrieval import retrieved
from cimtool.reference.truth import truth_among_others, truth_of
from cimtool.verification.drift import DriftTable, baseline_losses

RIGHT = np.arange(3)
POLY = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 1.0], [1.0, 0.0, 4.0]])
MU = np.eye(3)


def table(reference: np.ndarray | None) -> DriftTable:
    found = DriftTable(truth_of(RIGHT, None, 3), reference)
    found.add_reference("exact", MU, MU)
    return found


def test_each_row_is_compared_with_the_reference_the_polynomial_and_the_row_before() -> None:
    found = table(POLY + 1)
    found.add("polynomial", POLY, MU, MU)
    found.add("quantized", POLY + 0.5, MU, MU)
    found.add("tiled", POLY + 0.5, MU, MU)
    reference, polynomial, quantized, tiled = found.finished(0)
    assert "logit_rmse" not in reference.metrics
    assert "r1_text_to_video" in reference.metrics
    assert polynomial.get("own_spread") == pytest.approx(POLY.std(axis=1).mean())
    assert polynomial.get("bias") == pytest.approx(-1)
    assert (polynomial.get("step_rmse"), polynomial.get("float_rmse")) == (pytest.approx(1), None)
    assert quantized.get("logit_rmse") == pytest.approx(0.5)
    assert quantized.get("centred_rmse") == pytest.approx(0, abs=1e-8)
    for name in ("step_centred_rmse", "float_centred_rmse"):
        assert quantized.get(name) == pytest.approx(0, abs=1e-8)
    assert (quantized.get("step_rmse"), quantized.get("float_rmse")) == (pytest.approx(0.5),) * 2
    assert (tiled.get("step_rmse"), tiled.get("float_rmse")) == (0, pytest.approx(0.5))


def test_an_offset_of_all_scores_leaves_the_centred_error() -> None:
    noise = 0.1 * np.random.default_rng(0).normal(size=POLY.shape)
    found = table(POLY)
    found.add("polynomial", POLY + noise, MU, MU)
    found.add("shifted", POLY + noise + 51.0, MU, MU)
    _, one, other = found.finished(0)
    expected = np.sqrt(max(noise.var(axis=axis).mean() for axis in (0, 1)))
    for row in (one, other):
        assert row.get("centred_rmse") == pytest.approx(expected, rel=1e-6)
    assert other.metrics["logit_rmse"] > 50
    assert other.metrics["bias"] == pytest.approx(51 + noise.mean())


def test_equal_scores_have_equal_queries_but_for_their_own_step_and_means() -> None:
    found = table(POLY + 1)
    found.add("polynomial", POLY, MU, MU)
    found.add("folded", POLY, MU, MU)
    found.add("quantized", POLY + 0.5, MU, MU)
    found.add_beside("float.onnx", POLY)
    found.add("tiled", POLY + 0.5, MU, MU + 0.1)
    alone = DriftTable(found.truth, POLY + 1)
    alone.add("polynomial", POLY, MU, MU)
    alone.add("tiled", POLY + 0.5, MU, MU + 0.1)
    same, other = found.queries[-1], alone.queries[-1]
    assert same.text.keys() == other.text.keys()
    assert (same.text["step_squares"] == 0).all()
    for name in same.text.keys() - {"step_squares", "step_centred_squares"}:
        np.testing.assert_array_equal(same.text[name], other.text[name])
    for name in same.video.keys() - {"step_centred_squares"}:
        np.testing.assert_array_equal(same.video[name], other.video[name])
    # The float score's own row lacks what is measured against it.
    assert "float_squares" in found.queries[2].text


def test_monte_carlo_stands_beside_the_exact_score() -> None:
    found = table(POLY)
    found.add_monte_carlo("Monte Carlo (K=10)", POLY + 2)
    found.add("polynomial", POLY + 1, MU, MU)
    exact, sampled, polynomial = found.finished(0)
    assert (exact.get("logit_rmse"), exact.get("monte_carlo_rmse")) == (None, None)
    assert sampled.get("bias") == pytest.approx(2)
    assert (sampled.get("step_rmse"), polynomial.get("monte_carlo_rmse")) == (
        None,
        pytest.approx(1),
    )
    # The step of the polynomial is from the exact score, not from the row above it.
    assert polynomial.get("step_rmse") == pytest.approx(1)
    assert found.scores is not None


def test_without_a_teacher_the_polynomial_is_the_reference() -> None:
    found = table(None)
    found.add("polynomial", POLY, MU, MU)
    found.add("quantized", POLY - 0.25, MU, MU)
    unknown, polynomial, quantized = found.finished(0)
    assert (unknown.stage, unknown.metrics, unknown.queries) == ("exact", {}, {})
    assert (polynomial.get("logit_rmse"), polynomial.get("step_rmse")) == (None, None)
    assert quantized.get("bias") == pytest.approx(-0.25)


def test_rounding_of_one_machine_makes_no_rank() -> None:
    # Two equal videos, whose scores a matrix product gives a last bit apart.
    scores = np.array([[1.0, np.nextafter(1.0, 2)], [0.5, 0.0]])
    found = DriftTable(truth_of(np.array([1, 0]), None, 2), None)
    found.add("polynomial", scores, np.eye(2), np.eye(2))
    (row,) = found.finished(0)
    assert row.get("r1_text_to_video") == 0.5  # the tie counts against the right one


def test_a_common_shift_of_the_means_is_no_change_of_the_cosine_gap() -> None:
    rng = np.random.default_rng(0)
    text, video = rng.normal(size=(2, 3, 4)) + 2
    found = table(None)
    found.add("polynomial", POLY, text, video)
    found.add("folded", POLY, text - 2, video - 2)
    found.add("broken", POLY, text, -video)
    gaps = [row.get("cosine_gap") for row in found.finished(0)[1:]]
    assert gaps[1] == pytest.approx(gaps[0])
    assert gaps[2] != pytest.approx(gaps[0])


def test_identical_rows_have_a_gap_of_nothing() -> None:
    same = np.tile(np.random.default_rng(0).normal(size=12), (33, 1))
    found = DriftTable(truth_of(np.arange(33), None, 33), None)
    found.add("polynomial", np.eye(33), same, same)
    found.add("folded", np.eye(33), same - 0.3, same - 0.3)
    assert [str(row.get("cosine_gap")) for row in found.finished(0)] == ["0.0", "0.0"]


def test_one_video_has_no_cosine_gap() -> None:
    found = DriftTable(truth_of(np.zeros(2, np.int64), None, 1), None)
    found.add("polynomial", np.ones((2, 1)), np.ones((2, 3)), np.ones((1, 3)))
    assert found.finished(0)[0].get("cosine_gap") is None


def test_a_video_has_the_label_of_its_texts() -> None:
    truth = truth_of(np.array([2, 0, 2]), np.array([7, 5, 7]), 4)
    assert truth.labels is not None
    assert truth.labels[1][[0, 2]].tolist() == [5, 7]
    # Unlabelled videos stand in no ranking, however high they score.
    scores = np.array([[0.0, 9, 1, 9], [1.0, 9, 0, 9], [0.0, 9, 1, 9]])
    found = retrieved(scores, truth)
    assert found.text["precision"].tolist() == [1, 1, 1]
    np.testing.assert_array_equal(found.video["precision"], [1, np.nan, 1, np.nan])


def test_texts_of_one_video_that_disagree_leave_no_labels() -> None:
    truth = truth_of(np.array([0, 0]), np.array([1, 2]), 1)
    assert truth.labels is None
    found = retrieved(np.ones((2, 1)), truth)
    assert found.text["precision"].tolist() == [1, 1]  # of the pairs


def test_an_item_alone_is_not_its_own_best() -> None:
    """Items of one modality: the best of a query is another one, and so is what is right."""
    scores = np.array([[9.0, 2, 1, 0], [2, 9, 0, 1], [1, 0, 9, 2], [0, 1, 2, 9]])
    other = np.array([[9.0, 1, 2, 0], [1, 9, 0, 2], [2, 0, 9, 1], [0, 2, 1, 9]])
    truth = truth_among_others(4, np.array([0, 0, 1, 1]))
    found = DriftTable(truth, scores)
    found.add_reference("exact", np.eye(4), np.eye(4))
    found.add("polynomial", other, np.eye(4), np.eye(4))
    exact, row = found.finished(0)
    assert (exact.get("r1_text_to_video"), row.get("r1_text_to_video")) == (1, 0)
    assert row.get("top1_agreement") == 0
    assert row.losses["r1_loss"].value == 1
    assert row.get("logit_rmse") == pytest.approx(np.sqrt(8 / 16))


def test_items_alone_without_classes_rank_nothing() -> None:
    for labels in (None, np.arange(4)):
        found = DriftTable(truth_among_others(4, labels), None)
        found.add("polynomial", np.eye(4), np.eye(4), np.eye(4))
        found.add("quantized", np.eye(4) + 0.5, np.eye(4), np.eye(4))
        _, row = found.finished(0)
        assert row.get("logit_rmse") == pytest.approx(0.5)
        assert "r1_text_to_video" not in row.metrics
        assert row.queries == {}


def test_a_loss_that_no_query_has_may_be_that_of_other_queries() -> None:
    """Two texts a video: the videos are the independent queries."""
    right = np.arange(20) % 10
    scores = np.random.default_rng(0).normal(size=(20, 10))
    found = DriftTable(truth_of(right, None, 10), None)
    found.add("polynomial", scores, np.zeros((20, 2)), np.zeros((10, 2)))
    found.add_baseline("same", scores)
    found.add_baseline("other", -scores)
    same, other = baseline_losses(found, [("same", "polynomial"), ("other", "polynomial")], 0)
    most = counted_share(0, 10).high
    assert (same.loss.value, same.loss.low, same.loss.high) == (0, -most, most)
    assert (same.queries, other.queries) == (10, 10)
    assert other.loss.value != 0
    row = found.finished(0)[1]
    assert row.intervals["r10_text_to_video"] == counted_share(10, 10).interval
    assert row.losses["r1_loss"] == Change(0, 0, 0)
    assert -1 <= other.loss.low < other.loss.value < other.loss.high <= 1
