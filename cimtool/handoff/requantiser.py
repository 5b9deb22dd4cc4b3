"""Requantisations of a layer's sums, and inputs that reveal a small error in a requantiser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cimtool.base.arrays import BoolArray, IntArray
from cimtool.ir.arithmetic import Add, Clip
from cimtool.ir.format import requant
from cimtool.ir.integer import Requant
from cimtool.ir.program import Graph, Node

NO_LIMIT = 1 << 62
"""A limit that no number of a program reaches."""

THRESHOLDS = 1 << 16
"""Rounding thresholds of a channel that are searched, at most, from each end of its results."""

BLOCK = 1 << 22
"""Numbers that are searched at a time."""

DIRECTED = 8
"""Directed inputs per channel."""


@dataclass(frozen=True)
class Requantisation:
    """The computation from a layer's sums to a requantised value `name`.

    `affine` [stages, N, 4] are factor, offset and both limits of each stage before the
    requantisation; multiplier, shift, lo and hi [N] are the requantisation's.
    """

    name: str
    affine: IntArray
    multiplier: IntArray
    shift: IntArray
    lo: IntArray
    hi: IntArray

    def run(self, total: IntArray) -> IntArray:
        """The requantised values of sums [.., N]."""
        for factor, offset, lo, hi in self.affine.transpose(0, 2, 1):
            total = np.clip(total * factor + offset, lo, hi)
        return self.rounded(total)

    def rounded(self, x: IntArray) -> IntArray:
        """The requantised values of `x` [.., N], the output of the stages before."""
        return requant(x, self.multiplier, self.shift, self.lo, self.hi)

    def reached(self, least: IntArray, most: IntArray) -> tuple[IntArray, IntArray]:
        """The smallest and largest number [N] after the stages, for sums `least` to `most` [N]."""
        for factor, offset, lo, hi in self.affine.transpose(0, 2, 1):
            both = np.sort([least * factor + offset, most * factor + offset], axis=0)
            least, most = np.clip(both, lo, hi)
        return least, most

    def unlimited(self, x: IntArray) -> IntArray:
        """The products of `x`, rounded but not clipped."""
        whole: IntArray = x * self.multiplier + (np.int64(1) << self.shift - 1) >> self.shift
        return whole

    def above_threshold(self, x: IntArray) -> IntArray:
        """The distance of each product from the rounding threshold below it."""
        half = np.int64(1) << self.shift - 1
        rest: IntArray = x * self.multiplier + half & (np.int64(1) << self.shift) - 1
        return rest

    def ties(self, x: IntArray) -> BoolArray:
        """True if a product is halfway between two results and the lower result is even."""
        tied: BoolArray = (self.above_threshold(x) == 0) & (self.unlimited(x) % 2 == 1)
        return tied

    def may_tie(self, least: IntArray, most: IntArray) -> BoolArray:
        """False for each channel [N] in which no number from `least` to `most` [N] is a tie.

        A tie is an odd multiple of `tie_unit`, so at least as far from 0.
        """
        unit = self.tie_unit
        possible: BoolArray = (unit > 0) & ((most >= unit) | (least <= -unit))
        return possible

    @property
    def tie_unit(self) -> IntArray:
        """The smallest number above 0 [N] whose product is halfway between two results.

        0 if there is none. `x * M` is an odd multiple of 2^(shift-1) if x is an odd multiple of
        2^(shift-1) / power, the largest power of two that divides M.
        """
        power = self.multiplier & -self.multiplier
        unit: IntArray = (np.int64(1) << self.shift - 1) // power
        return unit


def requantisations(graph: Graph, layer: Node, width: int) -> Iterator[Requantisation]:
    """Yield the requantisations of a layer's sums; only Add and Clip may come in between."""

    def each(value: object, shape: int | tuple[int, int] = width) -> IntArray:
        return np.broadcast_to(np.asarray(value), shape).astype(np.int64)

    stages: dict[str, list[IntArray]] = {layer.name: []}
    for node in graph.nodes:
        if len(node.inputs) != 1 or node.inputs[0] not in stages:
            continue
        before, op = stages[node.inputs[0]], node.op
        if isinstance(op, Requant):
            affine = np.array(before, np.int64).reshape(len(before), width, 4)
            own = [each(one) for one in (op.multiplier, op.shift, op.lo, op.hi)]
            yield Requantisation(node.name, affine, *own)
        elif isinstance(op, Add):
            parts = [each(one) for one in (op.factors[0], op.offset, -NO_LIMIT, NO_LIMIT)]
            stages[node.name] = [*before, np.stack(parts, axis=1)]
        elif isinstance(op, Clip):
            *earlier, last = before or [each([1, 0, -NO_LIMIT, NO_LIMIT], (width, 4))]
            low, high = (each(np.clip(one, -NO_LIMIT, NO_LIMIT)) for one in (op.lo, op.hi))
            limits = np.clip(np.stack([low, high], axis=1), last[:, 2:3], last[:, 3:])
            stages[node.name] = [*earlier, np.hstack([last[:, :2], limits])]


