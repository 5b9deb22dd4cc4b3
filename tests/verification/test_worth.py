"""The verdict: constructed cases are told apart, and `verify` says what plain NumPy finds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.intervals import Change
from cimtool.bundle.bundle import Bundle
from cimtool.emit.runtime import Session
from cimtool.ir.surrogate import Polynomial
from cimtool.loading.embeddings import embeddings_of
from cimtool.reference.bootstrap import LEVEL
from cimtool.reference.exact import log_match_probability
from cimtool.reference.metrics import RAW_INT8, on_grid
from cimtool.reference.retrieval import retrieved
from cimtool.reference.statistics import Gaussians
from cimtool.reference.truth import Judgements, Truth, truth_among_others, truth_judged
from cimtool.report.terminal import terminal
from cimtool.simulation.simulator import Simulator
from cimtool.verification.drift import BaselineLoss, DriftTable
from cimtool.verification.run import verify_bundle
from cimtool.verification.worth import (
    FACTOR,
    FEW_QUERIES,
    LEAST_QUERIES,
    MARGIN,
    WORST,
    LargerGallery,
    SampledAlike,
    Worth,
    by_chance,
    in_larger_gallery,
    mean_variance,
    standing_of,
    worst_share,
    worth_of,
)
from cimtool.verification.worth_table import worth_table
from tests.kits import verdict_by_hand
from tests.kits.verdict_by_hand import Items

from .conftest import MakeBundle, pairs, trunk

N, K = 400, 10
MONTE_CARLO = "Monte Carlo (K=10)"
ERROR = 0.4
"""The error of Monte Carlo in constructed cases."""

EASY, HARD = 20.0, 4.0
"""Leads of right pairs by which all of them come first, or one in eight."""


def noise(seed: int, n: int = N) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(n, n))


@dataclass(frozen=True)
class Case:
    """Scores by their distance from exact ones; what is None is not there.

    `led` is what right pairs get on top: 0 is as good as the exact score. If it is `uneven`, few
    texts and videos have most of the compiled error. Of all `texts`, so many are `judged`.
    """

    compiled: float = ERROR
    offset: float = 0.0
    lead: float = EASY
    float_led: float = 0.0
    raw_led: float | None = -17.0
    monte_carlo: float | None = ERROR
    uneven: bool = False
    ranks: bool = True
    broken: bool = False
    texts: int = N
    judged: int | None = None

    @property
    def truth(self) -> Truth:
        """The right items: text i belongs to video i."""
        if not self.ranks:
            return truth_among_others(self.texts, None)
        if self.judged is None:
            return Truth(np.arange(self.texts), self.texts)
        first = np.arange(self.judged)
        return truth_judged(Judgements(first, first, np.ones_like(first)), self.texts, self.texts)

    def worth(self) -> Worth:
        """The verdict on a table of such scores."""
        n = self.texts
        exact = on_grid(2 * noise(0, n) + self.lead * np.eye(n))
        table = DriftTable(self.truth, exact)
        means = noise(9, n)[:, :3], noise(8, n)[:, :3]
        table.add_reference("exact", *means)
        if self.monte_carlo is not None:
            table.add_monte_carlo(MONTE_CARLO, on_grid(exact + self.monte_carlo * noise(1, n)))
        if self.raw_led is not None:
            table.add_baseline(RAW_INT8, exact + 0.1 * noise(2, n) + self.raw_led * np.eye(n))
        table.add("polynomial", exact + 0.1 * noise(3, n) + self.float_led * np.eye(n), *means)
        error = self.compiled * noise(4, n)
        if self.uneven:
            times = np.exp(1.5 * np.random.default_rng(5).normal(size=n))
            times /= np.sqrt(np.mean(times**2))
            error *= times[:, None] * times
        table.add("ONNX Runtime", exact + error + self.offset, *means)
        sampled = None if self.monte_carlo is None else (MONTE_CARLO, K)
        found = worth_of(table, "polynomial", sampled, None, 0)
        return replace(found, broken=self.broken)


CASES = {
    "better than all": (
        Case(0.1, float_led=-17),
        "The compiled model is better than Monte Carlo with K=10, better than its float score, "
        "better than raw rows in int8.",
        "good",
    ),
    "better than Monte Carlo": (
        Case(0.1),
        "The compiled model is better than Monte Carlo with K=10, as good as its float score, "
        "better than raw rows in int8.",
        "good",
    ),
    "as good as Monte Carlo": (
        Case(),
        "The compiled model is as good as Monte Carlo with K=10, as good as its float score, "
        "better than raw rows in int8.",
        "good",
    ),
    "not shown to differ from Monte Carlo": (
        Case(uneven=True, texts=30),
        "The compiled model is not shown to differ from Monte Carlo with K=10, not shown to differ "
        "from its float score, better than raw rows in int8.",
        "good",
    ),
    "worse than Monte Carlo": (
        Case(0.7),
        "The compiled model is WORSE than Monte Carlo with K=10, as good as its float score, "
        "better than raw rows in int8.",
        "bad",
    ),
    "without an error": (
        Case(0.0),
        "The compiled model is better than Monte Carlo with K=10 (it has no error at all), as good "
        "as its float score, better than raw rows in int8.",
        "good",
    ),
    "without an error, nor has Monte Carlo": (
        Case(0.0, monte_carlo=0.0),
        "The compiled model is as good as Monte Carlo with K=10, as good as its float score, "
        "better than raw rows in int8.",
        "good",
    ),
    "Monte Carlo has no error": (
        Case(0.1, monte_carlo=0.0),
        "The compiled model is WORSE than Monte Carlo with K=10, as good as its float score, "
        "better than raw rows in int8.",
        "bad",
    ),
    "better than the float score alone": (
        Case(float_led=-17, raw_led=None),
        "The compiled model is as good as Monte Carlo with K=10, better than its float score.",
        "good",
    ),
    "not shown to differ from the float score": (
        Case(0.1, lead=HARD, raw_led=-3),
        "The compiled model is better than Monte Carlo with K=10, not shown to differ from its "
        "float score, better than raw rows in int8.",
        "good",
    ),
    "worse than the float score": (
        Case(0.1, lead=HARD, float_led=3, raw_led=-3),
        "The compiled model is better than Monte Carlo with K=10, WORSE than its float score, "
        "better than raw rows in int8.",
        "bad",
    ),
    "raw rows are as good": (
        Case(0.1, raw_led=0),
        "The compiled model is as good as raw rows in int8, better than Monte Carlo with K=10, as "
        "good as its float score.",
        "",
    ),
    "raw rows are not shown to differ": (
        Case(0.1, lead=HARD, raw_led=0),
        "The compiled model is not shown to differ from raw rows in int8, better than Monte Carlo "
        "with K=10, not shown to differ from its float score.",
        "",
    ),
    "raw rows are better": (
        Case(0.1, lead=HARD, raw_led=3),
        "The compiled model is WORSE than raw rows in int8, better than Monte Carlo with K=10, "
        "not shown to differ from its float score.",
        "bad",
    ),
    "as good as all": (
        Case(raw_led=0),
        "The compiled model is as good as raw rows in int8, as good as Monte Carlo with K=10, as "
        "good as its float score.",
        "",
    ),
    "the surrogate is broken": (
        Case(0.1, broken=True),
        "No verdict: the float score is BROKEN, before any hardware.",
        "bad",
    ),
    "nothing is ranked": (
        Case(0.1, ranks=False),
        "The compiled model is better than Monte Carlo with K=10.",
        "good",
    ),
    "nothing is ranked or known": (
        Case(0.1, ranks=False, monte_carlo=None),
        "No verdict: nothing is ranked, and the exact score is not known.",
        "",
    ),
    "rows of two widths": (
        Case(0.1, raw_led=None),
        "The compiled model is better than Monte Carlo with K=10, as good as its float score.",
        "good",
    ),
    "the exact score is not known": (
        Case(0.1, monte_carlo=None),
        "The compiled model is as good as its float score, better than raw rows in int8.",
        "good",
    ),
    "an offset alone": (
        Case(0.1, offset=3),
        "The compiled model is better than Monte Carlo with K=10 where ranks are concerned (WORSE "
        "in the whole score), as good as its float score, better than raw rows in int8.",
        "",
    ),
    "one judged query": (
        Case(0.1, judged=1),
        "The compiled model is not shown to differ from raw rows in int8, better than Monte Carlo "
        "with K=10, not shown to differ from its float score. 1 query is too few to be sure of "
        "mAP.",
        "",
    ),
    "five judged queries": (
        Case(0.1, judged=5),
        "The compiled model is not shown to differ from raw rows in int8, better than Monte Carlo "
        "with K=10, not shown to differ from its float score. 5 queries are too few to be sure of "
        "mAP.",
        "",
    ),
    "six judged queries": (
        Case(0.1, judged=6),
        "The compiled model is better than Monte Carlo with K=10, not shown to differ from its "
        "float score, better than raw rows in int8.",
        "good",
    ),
    "three texts": (
        Case(0.1, texts=3),
        "The compiled model is not shown to differ from raw rows in int8, not shown to differ from "
        "Monte Carlo with K=10, not shown to differ from its float score. 3 queries are too few to "
        "be sure.",
        "",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cases_are_told_apart(name: str) -> None:
    case, sentence, tone = CASES[name]
    found = case.worth()
    assert (found.sentence, found.tone) == (sentence, tone)
    assert (found.of_raw is None) == (case.raw_led is None or not case.ranks)
    assert (found.sampled is None) == (case.monte_carlo is None)
    told = len(found.standings)
    tables = worth_table(found)
    if case.broken or not told:
        assert tables == ()
    else:
        (table,) = tables
        whole = found.sampled is not None
        assert len(table.rows) == told + whole


def test_an_offset_is_worse_in_the_whole_score_alone() -> None:
    found = CASES["an offset alone"][0].worth().sampled
    assert found is not None
    assert (found.standing, found.standing_whole) == ("better", "worse")
    assert found.centred.low > 100
    assert found.whole.high < 1


def test_the_k_of_the_same_error_is_that_of_the_errors_squares() -> None:
    found = Case(0.1).worth().sampled
    assert found is not None
    assert found.centred.value == pytest.approx(K * (ERROR / 0.1) ** 2, rel=0.1)
    assert found.centred.low < found.centred.value < found.centred.high


def test_a_model_without_error_has_no_k() -> None:
    found = Case(0.0).worth()
    assert found.sampled is not None
    assert (found.sampled.centred.low, found.sampled.whole.low) == (math.inf, math.inf)
    assert rows(found)["as exact as K samples"] == ["10", "no error", "-", "better"]
    assert found.worst_share is None


def test_an_offset_may_be_the_only_error() -> None:
    found = Case(0.0, offset=3).worth()
    assert "better than Monte Carlo with K=10 where ranks are concerned (WORSE in" in found.sentence
    assert rows(found)["as exact as K samples"] == ["10", "no error", "-", "better"]
    assert rows(found)["the same, by whole scores"] == ["10", "< 1", "-", "WORSE"]


def test_of_too_few_queries_no_interval_is_told() -> None:
    few, enough = (rows(Case(0.1, texts=texts).worth()).values() for texts in (3, 6))
    assert len(few) == len(enough) == 4
    assert not any("[" in cell for cells in few for cell in cells)
    assert all(any("[" in cell for cell in cells) for cells in enough)


def loss(value: float, low: float, high: float) -> BaselineLoss:
    change = Change(value, low, high)
    return BaselineLoss(
        "other", "ONNX Runtime", "R@1", change, 0.5 + value, 0.5, 1500, "text to video"
    )


KNOWN = Worth(
    broken=False,
    sampled=SampledAlike(K, 1500, Change(123.4, 98.7, 151.0), Change(4.4, 3.2, 5.1)),
    of_float=loss(0.02, -0.01, 0.05),
    of_raw=loss(-0.25, -0.3, -0.2),
    items=1500,
    variance=2.5,
    worst_share=0.123,
)


def rows(worth: Worth) -> dict[str, list[str]]:
    """The lines of the table by their first cell."""
    (table,) = worth_table(worth)
    return {row.cells[0].text: [cell.line for cell in row.cells[1:]] for row in table.rows}


def test_the_table_has_the_figures() -> None:
    assert rows(KNOWN) == {
        "raw rows in int8, R@1 %": ["25.0", "50.0", "+25.0 [20.0, 30.0]", "better"],
        "float score, R@1 %": ["52.0", "50.0", "-2.0 [-5.0, 1.0]", "not shown"],
        "as exact as K samples": ["10", "120 [99, 150]", "-", "better"],
        "the same, by whole scores": ["10", "4 [3, 5]", "-", "WORSE"],
    }
    (table,) = worth_table(KNOWN, "here", "of 9 x 9")
    assert (table.title, table.level) == ("here", "verdict")
    assert table.footnotes == ("of 9 x 9; worse way: text to video",)
    assert KNOWN.of_float is not None
    apart = replace(KNOWN, of_float=replace(KNOWN.of_float, way="video to text"))
    (other,) = worth_table(apart)
    assert other.footnotes == ("raw rows text to video, float score video to text",)
    # Whole scores lead only if they stand otherwise.
    assert [row.essential for row in table.rows] == [True] * 4
    alike = replace(KNOWN, sampled=SampledAlike(K, 1500, Change(20, 15, 30), Change(40, 30, 50)))
    assert [row.essential for row in worth_table(alike)[0].rows] == [True] * 3 + [False]


def test_the_notes_are_on_variances_and_the_worst_texts() -> None:
    assert KNOWN.notes == (
        "Variances of the items: a^2 vd is 2.5 on average, they matter.",
        "The worst 1% of the texts have 12% of the centred mean square error.",
    )
    little = replace(KNOWN, variance=0.25, worst_share=None).notes
    assert little == (
        "Variances of the items: a^2 vd is 0.25 on average, they change the score little.",
    )
    assert replace(KNOWN, variance=None, worst_share=None).notes == ()


def test_a_whole_score_may_not_be_shown_to_differ() -> None:
    found = SampledAlike(K, 1500, Change(10, 9, 11), Change(10, 4, 11))
    assert found.words == (
        "as good as Monte Carlo with K=10 where ranks are concerned (not shown to differ in the "
        "whole score)"
    )


def test_a_k_below_one_is_less_than_one_sample() -> None:
    below = SampledAlike(K, 1500, Change(0.4, 0.2, 0.9), Change(0.7, 0.3, 1.6))
    found = replace(KNOWN, sampled=below)
    assert found.sentence.startswith("The compiled model is WORSE than Monte Carlo with K=10, ")
    assert rows(found)["as exact as K samples"] == ["10", "< 1", "-", "WORSE"]
    assert rows(found)["the same, by whole scores"] == ["10", "< 1 [< 1, 2]", "-", "WORSE"]


def test_a_shortlist_finds_no_more_in_a_larger_gallery_than_all_scores() -> None:
    scores, truth = noise(0), Truth(np.arange(N), N)
    scores[np.arange(N), np.arange(N)] += EASY / 4
    all_pairs, all_listed, half_listed = (
        in_larger_gallery(scores, None, truth, 100 * N, 0, listed).compiled.value
        for listed in (None, np.ones((N, N), bool), np.tile(np.arange(N) % 2 == 0, (N, 1)))
    )
    assert all_pairs == all_listed > 0.3
    assert half_listed == pytest.approx(all_pairs / 2, abs=0.05)


def test_few_queries_are_too_few_in_a_larger_gallery_too() -> None:
    share = Change(0.5, 0.4, 0.6)
    gain = Change(0.25, 0.2, 0.3)
    few, enough = (
        replace(KNOWN, larger=LargerGallery(10_000, queries, share, share, gain, 0.0))
        for queries in (LEAST_QUERIES - 1, LEAST_QUERIES)
    )
    assert (few.against_raw, enough.against_raw) == ("not shown", "better")
    assert few.sentence.endswith("its float score. 5 queries are too few to be sure of R@1.")
    assert enough.sentence.endswith("better than raw rows in int8 among 10,000 items.")
    alone = replace(KNOWN, larger=LargerGallery(10_000, LEAST_QUERIES, share, None, None, 0.0))
    assert rows(alone)["R@1 % in 10,000 items"] == ["-", "50.0 [40.0, 60.0]", "-", "-"]


@pytest.mark.parametrize("right", [1, 4])
def test_raw_rows_that_rank_by_chance_are_named(right: int) -> None:
    rng, n = np.random.default_rng(3), 250 * right
    classes = np.arange(n) // right
    if right == 1:
        truth = Truth(np.arange(n), n)
    else:
        judged = np.nonzero(classes[:, None] == classes)
        truth = truth_judged(Judgements(*judged, np.ones(len(judged[0]), int)), n, n)
    alike = 1.0 * (classes[:, None] == classes)
    found = [
        sum(
            by_chance(retrieved(rng.normal(size=(n, n)) + effect * alike, truth), truth)
            for _ in range(10)
        )
        for effect in (0.0, 0.6)
    ]
    assert found[0] >= 9
    assert found[1] == 0
    said = replace(KNOWN, raw_by_chance=True).sentence
    assert said.endswith("better than raw rows in int8 (which rank by chance).")
    assert not by_chance(None, truth)
    few = Truth(np.arange(FEW_QUERIES - 1), FEW_QUERIES - 1)
    scores = rng.normal(size=(FEW_QUERIES - 1, FEW_QUERIES - 1))
    assert not by_chance(retrieved(scores, few), few)


def in_gallery(*gain: float, here: BaselineLoss) -> Worth:
    share = Change(0.1, 0.0, 0.2)
    larger = LargerGallery(9000, 1500, share, share, Change(*gain), 0.0)
    return replace(KNOWN, of_raw=here, larger=larger)


def test_what_is_known_here_is_told_where_a_larger_gallery_is_open() -> None:
    worse, better = loss(0.1, 0.05, 0.15), loss(-0.1, -0.15, -0.05)
    lost = in_gallery(-0.02, -0.1, 0.06, here=worse)
    assert lost.sentence.startswith(
        "The compiled model is WORSE than raw rows in int8 among 1,500 items (not shown to differ "
        "among 9,000), "
    )
    assert (lost.tone, lost.gain) == ("bad", worse.loss.reversed)
    unsure = in_gallery(0.02, -0.06, 0.1, here=better)
    assert "is better than raw rows in int8 among 1,500 items (not shown to differ" in unsure.about(
        "It"
    )
    assert (unsure.tone, unsure.gain) == ("", Change(0.02, -0.06, 0.1))
    # What is known there is said of there alone.
    won = in_gallery(0.05, 0.02, 0.08, here=worse)
    assert "better than raw rows in int8 among 9,000 items" in won.sentence
    assert "1,500 items" not in won.sentence
    assert won.gain == Change(0.05, 0.02, 0.08)
    few = replace(KNOWN, of_raw=replace(KNOWN.of_raw, queries=LEAST_QUERIES - 1))
    assert few.gain == Change(0.25, -1.0, 1.0)
    assert replace(KNOWN, of_raw=None).gain is None


ENDS = st.lists(st.floats(0, 1e6), min_size=3, max_size=3).map(sorted)


@given(ENDS, ENDS, st.integers(1, 100_000))
def test_a_standing_is_better_or_worse_only_beyond_the_interval(
    first: list[float], second: list[float], samples: int
) -> None:
    centred, whole = (Change(value, low, high) for low, value, high in (first, second))
    found = SampledAlike(samples, LEAST_QUERIES, centred, whole)
    for one, standing in ((centred, found.standing), (whole, found.standing_whole)):
        if one.low <= samples <= one.high:
            near = samples <= FACTOR * one.low and one.high <= FACTOR * samples
            assert standing == ("as good" if near else "not shown")
        else:
            assert standing == ("better" if one.value > samples else "worse")
    swapped = SampledAlike(samples, LEAST_QUERIES, whole, centred)
    assert (swapped.standing, swapped.standing_whole) == (found.standing_whole, found.standing)
    few = SampledAlike(samples, LEAST_QUERIES - 1, centred, whole)
    assert (few.standing, few.standing_whole) == ("not shown", "not shown")


@pytest.mark.parametrize(
    ("low", "high", "standing"),
    [
        (-0.2, -0.1, "better"),
        (-0.1, 0.0, "as good"),
        (-0.005, MARGIN, "as good"),
        (-0.005, 0.011, "not shown"),
        (0.0, 0.1, "not shown"),
        (0.1, 0.2, "worse"),
        (math.nan, math.nan, "not shown"),
    ],
)
def test_a_loss_is_as_good_if_its_interval_has_0_and_leaves_out_a_point(
    low: float, high: float, standing: str
) -> None:
    loss = Change((low + high) / 2, low, high)
    assert standing_of(loss, LEAST_QUERIES) == standing
    assert standing_of(loss, LEAST_QUERIES - 1) == "not shown"


def ranked(n: int, wrong: int, first: int = 0) -> FloatArray:
    """Scores [n, n] whose right pairs come first, but for some texts from `first` on."""
    scores = 10.0 * np.eye(n) + np.random.default_rng(0).random((n, n))
    for text in range(first, first + wrong):
        scores[text, (text + 1) % n] = 20.0
    return scores


@pytest.mark.parametrize(
    ("n", "lost", "gained", "standing"),
    [
        (8, 0, 1, "not shown"),
        (8, 0, 3, "not shown"),
        (400, 4, 0, "not shown"),
        (400, 0, 4, "not shown"),
        (400, 0, 0, "as good"),
        (1000, 1, 2, "as good"),
        (400, 30, 0, "worse"),
        (400, 0, 30, "better"),
    ],
)
def test_few_queries_that_differ_show_no_difference(
    n: int, lost: int, gained: int, standing: str
) -> None:
    truth, means = Truth(np.arange(n), n), np.random.default_rng(1).normal(size=(2, n, 3))
    table = DriftTable(truth, None)
    table.add("polynomial", on_grid(ranked(n, gained, first=n // 2)), *means)
    table.add("ONNX Runtime", on_grid(ranked(n, lost)), *means)
    found = worth_of(table, "polynomial", None, None, 0).of_float
    assert found is not None
    assert found.loss.value == pytest.approx(lost / n if lost >= gained else (lost - gained) / n)
    assert found.loss.low <= found.loss.value <= found.loss.high
    assert standing_of(found.loss, found.queries) == standing


def test_fewer_queries_than_the_least_leave_the_interval_too_often() -> None:
    """The chance that all of n queries are on one side of their median is 2^(1-n)."""
    chances = [2.0 ** (1 - queries) for queries in (LEAST_QUERIES - 1, LEAST_QUERIES)]
    assert chances[0] > 1 - LEVEL > chances[1]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=400))
def test_the_worst_share_is_that_of_the_largest_squares(squares: list[float]) -> None:
    found, total = worst_share(np.array(squares)), math.fsum(squares)
    if total == 0:
        assert found is None
        return
    worst = sorted(squares, reverse=True)[: max(1, round(WORST * len(squares)))]
    assert found == pytest.approx(math.fsum(worst) / total)


@pytest.mark.parametrize("seed", range(3))
def test_the_mean_variance_is_of_all_pairs(seed: int) -> None:
    """Of 32 videos too, whose number divides the pairs evenly."""
    rng = np.random.default_rng(seed)
    sides = [Gaussians(rng.normal(5, 1, (n, 4)), rng.gamma(1.0, size=(n, 4))) for n in (7, 32)]
    text, video = sides
    pairs_of = [(t, v) for t in range(7) for v in range(32)]
    found = []
    for t, v in pairs_of:
        s = text.s[t] + video.s[v]
        found.append((2 * s**2 + 4 * (text.mu[t] - video.mu[v]) ** 2 * s).sum())
    assert mean_variance(text, video, 0.3) == pytest.approx(0.3**2 * np.mean(found))


A, B = 0.1, 0.0

TERMS = (-9.789014e-2, -3.845656e-4, 7.492753e-5, -5.168286e-4, 8.448669e-4)
FITTED = Polynomial(2, TERMS, -1.009843e-2, a=A, b=B, K=K)
"""Least squares on the exact logits of the calibration rows."""


def mirrored() -> torch.nn.Module:
    """The tower for rows whose numbers stand in the reverse order."""
    module = trunk()
    with torch.no_grad():
        module.trunk[0].weight.copy_(module.trunk[0].weight.flip(1))
    return module


def drawn(seed: int, noise: float, mirror: bool = True, n: int = 40) -> dict[str, Any]:
    """Pairs of rows; videos have their numbers in the reverse order if they `mirror` texts."""
    rows = pairs(n, seed=seed, noise=noise)
    video = rows["video"][:, ::-1] if mirror else rows["video"]
    return {"text": rows["text"], "video": np.ascontiguousarray(video)}


@pytest.fixture(scope="module")
def mirrored_bundle(make_bundle: MakeBundle) -> Bundle:
    calibration = drawn(0, 0.1, n=64)
    towers = iter((trunk(), mirrored()))
    return make_bundle("mirrored", FITTED, lambda: next(towers), calibration)


def items_of(module: torch.nn.Module, rows: Array) -> Items:
    """The means and variances that the trained tower itself gives the rows."""
    with torch.no_grad():
        mean, log_variance = module.double()(torch.from_numpy(rows).double())
    return Items(mean.numpy(), np.exp(log_variance.numpy()))


BETTER = (
    "The compiled model is better than Monte Carlo with K=10, not shown to differ from its float "
    "score, better than raw rows in int8."
)
SAMPLED_BETTER = (
    "The compiled model is not shown to differ from raw rows in int8, WORSE than Monte Carlo with "
    "K=10, not shown to differ from its float score."
)
RAW_BETTER = (
    "The compiled model is WORSE than raw rows in int8, WORSE than Monte Carlo with K=10, not "
    "shown to differ from its float score."
)


@pytest.mark.thorough("three reports", quick=("near pairs",))
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (drawn(7, 0.1), BETTER),
        (drawn(7, 3.0), SAMPLED_BETTER),
        (drawn(7, 1.5, mirror=False), RAW_BETTER),
    ],
    ids=["near pairs", "far pairs", "rows in another order"],
)
def test_the_first_line_is_that_of_plain_numpy(
    mirrored_bundle: Bundle, data: dict[str, Any], expected: str
) -> None:
    report = verify_bundle(mirrored_bundle, embeddings_of(data, "held-out"))
    text, video = data["text"], data["video"]
    compiled = Simulator(mirrored_bundle.program)
    scores = {
        "float": Session(mirrored_bundle.folder / "float.onnx").score_rows(text, video),
        "compiled": compiled.score(compiled.encode("text", text), compiled.encode("video", video)),
    }
    found = verdict_by_hand.verdict(
        (text.astype(float), video.astype(float)),
        (items_of(trunk(), text), items_of(mirrored(), video)),
        (A, B),
        scores,
    )
    assert found == expected
    assert report.drift.worth.sentence == found
    title, rest = terminal(report.document(), 100).split("\n", 1)
    assert title.startswith(mirrored_bundle.folder.name)
    assert " ".join(rest.split()).startswith(found)


def test_the_exact_logits_by_hand_are_the_exact_ones() -> None:
    """A density is summed here; the package takes a contour integral."""
    rng = np.random.default_rng(0)
    text, video = (Items(rng.normal(size=(n, 9)), rng.gamma(2.0, 0.4, size=(n, 9))) for n in (3, 4))
    log_p, log_1mp = log_match_probability(
        text.mean[:, None], text.variance[:, None], video.mean, video.variance, 0.7, 2.0
    )
    found = verdict_by_hand.exact_logits(text, video, 0.7, 2.0)
    np.testing.assert_allclose(found, log_p - log_1mp, atol=1e-3)
    drawn = verdict_by_hand.sampled_logits(text, video, 0.05, 2.0, 300, rng)
    found = verdict_by_hand.exact_logits(text, video, 0.05, 2.0)
    np.testing.assert_allclose(drawn, found, atol=0.15)
