"""Goals of a choice of bits: their intervals, and the rows that can show them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.base.intervals import Change
from cimtool.bundle.bit_choice import DriftGoal
from cimtool.experiments.drift_goals import (
    ErrorWithin,
    GoalError,
    Half,
    LossWithin,
    check_pairs,
    criterion_of,
    error_on,
    kept,
    losses_on,
    parts_of,
    worst,
)
from cimtool.loading.embeddings import Embeddings, embeddings_of
from cimtool.reference.retrieval import retrieval
from cimtool.reference.truth import Truth

Rows = tuple[Half, FloatArray]


def rows(count: int, noise: float, seed: int = 0) -> Rows:
    """A half whose right answers mostly win, and scores that err by `noise`."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(count, count)) + 2.5 * np.eye(count)
    none = np.zeros((count, 1), np.float32)
    half = Half(none, none, scores, scores, right=np.arange(count))
    return half, scores + noise * rng.normal(size=scores.shape)


def test_bits_are_kept_if_the_interval_of_the_rows_that_choose_and_the_others_value_are() -> None:
    def of(share: Change) -> GoalError:
        return GoalError(np.zeros((1, 1)), share, share)

    good, wide, over = Change(0.9, 0.8, 1.0), Change(0.99, 0.9, 1.1), Change(1.01, 0.9, 1.1)
    assert kept([of(good), of(wide)])
    assert not kept([of(wide), of(good)])
    assert not kept([of(good), of(over)])


def test_of_two_programs_neither_the_highest_end_nor_the_largest_error_is_lost() -> None:
    good, wide, over = Change(0.9, 0.8, 1.0), Change(0.98, 0.9, 1.2), Change(1.02, 0.9, 1.1)
    choosing, one, two = (GoalError(np.zeros((1, 1)), share, share) for share in (good, wide, over))
    found = worst([one, two])
    assert found.share == Change(1.02, 0.9, 1.2)
    assert found.error == wide
    assert not kept([choosing, found])


def test_the_upper_end_covers_the_error_of_all_rows() -> None:
    """The error of other rows lies below the upper end as often as it says, with row effects."""
    rng = np.random.default_rng(1)
    below = 0
    for _ in range(100):
        sizes = rng.gamma(4, size=(40, 1)) / 4
        errors = np.sqrt(sizes) * rng.normal(size=(40, 40))
        below += error_on("logit_rmse", errors, np.zeros_like(errors)).high >= 1
    assert below >= 90  # 97.5 in the limit of many rows


def test_an_error_beside_that_of_samples_is_a_share_of_it() -> None:
    rng = np.random.default_rng(2)
    scale = rng.gamma(2, size=(60, 1))
    errors = scale * rng.normal(size=(60, 60))
    squares = np.square(2 * scale * rng.normal(size=(60, 60)))
    squares[:, ::3] = np.nan
    zero = np.zeros_like(errors)
    share = error_on("logit_rmse", errors, zero, squares)
    alone = error_on("logit_rmse", errors, zero)
    assert share.value == pytest.approx(alone.value / math.sqrt(np.nanmean(squares)))
    assert share.low < share.value < share.high
    # Rows that both err more on are drawn together, so the share is surer than the error.
    assert (share.high - share.low) / share.value < 0.6 * (alone.high - alone.low) / alone.value
    half = Half(zero, zero, zero, zero, sampled=squares)
    found = ErrorWithin("logit_rmse", None).measured(half, errors)
    assert found.share == share
    assert found.error == alone


def test_a_fixed_limit_is_a_share_of_the_limit_and_room_is_what_the_strictest_leaves() -> None:
    half, scores = rows(30, 0.5)
    goal = ErrorWithin("logit_rmse", 0.25)
    found = goal.measured(half, scores)
    assert found.share.high == pytest.approx(found.error.high / 0.25)
    square = found.error.value**2
    room = goal.room(square, (half, half), (found, found))
    # With a rounding of this square the upper end would be the limit.
    assert math.sqrt(room) / found.error.value * found.error.high == pytest.approx(0.25)


