"""Limits of metrics: which there are, the loss of the worse way, and what keeps one."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.base.intervals import Interval
from cimtool.reference.limits import (
    LIMITS,
    OF_LOGIT,
    DriftLimit,
    check_measurable,
    check_metrics,
    limit_changes,
    limit_metrics,
)
from cimtool.reference.metrics import ReferenceScores
from cimtool.reference.queries import compared, metrics, once, uncertainties
from cimtool.reference.retrieval import retrieved
from cimtool.reference.truth import truth_among_others, truth_of


def test_limit_metrics_are_the_worse_of_both_directions() -> None:
    reference = np.eye(4)
    scores = reference.copy()
    scores[:, 0] = 2.0  # all texts now choose video 0, whose texts are all as good
    right = np.arange(4)
    own = retrieved(scores, truth_of(right, None, 4)).merged(
        compared(scores, ReferenceScores(reference))
    )
    found = limit_metrics(once(own), once(retrieved(reference, truth_of(right, None, 4))))
    apart = ("cosine_gap_loss", *OF_LOGIT)
    assert tuple(found) == tuple(name for name in LIMITS if name not in apart)
    assert found["logit_rmse"] == pytest.approx(math.sqrt((1 + 3 * 4) / 16))
    assert found["r1_loss"] == 0.75
    assert found["top1_agreement_loss"] == 0.75
    assert (found["r5_loss"], found["r10_loss"]) == (0, 0)
    # Texts to videos: three right ones are third at best; a rank is lost where it grows.
    assert found["mean_rank_loss"] == pytest.approx(np.mean([0, 1, 1, 1]))
    assert found["map_loss"] == 1 - np.mean([1, 1 / 2, 1 / 2, 1 / 2])


def test_limits_with_intervals_are_the_same_numbers() -> None:
    rng = np.random.default_rng(1)
    truth = truth_of(np.arange(50) % 30, np.arange(50) % 30 % 5, 30)
    reference = rng.normal(size=(50, 30)) + 2.0 * truth.right_pairs()
    scores = reference + 0.5 * rng.normal(size=(50, 30))
    best = retrieved(reference, truth)
    own = retrieved(scores, truth).merged(compared(scores, ReferenceScores(reference)))
    row = [partial(metrics, own)]
    (found,) = uncertainties(row, partial(metrics, best), truth.text_to_video, 30, 0)
    changes = limit_changes(found.metrics, found.intervals, found.losses)
    values = limit_metrics(once(own), once(best))
    assert {name: one.value for name, one in changes.items()} == values
    assert all(one.low <= one.value <= one.high for one in changes.values())


def test_no_query_in_a_way_is_no_loss_there() -> None:
    own = {"r1_text_to_video": math.nan, "r1_video_to_text": 0.5, "logit_rmse": 0.0}
    found = limit_metrics(own | {"top1_agreement": 1.0}, own | {"r1_video_to_text": 0.75})
    assert found["r1_loss"] == 0.25


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"r1_los": 0.1}, 'budget metric "r1_los" is not known: .*did you mean "r1_loss"'),
        ({"r1_loss": math.nan}, "budget r1_loss: nan is not a finite number"),
        ({"r1_loss": "0.1"}, r"budget r1_loss: '0\.1' is not a finite number"),
    ],
)
def test_a_limit_is_a_number_of_a_known_metric(limits: dict[str, float], message: str) -> None:
    with pytest.raises(CimError, match=message) as found:
        check_metrics("budget", limits)
    assert found.value.exit_status == 2


def test_a_loss_of_two_queries_in_a_hundred_keeps_a_limit_of_a_fiftieth() -> None:
    assert 0.93 - 0.91 > 0.02, "in float64"
    assert DriftLimit("r1_loss", 0.02, 0.93 - 0.91).kept
    assert not DriftLimit("r1_loss", 0.02, math.nan).kept
    assert not DriftLimit("r1_loss", 0.0, 1e-6).kept


def test_a_limit_is_kept_up_to_its_value() -> None:
    values = {"r1_loss": 0.01, "r5_loss": 0.011, "logit_rmse": math.nan}
    limits = {"r1_loss": 0.01, "r5_loss": 0.01, "logit_rmse": 1}
    at, over, broken = (DriftLimit(name, limit, values[name]) for name, limit in limits.items())
    assert (at.kept, over.kept, broken.kept) == (True, False, False)
    assert over.sentence() == "r5_loss is 0.011; the limit is 0.01"
    assert at == DriftLimit("r1_loss", 0.01, 0.01)
    sure = DriftLimit("r1_loss", 0.01, 0.02, Interval(0.015, 0.03))
    assert sure.sentence() == "r1_loss is 0.02 (0.015 to 0.03); the limit is 0.01"


def test_a_limit_of_a_ranking_needs_something_right() -> None:
    truth = truth_among_others(6, None)
    check_measurable("budget", {"logit_rmse": 1, "top1_agreement_loss": 1}, truth, "r.npz", True)
    with pytest.raises(CimError, match=r"^budget r1_loss: r\.npz holds items of one modality and"):
        check_measurable("budget", {"r1_loss": 0.1}, truth, "r.npz", True)
    check_measurable(
        "budget", {"r1_loss": 0.1}, truth_among_others(6, np.arange(6) % 2), "r.npz", True
    )


def test_a_limit_of_a_probability_needs_a_logit() -> None:
    truth = truth_of(np.arange(3), None, 3)
    check_measurable("budget", {"nll_loss": 1, "calibration_error_loss": 0.1}, truth, "r.npz", True)
    with pytest.raises(CimError) as error:
        check_measurable("budget", {"r1_loss": 0, "nll_loss": 1}, truth, "r.npz", False)
    assert str(error.value) == (
        "budget nll_loss: the score is not the logit of a matching probability; expected another "
        "metric than nll_loss, brier_loss, calibration_error_loss"
    )
