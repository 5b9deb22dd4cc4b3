"""Inputs of a requantiser that is a little wrong: those at which it shows, and what they tell."""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import BoolArray, IntArray
from cimtool.handoff.layers import DrivenLayer, Requantisation

THRESHOLDS = 1 << 16
"""Rounding thresholds of a channel that are searched, at most, from either end of its results."""

BLOCK = 1 << 22
"""Numbers that are searched at a time."""

DIRECTED = 8
"""Numbers of a channel."""


def requantiser_inputs(after: Requantisation, least: IntArray, most: IntArray) -> IntArray:
    """Inputs [DIRECTED, N] of a requantisation, of channels that get `least` to `most` [N].

    Of each sign a number next above and one next below a rounding threshold, where the least
    change of the multiplier, in proportion, moves the product across. Then a tie of either sign,
    where there is one, and both ends.
    """
    highest, lowest = after.rounded(most), after.rounded(least)
    count = int(min((highest - lowest).max() + 1, THRESHOLDS))
    width = max(BLOCK // count, 1)
    blocks = [slice(first, first + width) for first in range(0, len(least), width)]
    return np.concatenate(
        [_block(after.among(one), least[one], most[one], count) for one in blocks], axis=1
    )


def _block(after: Requantisation, least: IntArray, most: IntArray, count: int) -> IntArray:
    """The inputs of some channels, of so many thresholds."""
    highest, lowest = after.rounded(most), after.rounded(least)
    steps = np.arange(count)[:, None]
    # The threshold below the lowest result is not seen: it lies outside, or is clipped.
    windows = np.maximum(highest - steps, lowest + 1), np.minimum(lowest + 1 + steps, highest)
    chosen = []
    for sign, results in zip((1, -1), windows, strict=True):
        above = _first_of(after, results)
        for x, rest in ((above, _rest), (above - 1, _missing)):
            inside = (x >= least) & (x <= most) & (x * sign > 0)
            moved = np.where(inside, rest(after, x) / np.maximum(np.abs(x), 1), np.inf)
            index = moved.argmin(axis=0)[None]
            found, any_inside = (np.take_along_axis(one, index, axis=0)[0] for one in (x, inside))
            chosen.append(np.where(any_inside, found, most))
    unclipped = _first_of(after, lowest), _first_of(after, highest)
    ends = (np.clip(one, least, most) for one in unclipped)
    first, last = ends
    ties = (_tie(after, sign, first, last) for sign in (1, -1))
    return np.stack([*chosen, *ties, least, most])


def _first_of(after: Requantisation, results: IntArray) -> IntArray:
    """The smallest number whose product, rounded, reaches a result."""
    edge = (results << after.shift) - (np.int64(1) << after.shift - 1)
    first: IntArray = -(-edge // after.multiplier)
    return first


def _whole(after: Requantisation, x: IntArray) -> IntArray:
    whole: IntArray = x * after.multiplier + (np.int64(1) << after.shift - 1) >> after.shift
    return whole


def _rest(after: Requantisation, x: IntArray) -> IntArray:
    """The distance of each product from the threshold below it."""
    half = np.int64(1) << after.shift - 1
    rest: IntArray = x * after.multiplier + half & (np.int64(1) << after.shift) - 1
    return rest


def _missing(after: Requantisation, x: IntArray) -> IntArray:
    """The distance of each product from the threshold above it."""
    return (np.int64(1) << after.shift) - _rest(after, x)


def _tie(after: Requantisation, sign: int, least: IntArray, most: IntArray) -> IntArray:
    """A number [N] half-way between two results, of which the lower is even; else an end.

    `x * M` is an odd multiple of 2^(shift-1) where x is one of 2^(shift-1) over M's power of two.
    """
    power = after.multiplier & -after.multiplier
    unit = np.maximum((np.int64(1) << after.shift - 1) // power, 1)
    chosen = most if sign > 0 else least
    for odd in (7, 5, 3, 1):
        x = sign * odd * unit
        tied = (_rest(after, x) == 0) & (_whole(after, x) % 2 == 1)
        chosen = np.where(tied & (x >= least) & (x <= most), x, chosen)
    return chosen


def requantiser_range(layer: DrivenLayer, after: Requantisation) -> tuple[IntArray, IntArray]:
    """The smallest and the largest number [N] that a layer's requantisation is proved to get."""
    known, width = layer.graph.types[layer.node.name], layer.op.weight.shape[1]
    least, most = (np.broadcast_to(end.astype(np.int64), (width,)) for end in (known.lo, known.hi))
    for factor, offset, lo, hi in after.affine.transpose(0, 2, 1):
        both = np.sort([least * factor + offset, most * factor + offset], axis=0)
        least, most = np.clip(both, lo, hi)
    return least, most


def low_bits_show(after: Requantisation, x: IntArray, bits: int) -> BoolArray:
    """The channels [N] of which any of `x` [.., N] tells a multiplier whose low bits are lost."""
    fewer = after.with_multiplier(after.multiplier >> bits << bits)
    differ = after.rounded(x) != fewer.rounded(x)
    return _told(differ)


def ties_show(after: Requantisation, x: IntArray) -> BoolArray:
    """The channels [N] of which any of `x` [.., N] tells half to even from half up."""
    even = (_rest(after, x) == 0) & (_whole(after, x) % 2 == 1)
    return _told(even & (after.rounded(x) > after.lo))


def floor_shows(after: Requantisation, x: IntArray) -> BoolArray:
    """The channels [N] of which any of `x` [.., N] tells rounding down from half up."""
    down: IntArray = np.clip(x * after.multiplier >> after.shift, after.lo, after.hi)
    differ: BoolArray = np.not_equal(down, after.rounded(x))
    return _told(differ)


def clipped_show(after: Requantisation, x: IntArray) -> BoolArray:
    """The channels [N] of which any of `x` [.., N] exceeds the highest value."""
    return _told(_whole(after, x) > after.hi)


def _told(differ: BoolArray) -> BoolArray:
    """The channels [N] of which any differs, of [.., N]."""
    told: BoolArray = np.logical_or.reduce(differ.reshape(-1, differ.shape[-1]))
    return told
