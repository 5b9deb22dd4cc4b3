from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import spearmanr
from sklearn.metrics import average_precision_score

from cimtool.base.errors import CimError
from cimtool.reference import metrics
from cimtool.reference.measures import cosine_gaps
from cimtool.reference.metrics import (
    ReferenceScores,
    average_precision,
    best_ranks,
    centred_rmse,
    centred_squares,
    hit_positions,
    int8_products,
    mean_average_precision,
    on_grid,
    ranks,
    spreads,
    top1_agreement,
)


@st.composite
def tied_scores(draw):
    """Scores with many ties, float32 or float64, and the right video of each text."""
    n, m = draw(st.integers(1, 7)), draw(st.integers(1, 6))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    scores = draw(arrays(dtype, (n, m), elements=st.integers(-2, 2)))
    return scores, draw(arrays(np.int64, n, elements=st.integers(0, m - 1)))


def worst_ranking(scores, is_right):
    """The items from best to worst, wrong ones first among equals."""
    return sorted(range(len(scores)), key=lambda i: (-scores[i], is_right[i]))


@given(tied_scores())
def test_ranks_by_brute_force(case):
    scores, right = case
    expected = [
        1 + worst_ranking(row, [j == r for j in range(len(row))]).index(r)
        for row, r in zip(scores, right, strict=True)
    ]
    assert ranks(scores, right).tolist() == expected


@given(tied_scores())
def test_best_ranks_by_brute_force(case):
    scores, right = case
    expected = np.full(scores.shape[1], np.nan)
    for video in range(scores.shape[1]):
        is_right = right == video
        if is_right.any():
            order = worst_ranking(scores[:, video], is_right)
            expected[video] = 1 + next(i for i, text in enumerate(order) if is_right[text])
    np.testing.assert_array_equal(best_ranks(scores, right), expected)


@given(tied_scores())
def test_one_text_a_video_is_the_transpose(case):
    scores, _ = case
    k = min(scores.shape)
    square, right = scores[:k, :k], np.arange(k)[::-1]
    assert best_ranks(square, right).tolist() == ranks(square.T, np.argsort(right)).tolist()


def test_constant_scores_rank_the_right_item_last():
    scores = np.zeros((6, 6))
    assert ranks(scores, np.arange(6)).tolist() == [6] * 6
    assert best_ranks(scores, np.arange(6)).tolist() == [6] * 6
    assert best_ranks(scores, np.array([0, 0, 0, 1, 1, 1]))[:2].tolist() == [4, 4]


def test_a_score_that_is_nan_counts_against():
    scores = np.array([[1.0, np.nan, 0.0], [np.nan, 5.0, 6.0]])
    assert ranks(scores, np.array([0, 0])).tolist() == [2, 3]
    assert best_ranks(scores, np.array([0, 1]))[:2].tolist() == [2, 2]


@given(case=tied_scores(), seed=st.integers(0, 99), top=st.sampled_from([None, 1, 2, 50]))
def test_mean_average_precision_by_brute_force(case, seed, top):
    scores, _ = case
    rng = np.random.default_rng(seed)
    queries, gallery = (rng.integers(0, 3, n) for n in scores.shape)
    expected = []
    for row, label in zip(scores, queries, strict=True):
        relevant = (gallery == label).tolist()
        if not any(relevant):
            continue
        order = worst_ranking(row, relevant)[:top]
        hits = [i for i, item in enumerate(order, start=1) if relevant[item]]
        precisions = [(k + 1) / i for k, i in enumerate(hits)]
        expected.append(sum(precisions) / min(sum(relevant), top or len(row)))
    if not expected:
        with pytest.raises(CimError, match="no label of the queries"):
            mean_average_precision(scores, queries, gallery, top)
        return
    found = mean_average_precision(scores, queries, gallery, top)
    assert found == pytest.approx(np.mean(expected), abs=1e-12)


