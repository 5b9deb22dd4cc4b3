"""Measurements of pairs, against readable loops over queries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.base.arrays import FloatArray
from cimtool.reference import pairs
from cimtool.reference.bootstrap import QueryCounts
from cimtool.reference.measures import calibration_error
from cimtool.reference.pairs import BINS, bin_ends, probabilities, sureness
from cimtool.reference.retrieval import measured, retrieved
from cimtool.reference.selective import COVERAGE, answer_area, risk_area, selective_recall
from cimtool.reference.truth import Judgements, Truth, truth_among_others, truth_judged


def drawn(seed: int, n: int, m: int) -> FloatArray:
    """Scores with some ties."""
    return np.round(np.random.default_rng(seed).normal(size=(n, m)) * 3) / 2


def judged(n: int, m: int) -> Truth:
    """Judgements with queries of none, one and several right items."""
    given = [(i, j) for i in range(n) for j in range(m) if (3 * i + 5 * j) % 7 == 0 and i % 4]
    text, video = np.array(given).T
    return truth_judged(Judgements(text, video, np.ones(len(text), int)), n, m)


TRUTHS = {
    "pairs": Truth(np.array([0, 0, 2, 3, 1, 4]), 7),
    "judged": judged(6, 7),
    "among others": truth_among_others(6, np.array([0, 0, 1, 1, 1, 2])),
}


def right_of(truth: Truth, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Masks of right pairs and of candidates, [n, m]."""
    return truth.right_pairs(), ~truth.itself(slice(0, n))


@pytest.mark.parametrize("name", TRUTHS)
@pytest.mark.parametrize("most", [1, 1 << 20])
def test_sureness_is_the_best_score_and_that_of_the_best_wrong_item(
    name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "PAIRS", most)
    truth = TRUTHS[name]
    scores = drawn(1, 6, truth.videos)
    right, shown = right_of(truth, 6)
    found = sureness(scores, truth)
    for axis, side in enumerate((found.text, found.video)):
        for i, (best, wrong) in enumerate(side["sureness"]):
            row, own, mine = (np.take(x, i, axis) for x in (scores, right, shown))
            if not own.any():
                assert math.isnan(best)
                if name == "judged":  # what has no right item is known
                    assert wrong == row.max()
                else:
                    assert math.isnan(wrong)
                continue
            assert best == row[mine].max()
            assert wrong == row[mine & ~own].max(initial=-np.inf)


@pytest.mark.parametrize("name", TRUTHS)
def test_r1_is_where_the_best_score_is_no_wrong_items(name: str) -> None:
    truth = TRUTHS[name]
    found = retrieved(drawn(2, 6, truth.videos), truth)
    for side in (found.text, found.video):
        best, wrong = side["sureness"].T
        assert np.array_equal(np.isnan(best), np.isnan(side["rank"]))
        assert np.array_equal((best > wrong), side["rank"] == 1)


@pytest.mark.parametrize("name", TRUTHS)
@pytest.mark.parametrize("most", [1, 1 << 20])
def test_losses_of_probabilities_weigh_right_and_wrong_pairs_alike(
    name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "PAIRS", most)
    truth = TRUTHS[name]
    logits = drawn(3, 6, truth.videos)
    right, shown = right_of(truth, 6)
    found = probabilities(logits, truth).text
    for i in range(6):
        wrong = shown[i] & ~right[i]
        if not (right[i].any() and wrong.any()):
            assert math.isnan(found["nll"][i])
            assert np.isnan(found["reliability"][i]).all()
            continue
        p = 1 / (1 + np.exp(-logits[i]))
        nll = -np.log(p[right[i]]).mean() / 2 - np.log(1 - p[wrong]).mean() / 2
        brier = ((1 - p[right[i]]) ** 2).mean() / 2 + (p[wrong] ** 2).mean() / 2
        assert found["nll"][i] == pytest.approx(nll, rel=1e-12)
        assert found["brier"][i] == pytest.approx(brier, rel=1e-12)
        weight, predicted, observed = found["reliability"][i].sum(axis=0)
        assert weight == pytest.approx(1)
        assert observed == pytest.approx(0.5)
        assert predicted == pytest.approx(p[right[i]].mean() / 2 + p[wrong].mean() / 2)