def test_a_loss_is_that_of_verify_and_never_less_than_may_hide() -> None:
    half, scores = rows(60, 1.0)
    truth = Truth(np.arange(60), 60)
    before, after = (retrieval(one, truth) for one in (half.reference, scores))
    lost = max(before[k] - after[k] for k in ("r1_text_to_video", "r1_video_to_text"))
    assert lost > 0
    found, same = losses_on(half, [scores, half.scores])
    assert found.value == pytest.approx(lost)
    assert found.low < found.value < found.high
    assert (same.value, same.low) == (0, 0)
    assert same.high == pytest.approx(1 - 0.025 ** (1 / 60))


def test_room_for_a_loss_is_errors_scaled_until_answers_are_lost() -> None:
    goal, square, rooms = LossWithin(0.2), 1.0, []
    for noise in (0.25, 0.5, 20.0):
        half, scores = rows(100, noise)
        found = goal.measured(half, scores)
        rooms.append(goal.room(square, (half, half), (found, found)))
        largest = half.scores + math.sqrt(rooms[-1]) * (scores - half.scores)
        assert goal.measured(half, largest).share.high <= 1
    assert rooms[0] > rooms[1] > rooms[2]
    assert rooms[0] > 1 > rooms[2]


def test_half_of_the_videos_come_with_their_texts() -> None:
    rng = np.random.default_rng(0)
    right = np.repeat(np.arange(80), 3)[rng.permutation(240)]
    video = rng.normal(size=(80, 4)).astype(np.float32)
    held = {"text": video[right], "video": video, "text_to_video": right}
    data = embeddings_of(held)
    rows = data.text, data.video
    for held_out, share in ((False, 2), (True, 4)):
        parts = parts_of(data, rows, DriftGoal.of("r1_loss=0.2"), held_out)
        for part in (parts.choosing, parts.others):
            assert len(part.video) == 80 // share
            assert len(part.text) == 240 // share
            assert np.array_equal(part.text, part.video[part.right])
        parts = parts_of(data, rows, DriftGoal.of("mc=10"), held_out)
        assert parts.choosing.text_to_video is parts.others.text_to_video is None


@pytest.mark.parametrize("pairs", [True, False])
def test_rows_that_compile_choose_nothing_if_they_are_held_out(pairs: bool) -> None:
    video = np.arange(64, dtype=np.float32)[:, None]
    right = np.arange(64) if pairs else None
    data = Embeddings(video, video, right)
    for goal in ("least", "r1_loss=0.2"):
        for held_out in (False, True):
            parts = parts_of(data, (video, video), DriftGoal.of(goal), held_out)
            places = [
                set(part.video[:, 0].astype(int))
                for part in (parts.compiling, parts.choosing, parts.others)
            ]
            assert all(
                set(part.text[:, 0]) == set(part.video[:, 0]) for part in vars(parts).values()
            )
            compiling, choosing, others = places
            assert len(compiling) == 32
            assert choosing.isdisjoint(others)
            assert compiling | choosing | others == set(range(64))
            assert choosing == compiling if not held_out else choosing.isdisjoint(compiling)


def test_texts_of_one_video_are_one_query() -> None:
    half, _ = rows(20, 0.1)
    many = replace(
        half, scores=np.repeat(half.scores, 5, 0), reference=np.repeat(half.reference, 5, 0),
        right=np.repeat(np.arange(20), 5),
    )  # fmt: skip
    data = Embeddings(many.text, many.video, many.right)
    with pytest.raises(CimError, match=r"a loss of 0\.1684 may hide from 20 pairs"):
        criterion_of(DriftGoal.of("r1_loss=0.16"), data, [many])
    assert criterion_of(DriftGoal.of("r1_loss=0.17"), data, [many]) == LossWithin(0.17)
    for held_out, said in ((False, "half of .* 50 calib"), (True, "a quarter of .* 100 calib")):
        with pytest.raises(CimError, match=said):
            criterion_of(DriftGoal.of("r1_loss=0.14"), data, [many], held_out)


def test_pairs_are_needed_for_a_loss_and_nothing_else() -> None:
    one = np.eye(4, dtype=np.float32)
    check_pairs(Embeddings(one, one, None), DriftGoal.of("mc=10"))
    for data, held in (
        (Embeddings(one, one, None, file="few.npz"), "no pairs that are known"),
        (Embeddings(one, one, None, file="few.npz", alone=True), "items of one modality"),
    ):
        with pytest.raises(CimError, match=f"drift r1_loss=0.1: few.npz holds {held}, so no ans"):
            check_pairs(data, DriftGoal.of("r1_loss=0.1"))