def test_cosine_gap_by_brute_force():
    rng = np.random.default_rng(0)
    text, video, right = rng.normal(size=(5, 7)), rng.normal(size=(3, 7)), np.array([2, 0, 0, 1, 2])
    cosine = text @ video.T / np.outer(np.linalg.norm(text, axis=1), np.linalg.norm(video, axis=1))
    is_right = right[:, None] == np.arange(3)
    expected = cosine[is_right].mean() - cosine[~is_right].mean()
    found = cosine_gaps(text.astype(np.float32), video, right)
    assert found.mean() == pytest.approx(expected, abs=1e-6)
    assert found[0] == pytest.approx(cosine[0, 2] - (cosine[0, 0] + cosine[0, 1]) / 2, abs=1e-6)
    assert cosine_gaps(np.zeros((5, 7)), video, right).tolist() == [0] * 5
    with pytest.raises(CimError, match="wrong pairs"):
        cosine_gaps(text, video[:1], np.zeros(5, np.int64))


@given(tied_scores(), st.integers(0, 99))
def test_top1_agreement_by_brute_force(case, seed):
    scores, _ = case
    reference = np.random.default_rng(seed).integers(-2, 3, scores.shape).astype(float)

    def agree(a, b):
        best = [{i for i, x in enumerate(row) if x == max(row)} for row in a.tolist()]
        other = [{i for i, x in enumerate(row) if x == max(row)} for row in b.tolist()]
        return np.mean([x == y for x, y in zip(best, other, strict=True)])

    expected = min(agree(scores, reference), agree(scores.T, reference.T))
    assert top1_agreement(scores, reference) == expected


def test_a_tie_at_the_top_is_disagreement_unless_the_reference_has_it():
    sharp, tied = np.array([[3.0, 1.0, 0.0]]), np.array([[3.0, 3.0, 0.0]])
    assert ReferenceScores(sharp).same_best(tied)[0] == 0
    assert ReferenceScores(tied).same_best(sharp)[0] == 0
    assert ReferenceScores(tied).same_best(tied * 2)[0] == 1


@given(tied_scores(), st.integers(0, 99))
@pytest.mark.filterwarnings("ignore::scipy.stats.ConstantInputWarning")
def test_spearman_as_scipy_has_it(case, seed):
    scores, _ = case
    reference = np.random.default_rng(seed).integers(-2, 3, scores.shape).astype(float)
    expected = [
        spearmanr(x, y).statistic if len(x) > 1 else 0.0
        for x, y in zip(scores, reference, strict=True)
    ]
    found = ReferenceScores(reference).spearman(scores.astype(float))
    assert found == pytest.approx(np.nan_to_num(expected), abs=1e-12)


@given(arrays(np.int64, (2, 3), elements=st.integers(-(2**23), 2**23)), st.integers(-40, 10))
def test_the_grid_keeps_integers_of_24_bits_times_a_power_of_two(codes, exponent):
    scores = np.ldexp(codes.astype(np.float64), exponent)
    assert np.array_equal(on_grid(scores), scores)


def test_on_the_grid_a_last_bit_is_no_difference():
    scores = np.array([[1.0, np.nextafter(1.0, 2)], [-3.0, 0.5]])
    found = on_grid(scores)
    assert found[0, 0] == found[0, 1]
    assert np.abs(found - scores).max() <= 2.0**-30 * 4 / 2
    assert scores[0, 0] != scores[0, 1], "what was given stays"


def test_the_blocks_of_ranks_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    scores, reference = rng.integers(0, 5, (2, 7, 9)).astype(float)
    whole = ReferenceScores(reference).spearman(scores)
    monkeypatch.setattr(metrics, "RANKED", 20)
    np.testing.assert_array_equal(ReferenceScores(reference).spearman(scores), whole)