def test_losses_are_finite_for_logits_far_out() -> None:
    logits = np.array([[-4000.0, 4000.0], [0.0, 1.0]])
    found = probabilities(logits, Truth(np.array([0, 1]), 2)).text
    assert found["nll"][0] == 4000
    assert found["brier"][0] == 1


def test_bins_have_the_same_weight_where_scores_differ() -> None:
    rng = np.random.default_rng(5)
    truth = Truth(np.arange(300), 300)
    logits = rng.normal(size=(300, 300)) + 3 * np.eye(300)
    assert len(bin_ends(logits, truth)) == BINS - 1
    weight = probabilities(logits, truth).text["reliability"][:, :, 0].mean(axis=0)
    assert weight == pytest.approx(np.full(BINS, 1 / BINS), rel=0.06)


def test_only_logits_are_measured_as_probabilities() -> None:
    truth, scores = TRUTHS["pairs"], drawn(7, 6, 7)
    assert "nll" not in measured(scores, truth, of_logit=False).text
    assert {"nll", "brier", "reliability"} <= measured(scores, truth, of_logit=True).text.keys()


def calibrated(seed: int, texts: int) -> tuple[FloatArray, Truth]:
    """Logits [texts, 2] whose right item is drawn with their probability, at prior 1/2."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(size=texts) * 2
    right = (rng.random(texts) >= 1 / (1 + np.exp(-logit))).astype(int)
    # Of two items, the first is right with probability p, the second with 1 - p.
    return np.stack([logit, -logit], axis=1), truth_judged(
        Judgements(np.arange(texts), right, np.ones(texts, int)), texts, 2
    )


def error_of(logits: FloatArray, truth: Truth) -> float:
    """The calibration error of the data as they are."""
    bins = probabilities(logits, truth).text["reliability"]
    return float(calibration_error(QueryCounts.once(len(bins)), bins)[0])


def test_calibration_error_of_true_probabilities_is_chance_alone() -> None:
    errors = [error_of(*calibrated(seed, 2000)) ** 2 for seed in range(40)]
    raw = []
    for seed in range(40):
        logits, truth = calibrated(seed, 2000)
        bins = probabilities(logits, truth).text["reliability"].mean(axis=0)
        raw.append((((bins[:, 1] - bins[:, 2]) ** 2) / bins[:, 0]).sum())
    assert np.mean(errors) < np.mean(raw) / 3


def test_calibration_error_of_logits_twice_too_large_is_found() -> None:
    logits, truth = calibrated(0, 4000)
    p, q = (1 / (1 + np.exp(-k * logits[:, 0])) for k in (1, 2))
    expected = math.sqrt(((p - q) ** 2).mean())
    assert error_of(2 * logits, truth) == pytest.approx(expected, rel=0.15)


def test_calibration_error_of_resamples_has_its_value_in_the_middle() -> None:
    logits, truth = calibrated(1, 2000)
    bins = probabilities(1.5 * logits, truth).text["reliability"]
    rng = np.random.default_rng(0)
    draws = rng.multinomial(len(bins), np.full(len(bins), 1 / len(bins)), 400).astype(float)
    of_draws = calibration_error(QueryCounts(draws), bins)
    whole = calibration_error(QueryCounts.once(len(bins)), bins)[0]
    assert of_draws.mean() == pytest.approx(whole, rel=0.05)
    assert np.isnan(calibration_error(QueryCounts.once(2), np.full((2, BINS, 3), np.nan))).all()


def test_calibration_error_of_few_texts_is_no_smaller() -> None:
    """Off by much, of 40 texts: what chance adds is little, and no more is taken off."""
    errors, of_draws = [], []
    counts = np.random.default_rng(0).multinomial(40, np.full(40, 1 / 40), 100)
    for seed in range(30):
        z = np.random.default_rng(seed).normal(size=(40, 40)) + 2 * np.eye(40)
        logits = 2 * z - 6  # 2 z - 2 are true: right pairs lie 2 above, with half the weight
        bins = probabilities(logits, Truth(np.arange(40), 40)).text["reliability"]
        errors.append(calibration_error(QueryCounts.once(40), bins)[0])
        of_draws.append(calibration_error(QueryCounts(counts.astype(float)), bins).mean())
    normal = np.random.default_rng(1).normal(size=100_000)
    logits = 2 * np.concatenate([normal, normal + 2]) - 2
    p, q = (1 / (1 + np.exp(-x)) for x in (logits, logits - 4))
    expected = math.sqrt(((p - q) ** 2).mean())
    assert np.mean(errors) == pytest.approx(expected, rel=0.03)
    assert np.mean(of_draws) == pytest.approx(expected, rel=0.03)


def test_calibration_error_of_one_gap_is_that_gap() -> None:
    """Texts whose pairs are off by the same have no spread, whatever their weights in a bin."""
    weight = np.random.default_rng(0).dirichlet(np.ones(BINS), 6)
    bins = np.stack([weight, 0.7 * weight, 0.4 * weight], axis=2)
    counts = np.array([[1, 1, 1, 1, 1, 1], [6, 0, 0, 0, 0, 0], [0, 3, 2, 1, 0, 0]], float)
    assert calibration_error(QueryCounts(counts), bins) == pytest.approx([0.3] * 3)


SURE = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(0, 3)), min_size=1, max_size=12
)


@given(SURE, SURE)
def test_queries_without_an_answer_are_what_others_are_compared_with(
    asked: list[tuple[int, int, int]], unanswered: list[tuple[int, int, int]]
) -> None:
    """A query drawn k times counts as k queries; what a wrong item scores does not count."""
    with_ = [(float(best), float(wrong), count) for best, wrong, count in asked]
    without = [(math.nan, float(best), count) for best, _, count in unanswered]
    every = np.array([*with_, *without])
    sure, draws = every[:, :2], QueryCounts(every[None, :, 2])
    best = np.repeat(sure[: len(with_), 0], every[: len(with_), 2].astype(int))
    other = np.repeat(sure[len(with_) :, 1], every[len(with_) :, 2].astype(int))
    area = answer_area(draws, sure)[0]
    if not (len(best) and len(other)):
        assert np.isnan(area)
        return
    won = (best[:, None] > other) + (best[:, None] == other) / 2
    assert area == pytest.approx(won.mean())
    # What answers queries is measured without them.
    for metric in (risk_area, selective_recall):
        alone = metric(QueryCounts(every[None, : len(with_), 2]), sure[: len(with_)])
        assert np.array_equal(metric(draws, sure), alone, equal_nan=True)


@given(SURE)
def test_selective_metrics_are_those_of_the_repeated_queries(
    asked: list[tuple[int, int, int]],
) -> None:
    """A query drawn k times counts as k queries; ties and NaN too."""
    sure = np.array([(max(best, wrong), wrong) for best, wrong, _ in asked], float)
    sure[0] = np.nan
    counts = np.array([[float(k) for *_, k in asked]])
    repeated = np.repeat(sure, counts[0].astype(int), axis=0)
    repeated = repeated[~np.isnan(repeated[:, 0])]
    draws = QueryCounts(counts)
    if not len(repeated):
        for metric in (risk_area, selective_recall, answer_area):
            assert np.isnan(metric(draws, sure)).all()
        return
    best, wrong = repeated.T
    won = (best[:, None] > wrong) + (best[:, None] == wrong) / 2
    ids = np.repeat(np.arange(len(sure)), counts[0].astype(int))[-len(repeated) :]
    others = ids[:, None] != ids
    area = answer_area(draws, sure)[0]
    assert np.isnan(area) if not others.any() else area == pytest.approx(won[others].mean())
    order = sorted(range(len(best)), key=lambda i: (-best[i], best[i] > wrong[i]))
    missed = np.array([best[i] <= wrong[i] for i in order], float)
    most = round(COVERAGE * len(best))
    if most:
        assert selective_recall(draws, sure)[0] == pytest.approx(1 - missed[:most].mean())
    once = QueryCounts.once(len(best))
    risks = missed.cumsum() / np.arange(1, len(best) + 1)
    assert risk_area(once, repeated)[0] == pytest.approx(risks.mean())
