"""Split conformal bounds: order statistics of held-out errors that a new error stays within.

Errors of n units and of a new one that are exchangeable: the new one is at most the k-th smallest
of the n, k = ceil((n + 1) c), with a probability of c or more, whatever their distribution (Vovk,
Gammerman, Shafer 2005; Lei et al. 2018, theorem 2.2). Pairs of a matrix share rows and are not
exchangeable units. `independent_pairs` draws pairs of which each row is used once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.reference.truth import Truth

RANKS = 10
"""Ranks of each text that the margin between neighbours is for."""


def order_of(units: int, confidence: float) -> int:
    """The rank k = ceil((n + 1) c) of the order statistic that is the bound, in exact arithmetic.

    Above `units` there are too few.
    """
    return math.ceil((units + 1) * Fraction(str(confidence)))


def fewest_units(confidence: float) -> int:
    """The smallest number of units with a bound at this confidence: ceil(c / (1 - c))."""
    share = Fraction(str(confidence))
    return math.ceil(share / (1 - share))


@dataclass(frozen=True)
class ConformalBound:
    """The `order`-th smallest of the errors of `units`, which a new one stays within.

    It does so with the confidence that was asked for, on average over draws of the held-out units.
    With these units the share is their own: with 95% certainty it is `least_coverage` or more.
    """

    units: int
    order: int
    bound: float
    least_coverage: float


def conformal_bound(errors: FloatArray, confidence: float) -> ConformalBound:
    """The bound of errors [n]; ValueError if n is below `fewest_units`.

    The coverage given the held-out units is at least a Beta(k, n + 1 - k) (Vovk 2012).
    """
    from scipy.special import betaincinv  # slow to load, and every command imports this

    units, order = len(errors), order_of(len(errors), confidence)
    if order > units:
        raise ValueError(f"{units} units, of {fewest_units(confidence)} at least")
    bound = float(np.partition(errors, order - 1)[order - 1])
    return ConformalBound(units, order, bound, float(betaincinv(order, units + 1 - order, 0.05)))


@dataclass(frozen=True, eq=False)
class IndependentPairs:
    """Rows of texts and videos [p, 2] of right pairs and of random ones; in each no row repeats.

    Two random pairs have nothing in common: the right video of neither's text is in any of them.
    `texts` [u] are texts of which no two have the same right video.
    """

    right: IntArray
    random: IntArray

    @property
    def texts(self) -> IntArray:
        """Texts [u] of which no two have the same right video."""
        return self.right[:, 0]


def independent_pairs(truth: Truth, seed: int) -> IndependentPairs:
    """Draw right pairs and random pairs.

    A unit is a video and one of the texts that it is right for. One half of the units gives the
    texts of the random pairs, the other half their videos: some may be right by a class.
    """
    order = np.random.default_rng(seed).permutation(len(truth.text_to_video))
    own = truth.text_to_video[order]
    known = own < truth.videos  # judgements may leave a text without any
    order, own = order[known], own[known]
    kept = np.sort(np.unique(own, return_index=True)[1])
    units = np.stack([order[kept], own[kept]], axis=1)
    half = len(units) // 2
    return IndependentPairs(units, np.stack([units[:half, 0], units[half : 2 * half, 1]], axis=1))


def rank_margins(compiled: FloatArray, reference: FloatArray, top: int = RANKS) -> FloatArray:
    """The margin [n] of each text that rules out all its wrong ranks, from scores [n, m].

    Rank r is right if the r best items by `compiled` are above all others by `reference` too. The
    margin is the largest difference of the compiled scores at ranks r and r + 1 that is wrong,
    0 if none of the `top` ranks is.
    """
    found = np.zeros(len(compiled))
    for row, (scores, true) in enumerate(zip(compiled, reference, strict=True)):
        order = np.argsort(-scores, kind="stable")
        leads = scores[order[:-1]] - scores[order[1:]]
        best = np.minimum.accumulate(true[order])[:-1]
        rest = np.maximum.accumulate(true[order][::-1])[::-1][1:]
        wrong = (best <= rest)[:top]
        found[row] = leads[:top][wrong].max(initial=0.0)
    return found


def certain_ranks(top_score: Array, margin: float) -> BoolArray:
    """Truths [n, k - 1] from the scores of each text's k best items, best first.

    At r - 1: the score at rank r leads the next by more than the margin, and r is at most RANKS.
    """
    leads = top_score[:, :-1].astype(np.float64) - top_score[:, 1:]
    found: BoolArray = leads > margin
    found[:, RANKS:] = False
    return found
