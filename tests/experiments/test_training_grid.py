"""Rows of a grid of trainings: paired by query or by seed, the best, the cheaper of equals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from cimtool.experiments.engine import Failed
from cimtool.experiments.trained_points import TrainedPoint, Unseen
from cimtool.experiments.training_grid import LEAD, TrainingPoint, TrainingRow, compared_rows
from cimtool.reference.bootstrap import counted_share
from cimtool.reference.queries import Queries
from cimtool.reference.truth import Truth
from cimtool.training.arguments import TrainingOptions

COUNT = 8
Result = tuple[TrainingPoint, TrainedPoint | Failed]


def ranked(found: int) -> Queries:
    """Queries, so many of which find their item first."""
    rank = np.where(np.arange(COUNT) < found, 1.0, 2.0)
    return Queries(*({"rank": rank, "precision": 1 / rank} for _ in range(2)))


def result(width: int, seed: int, found: int, weights: int = 10) -> Result:
    values = (("model.width", width), ("seed", seed))
    trained = TrainedPoint(1, 1, 20, weights, ranked(found), None)
    return TrainingPoint(values, TrainingOptions(seed=seed)), trained


def compared(
    results: Sequence[Result], unseen: Mapping[int, Unseen]
) -> tuple[list[TrainingRow], int | None, TrainingRow | None]:
    points, outcomes = zip(*results, strict=True)
    return compared_rows(points, outcomes, unseen, by_class=False)


def unseen(*seeds: int, raw: int | None = None) -> dict[int, Unseen]:
    truth = Truth(np.arange(COUNT), COUNT)
    kept = None if raw is None else ranked(raw)
    return {seed: Unseen(truth, COUNT, kept) for seed in seeds}


def leads(results: Sequence[Result]) -> list[float]:
    seeds = {point.seed for point, _ in results}
    rows, _, _ = compared(results, unseen(*seeds))
    return [row.metrics[LEAD].value for row in rows]


def test_one_seed_has_intervals_over_its_queries_and_paired_differences() -> None:
    results = [result(4, 0, 6), result(8, 0, 7)]
    rows, best, raw = compared(results, unseen(0, raw=8))
    assert best == 1
    assert rows[1].behind is None
    behind = rows[0].behind
    assert behind is not None
    # They differ in one query, so no resample has the worse one ahead.
    assert (behind.value, behind.low) == (pytest.approx(1 / COUNT), 0.0)
    assert rows[0].as_good
    own = rows[0].metrics["r1_text_to_video"]
    assert own.low < own.value == 6 / COUNT < own.high
    assert raw is not None
    all_found = counted_share(COUNT, COUNT)
    assert raw.metrics[LEAD] == raw.metrics["r1_text_to_video"] == all_found
    assert raw.behind is not None
    assert raw.behind.value == pytest.approx(-1 / COUNT)
    assert raw.as_good


def test_several_seeds_have_means_and_differences_by_seed() -> None:
    found = {4: (2, 3, 4), 8: (5, 6, 7)}
    results = [result(w, s, n) for w, many in found.items() for s, n in enumerate(many)]
    rows, best, raw = compared(results, unseen(0, 1, 2))
    assert (best, raw) == (1, None)
    assert [row.points for row in rows] == [(0, 1, 2), (3, 4, 5)]
    assert [dict(row.values) for row in rows] == [{"model.width": 4}, {"model.width": 8}]
    half = 4.302652729749464 / math.sqrt(3) / COUNT
    lead = rows[0].metrics[LEAD]
    assert (lead.value, lead.low, lead.high) == pytest.approx((3 / 8, 3 / 8 - half, 3 / 8 + half))
    # All three differ by three queries: paired by seed there is nothing uncertain.
    behind = rows[0].behind
    assert behind is not None
    assert (behind.value, behind.low, behind.high) == pytest.approx((3 / 8,) * 3)
    assert not rows[0].as_good
    ends = [row.metrics[LEAD].high for row in rows]
    assert ends[1] == 1.0  # a share, whatever Student says


def test_of_equal_rows_the_cheaper_is_the_best() -> None:
    results = [result(8, 0, 5, weights=20), result(4, 0, 5, weights=10)]
    assert compared(results, unseen(0))[1] == 1


def test_a_seed_that_failed_is_left_out() -> None:
    failed = TrainingPoint((("seed", 1),), TrainingOptions(seed=1)), Failed("diverged")
    rows, best, _ = compared([result(4, 0, 5), failed], unseen(0, 1))
    assert best == 0
    assert [row.points for row in rows] == [(0,)]
    assert math.isnan(rows[0].metrics[LEAD].low)
    assert compared([failed], unseen(1)) == ([], None, None)
    assert leads([result(4, 0, 4), result(4, 1, 8)]) == [0.75]