def test_equal_scores_have_no_spread_whatever_rounds():
    scores = np.array([[0.1] * 7, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
    assert scores[0].std() > 0, "what rounding leaves"
    assert spreads(scores)[0].tolist() == [0.0, 2.0]
    assert spreads(scores.T)[1].tolist() == [0.0, 2.0]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("offset", [0.0, 51.0, 1e6])
def test_the_error_within_queries_as_rational_numbers_have_it(seed: int, offset: float) -> None:
    """By exact arithmetic, query by query, under an offset that dwarfs it."""
    rng = np.random.default_rng(seed)
    texts, videos = rng.integers(2, 9, 2)
    reference = rng.normal(size=(texts, videos))
    scores = reference + offset + 0.1 * rng.normal(size=(texts, videos))
    exact = [
        [Fraction(float(x)) - Fraction(float(y)) for x, y in zip(*rows, strict=True)]
        for rows in zip(scores, reference, strict=True)
    ]

    def squares(queries: list[list[Fraction]]) -> list[float]:
        means = [sum(one, Fraction()) / len(one) for one in queries]
        pairs = zip(queries, means, strict=True)
        return [float(sum((x - mean) ** 2 for x in one) / len(one)) for one, mean in pairs]

    of_texts, of_videos = squares(exact), squares([list(one) for one in zip(*exact, strict=True)])
    found = centred_squares(scores, reference)
    np.testing.assert_allclose(found[0], of_texts, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found[1], of_videos, rtol=1e-6, atol=1e-9)
    worse = math.sqrt(max(float(np.mean(one)) for one in (of_texts, of_videos)))
    assert centred_rmse(scores, reference) == pytest.approx(worse, rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_without_ties_it_is_that_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, relevant = rng.normal(size=60), rng.random(60) < 0.2
    found = average_precision(hit_positions(scores, relevant))
    assert found == pytest.approx(average_precision_score(relevant, scores), abs=1e-12)


def test_the_best_few_are_divided_by_what_fits_into_them() -> None:
    positions = np.array([1, 3, 60, 70])
    assert average_precision(positions, 50) == pytest.approx((1 + 2 / 3) / 4)
    assert average_precision(positions, 2) == pytest.approx(1 / 2)
    assert average_precision(np.array([3]), 2) == 0


def test_ties_and_nan_count_against_the_right_items() -> None:
    scores = np.array([1.0, 2, 2, 2, np.nan, 0])
    relevant = np.array([True, False, True, True, False, False])
    # NaN first, then the wrong one of three ties, both right ones, and the one below.
    assert hit_positions(scores, relevant).tolist() == [3, 4, 5]
    # A right item whose score is NaN is the last.
    scores, relevant = np.array([5.0, np.nan, 3, 6]), np.array([False, True, True, False])
    assert hit_positions(scores, relevant).tolist() == [3, 4]


def test_nothing_right_has_no_precision() -> None:
    assert math.isnan(average_precision(hit_positions(np.ones(3), np.zeros(3, bool))))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_int8_products_are_exact_integers_of_unit_rows(dtype: type[np.floating]) -> None:
    rng = np.random.default_rng(0)
    text, video = (rng.normal(size=(n, 9)).astype(dtype) for n in (5, 4))
    sides = []
    for rows in (text.astype(float), video.astype(float)):
        unit = [row / math.sqrt(sum(x * x for x in row)) for row in rows]
        largest = max(abs(x) for row in unit for x in row)
        sides.append([[round(127 * x / largest) for x in row] for row in unit])
    assert max(abs(x) for row in sides[0] for x in row) == 127
    expected = [
        [sum(x * y for x, y in zip(one, other, strict=True)) for other in sides[1]]
        for one in sides[0]
    ]
    assert int8_products(text, video).tolist() == expected


def test_a_modality_has_one_scale_in_int8() -> None:
    """Its largest number is 127, in whichever row; the length of a row does not count."""
    text = np.array([[10.0, 0.0], [3.0, 4.0]])
    found = int8_products(text, np.array([[2.0, 0.0], [0.0, 2.0]]))
    assert found.tolist() == [[127 * 127, 0], [76 * 127, 102 * 127]]
    apart = int8_products(text, np.array([[3.0, 3.0]]))
    assert apart.tolist() == [[127 * 127], [76 * 127 + 102 * 127]], "another modality, its own"
    assert int8_products(1000 * text, np.array([[1.0, 1.0]])).tolist() == apart.tolist()


def test_zeros_in_int8_are_zeros() -> None:
    rows = np.array([[0.0, 0.0], [1.0, 0.0]])
    assert int8_products(rows, rows).tolist() == [[0, 0], [0, 127 * 127]]
    assert int8_products(np.zeros((2, 2)), rows).tolist() == [[0, 0], [0, 0]]
    assert int8_products(np.zeros((0, 2)), rows).shape == (0, 2)


def test_rows_in_int8_have_one_scale_a_modality() -> None:
    text, video = np.array([[2.0, 0.0], [3.0, 4.0]]), np.array([[0.0, 5.0]])
    assert np.array_equal(int8_products(text, video), [[0.0], [102 * 127]])
