"""Metrics of rankings against ir-measures, an implementation of its own, to the last digit."""

from __future__ import annotations

from collections.abc import Callable

import ir_measures
import numpy as np
import pytest
from ir_measures import AP, RR, P, Success, nDCG

from cimtool.reference.metrics import average_precision, hit_positions
from cimtool.reference.retrieval import retrieved
from cimtool.reference.truth import Judgements, Truth, truth_among_others, truth_judged, truth_of

RNG = np.random.default_rng(0)
N, M = 40, 31
RIGHT = RNG.integers(0, M - 1, size=N)
CLASSES = RNG.integers(0, 4, size=M)


def graded(texts: int, videos: int) -> Judgements:
    """Three pairs of a text on average, of grades 1 to 3; some texts have none."""
    drawn = np.random.default_rng(2).permutation(texts * videos)[: 3 * texts]
    grades = np.random.default_rng(3).integers(1, 4, size=len(drawn))
    return Judgements(drawn // videos, drawn % videos, grades)


SEVERAL = np.random.default_rng(1).random((M, 6)) < 0.2
TRUTHS = {
    "pairs": truth_of(RIGHT, None, M),
    "classes": truth_of(RIGHT, CLASSES[RIGHT], M),
    "others": truth_among_others(N, RNG.integers(0, 5, size=N)),
    "judged": truth_judged(graded(N, M), N, M),
    "judged others": truth_judged(graded(N, N), N, N, leave_one_out=True),
    "several classes": truth_of(RIGHT, SEVERAL[RIGHT], M),
    "others of several classes": truth_among_others(N, RNG.random((N, 5)) < 0.25),
}
LAST_DIGIT = 1e-15
"""Sums of the same terms in another order differ in the sixteenth digit."""


def relevant(truth: Truth) -> np.ndarray:
    """Right for metrics of classes, [n, m]."""
    if truth.labels is None or truth.leave_one_out:
        return truth.right_pairs()
    text, video = truth.labels
    same = text @ video.T if text.ndim == 2 else text[:, None] == video
    return same & np.isin(np.arange(truth.videos), truth.text_to_video)


def candidates(truth: Truth) -> np.ndarray:
    """Ranked at all by metrics of classes: not an item itself, nor a video without a class."""
    known = np.isin(np.arange(truth.videos), truth.text_to_video)
    everything = np.ones((len(truth.text_to_video), truth.videos), bool)
    return (everything & (known if truth.labels is not None else True)) & ~truth.itself()


def grades_of(truth: Truth) -> np.ndarray:
    """The grade of each pair [n, m], 1 for what is right without judgements."""
    right = relevant(truth).astype(int)
    if truth.judged is not None:
        right[truth.judged.text, truth.judged.video] = truth.judged.grade
    return right


def by_ir_measures(
    measure: Callable[[int], object], scores: np.ndarray, right: np.ndarray, shown: np.ndarray
) -> list[float]:
    """A measure of each query (of its number of right items); worse items are named to tie first.

    Of equal scores the public code ranks the greater name first.
    """
    found = []
    for row, good, among in zip(scores, right, shown, strict=True):
        if not good.any():
            found.append(np.nan)
            continue
        names = [f"{'zcba'[int(one)]}{i}" for i, one in enumerate(good)]
        judged = [ir_measures.Qrel("q", names[i], int(good[i])) for i in np.flatnonzero(good)]
        run = [ir_measures.ScoredDoc("q", names[i], row[i]) for i in np.flatnonzero(among)]
        (value,) = ir_measures.iter_calc([measure(int((good > 0).sum()))], judged, run)
        found.append(value.value)
    return found


BY_CLASS = {
    "precision": lambda right: AP,
    "precision_r": lambda right: AP @ right,
    "ndcg10": lambda right: nDCG @ 10,
}


@pytest.mark.parametrize("tied", [False, True], ids=["apart", "tied"])
@pytest.mark.parametrize("name", TRUTHS)
def test_measures_of_classes(name: str, tied: bool) -> None:
    truth = TRUTHS[name]
    shape = (N, truth.videos)
    scores = RNG.integers(0, 6, size=shape).astype(float) if tied else RNG.normal(size=shape)
    found = retrieved(scores, truth)
    right, shown = grades_of(truth), candidates(truth)
    for measure, public in BY_CLASS.items():
        for side, turned in ((found.text, False), (found.video, True)):
            sides = (scores, right, shown)
            expected = by_ir_measures(public, *(one.T if turned else one for one in sides))
            np.testing.assert_allclose(side[measure], expected, rtol=LAST_DIGIT, atol=0)


def test_average_precision_at_fifty_divides_by_what_can_be_found() -> None:
    scores = RNG.normal(size=(3, 200))
    right = RNG.random((3, 200)) < 0.5
    for row, good in zip(scores, right, strict=True):
        (public,) = by_ir_measures(lambda _: AP @ 50, row[None], good[None], np.ones((1, 200)) > 0)
        own = average_precision(hit_positions(row, good), 50)
        assert own == pytest.approx(public * good.sum() / 50, rel=LAST_DIGIT)


def test_recalls_of_pairs_are_successes() -> None:
    truth = TRUTHS["pairs"]
    scores = RNG.integers(0, 9, size=(N, M)).astype(float)
    found, right = retrieved(scores, truth), truth.right_pairs()
    everything = np.ones_like(right)
    for k in (1, 5, 10):
        expected = by_ir_measures(lambda _, k=k: Success @ k, scores, right, everything)
        assert (found.text["rank"] <= k).tolist() == [bool(one) for one in expected]
    expected = by_ir_measures(lambda _: RR, scores, right, everything)
    np.testing.assert_allclose(1 / found.text["rank"], expected, rtol=LAST_DIGIT)
    first = by_ir_measures(lambda _: P @ 1, scores, right, everything)
    assert found.text["precision_r"].tolist() == first
