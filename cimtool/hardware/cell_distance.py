"""The search of a content-addressable memory as an operation of a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.ir.op import Level, Op
from cimtool.ir.types import Type, integer, shape_text

DistanceName = Literal["hamming", "l1", "squared"]

DONT_CARE = -1
"""The content of a cell that differs from no value of a query."""

MOST_BITS = 8
"""Bits that a cell may hold."""


@dataclass(frozen=True, eq=False)
class CellDistance(Op, name="cell_distance", levels={Level.CROSSBAR}):
    """Distances of queries to stored items: [n, d] codes -> [n, M] integers of `scale` each.

    Item m stores the codes `stored[m]` [d] of `bits` bits, or DONT_CARE, in words of `cells` cells.
    The distance of a word, the sum of its cells', is converted to `floor(sum / step)`, at most
    `top` (None: no limit), and the codes of an item's words are added digitally.
    """

    stored: IntArray
    bits: int
    distance: DistanceName
    cells: int
    step: int
    top: int | None
    scale: Array

    def __post_init__(self) -> None:
        """Raise ValueError for fields that no search has, as a file may hold them."""
        if self.distance not in get_args(DistanceName) or not 1 <= self.bits <= MOST_BITS:
            raise ValueError(f"distance = {self.distance}, bits = {self.bits}: of no cell")
        if self.cells < 1 or self.step < 1 or (self.top is not None and self.top < 0):
            raise ValueError(f"cells = {self.cells}, step = {self.step}, top = {self.top}: below 1")
        values = (DONT_CARE, (1 << self.bits) - 1)
        if self.stored.ndim != 2 or not self.stored.size:
            raise ValueError(f"stored has shape {self.stored.shape}: expected items and cells")
        if self.stored.min() < values[0] or self.stored.max() > values[1]:
            raise ValueError(f"stored: expected codes from {values[0]} to {values[1]}")

    @property
    def words(self) -> tuple[slice, ...]:
        """The cells of each word of an item; the last one may use fewer."""
        width = self.stored.shape[1]
        return tuple(slice(k, min(k + self.cells, width)) for k in range(0, width, self.cells))

    @property
    def distance_number(self) -> int:
        """The place of the distance in `DistanceName`, for programs that tell it by a number."""
        return get_args(DistanceName).index(self.distance)

    @cached_property
    def table(self) -> IntArray:
        """Distances [2^bits values of a query, 2^bits stored values and, last, DONT_CARE]."""
        q = np.arange(1 << self.bits)
        apart = np.abs(q[:, None] - q)
        form = {"hamming": np.minimum(apart, 1), "l1": apart, "squared": apart**2}
        return np.pad(form[self.distance], ((0, 0), (0, 1)))

    def converted(self, partial: Array) -> Array:
        """The code of a word's distance."""
        codes = partial // self.step
        return codes if self.top is None else np.minimum(codes, self.top)

    @property
    def plain_sum(self) -> bool:
        """Words are sensed without loss: a result is the distance of the whole item."""
        largest = self.cells * int(self.table.max())
        return self.step == 1 and (self.top is None or largest <= self.top)

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        if x.shape[1:] != self.stored.shape[1:]:
            raise ValueError(f"queries of {shape_text(x.shape)} for {self.stored.shape[1]} cells")
        most = self.table.max(axis=0)[self.stored]
        hi = sum(self.converted(most[:, word].sum(axis=1)) for word in self.words)
        return integer((x.shape[0], self.stored.shape[0]), 0, hi, self.scale)

    def run(self, *inputs: Array) -> Array:
        (query,) = inputs
        total = np.zeros((len(query), len(self.stored)), np.int64)
        for word in self.words:
            cells = self.table[query[:, None, word], self.stored[:, word]]
            total += self.converted(cells.sum(axis=-1))
        return total


@dataclass(frozen=True, eq=False)
class RisingPlanes:
    """A word's distances as one product: of marks of a query, whether a value reaches k.

    `T[q, s] = T[0, s] + sum_k [q >= k] (T[k, s] - T[k-1, s])`, k from 1 on. `steps`
    [cells x (2^bits - 1), M] are the differences, `least` [M] the sums of `T[0, s]`.
    """

    word: slice
    steps: IntArray
    least: IntArray


def rising_planes(op: CellDistance, words: tuple[slice, ...]) -> Iterator[RisingPlanes]:
    """Yield the planes of some words of an operation."""
    rises = np.diff(op.table, axis=0)
    for word in words:
        stored = op.stored[:, word].T
        steps = rises[:, stored].reshape(-1, stored.shape[1])
        yield RisingPlanes(word, steps, op.table[0][stored].sum(axis=0))
