from __future__ import annotations

import numpy as np
import pytest

from cimtool.base.arrays import FloatArray
from cimtool.reference.metrics import ReferenceScores
from cimtool.reference.pair_draw import OF_QUERY, PairDraw, draw_pairs
from cimtool.reference.pairs import probabilities
from cimtool.reference.queries import Queries, compared, compared_on
from cimtool.reference.truth import Truth, truth_among_others

TEXTS, VIDEOS = 130, 110
MOST = OF_QUERY * (TEXTS + VIDEOS)
TRUTH = Truth(np.arange(TEXTS) % VIDEOS, VIDEOS)


def scores(seed: int = 0) -> FloatArray:
    """Scores whose right pairs are higher."""
    rng = np.random.default_rng(seed)
    found: FloatArray = rng.normal(size=(TEXTS, VIDEOS)) + 2.0 * TRUTH.right_pairs()
    return found


def errors() -> FloatArray:
    """Errors with a part for each text and video, larger for the nearest pairs."""
    rng = np.random.default_rng(1)
    parts = rng.normal(size=(TEXTS, 1)) + rng.normal(size=(1, VIDEOS))
    found: FloatArray = parts + rng.normal(size=(TEXTS, VIDEOS)) * (1 + 0.3 * scores())
    return found


def drawn(seed: int) -> PairDraw:
    found = draw_pairs(scores(), TRUTH, seed, most=1)
    assert found is not None
    return found


def test_few_pairs_are_all_measured() -> None:
    assert draw_pairs(scores(), TRUTH, 0) is None
    assert draw_pairs(scores()[:, :1], Truth(np.zeros(TEXTS, np.int64), 1), 0, most=1) is None


def test_right_and_nearest_pairs_are_sure_and_the_others_even() -> None:
    found = drawn(0)
    assert 0.9 * MOST < len(found) <= MOST
    sure = np.zeros(found.shape, bool)
    sure[found.texts[found.sure], found.videos[found.sure]] = True
    assert sure[TRUTH.right_pairs()].all()
    wrong = np.where(TRUTH.right_pairs(), -np.inf, scores())
    for mask, values in ((sure, wrong), (sure.T, wrong.T)):
        best = np.argsort(values, axis=1)[:, -10:]
        assert np.take_along_axis(mask, best, axis=1).all()
    for side in (found.of_texts, found.of_videos):
        chance = np.bincount(side.queries[~side.sure], minlength=side.count)
        assert chance.min() >= 2
        np.testing.assert_allclose(
            np.bincount(side.queries, side.stands_for, side.count), side.items
        )


def test_the_sample_follows_from_the_seed() -> None:
    one, same, other = drawn(3), drawn(3), drawn(4)
    np.testing.assert_array_equal(one.videos, same.videos)
    assert len(one) != len(other) or (one.videos != other.videos).any()


def test_of_many_right_pairs_some_are_drawn() -> None:
    """Items of two classes: every second pair is right."""
    truth = truth_among_others(200, np.arange(200) % 2)
    found = draw_pairs(np.random.default_rng(0).normal(size=(200, 200)), truth, 0, most=1)
    assert found is not None
    assert len(found) <= OF_QUERY * 400
    itself = found.texts == found.videos
    assert not found.sure[itself].any()


def test_all_pairs_give_the_figures_of_all_pairs() -> None:
    texts, videos = np.divmod(np.arange(TEXTS * VIDEOS), VIDEOS)
    whole = PairDraw(texts, videos, np.ones(len(texts), bool), (TEXTS, VIDEOS))
    reference, own = ReferenceScores(scores()), scores() + errors()
    wanted = compared(own, reference).merged(probabilities(own, TRUTH))
    found = compared_on(whole, own, reference).merged(probabilities(own, TRUTH, whole))
    for got, sides in ((found.text, wanted.text), (found.video, wanted.video)):
        assert got.keys() == sides.keys() - {"largest", "spearman"}
        for name, values in got.items():
            if name == "reliability":  # its bins end elsewhere
                np.testing.assert_allclose(values.sum(axis=1), sides[name].sum(axis=1))
            else:
                np.testing.assert_allclose(values, sides[name], atol=1e-12)


@pytest.mark.parametrize("name", ["logit_squares", "bias", "centred_squares", "nll", "brier"])
def test_a_sample_is_unbiased(name: str) -> None:
    """The mean over 60 seeds is within 4 of its standard errors, and these are small."""
    reference, own = ReferenceScores(scores()), scores() + errors()
    every = compared(own, reference).merged(probabilities(own, TRUTH))

    def of_sample(seed: int) -> Queries:
        pairs = drawn(seed)
        return compared_on(pairs, own, reference).merged(probabilities(own, TRUTH, pairs))

    samples = [of_sample(seed) for seed in range(60)]
    for side in ("text", "video"):
        wanted = getattr(every, side).get(name)
        if wanted is None:
            continue
        means = np.array([np.nanmean(getattr(one, side)[name]) for one in samples])
        error = means.std(ddof=1) / np.sqrt(len(means))
        assert abs(means.mean() - np.nanmean(wanted)) < 4 * error
        assert means.std() < 0.05 * max(abs(np.nanmean(wanted)), 1.0)