def requantiser_inputs(after: Requantisation, least: IntArray, most: IntArray) -> IntArray:
    """Inputs [DIRECTED, N] of a requantisation whose channels get `least` to `most` [N].

    For each sign: a number just above a rounding threshold, and a number just below a threshold.
    Each is chosen so that its product crosses the threshold at the smallest relative change of the
    multiplier. Then a tie of each sign, if there is one, and both ends.
    """
    highest, lowest = after.rounded(most), after.rounded(least)
    count = int(min((highest - lowest).max() + 1, THRESHOLDS))
    width, found = max(BLOCK // count, 1), []
    for first in range(0, len(least), width):
        some = slice(first, first + width)
        own = (one[some] for one in (after.multiplier, after.shift, after.lo, after.hi))
        channels = Requantisation(after.name, after.affine[:, some], *own)
        found.append(_block(channels, least[some], most[some], count))
    return np.concatenate(found, axis=1)


def _block(after: Requantisation, least: IntArray, most: IntArray, count: int) -> IntArray:
    """The inputs of some channels; `count` thresholds from each end are searched."""
    highest, lowest = after.rounded(most), after.rounded(least)
    steps = np.arange(count)[:, None]

    def first_of(results: IntArray) -> IntArray:
        """The smallest number whose product, rounded, reaches a result."""
        edge = (results << after.shift) - (np.int64(1) << after.shift - 1)
        first: IntArray = -(-edge // after.multiplier)
        return first

    # The threshold below the lowest result has no effect: it is out of reach, or clipped.
    windows = np.maximum(highest - steps, lowest + 1), np.minimum(lowest + 1 + steps, highest)
    chosen = []
    for sign, results in zip((1, -1), windows, strict=True):
        above = first_of(results)
        below = above - 1
        missing = (np.int64(1) << after.shift) - after.above_threshold(below)
        for x, rest in ((above, after.above_threshold(above)), (below, missing)):
            inside = (x >= least) & (x <= most) & (x * sign > 0)
            moved = np.where(inside, rest / np.maximum(np.abs(x), 1), np.inf)
            index = moved.argmin(axis=0)[None]
            found, any_inside = (np.take_along_axis(one, index, axis=0)[0] for one in (x, inside))
            chosen.append(np.where(any_inside, found, most))
    first, last = (np.clip(first_of(one), least, most) for one in (lowest, highest))
    unit = np.maximum(after.tie_unit, 1)
    for sign, tie in ((1, last), (-1, first)):
        for odd in (7, 5, 3, 1):
            x = sign * odd * unit
            tie = np.where(after.ties(x) & (x >= first) & (x <= last), x, tie)
        chosen.append(tie)
    return np.stack([*chosen, least, most])


def mistakes(after: Requantisation, x: IntArray) -> dict[str, BoolArray]:
    """For each mistake, by name, a mask of the inputs `x` [.., N] that reveal it.

    DOWN rounds down, CLIPS does not clip to the highest value, TIES rounds half to even, LOW_BITS
    loses six bits of the multiplier.
    """
    right = after.rounded(x)
    down = np.clip(x * after.multiplier >> after.shift, after.lo, after.hi)
    fewer = replace(after, multiplier=after.multiplier >> 6 << 6)
    return {
        "DOWN": np.not_equal(down, right),
        "CLIPS": after.unlimited(x) > after.hi,
        "TIES": after.ties(x) & (right > after.lo),
        "LOW_BITS": fewer.rounded(x) != right,
    }
