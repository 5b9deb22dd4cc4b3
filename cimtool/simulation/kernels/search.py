"""The search of a content-addressable memory on the CPU: a product of marks for each word."""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.compiled import jit
from cimtool.hardware.cell_distance import CellDistance, rising_planes

SINGLE_BITS = 24
"""Whole numbers up to this many bits are exact in float32."""


class WordSearch:
    """A search of a content-addressable memory by a matrix product of marks per word.

    Words are packed once. If words are sensed without loss, one product does for all. The products
    run in floating point and are exact, because word distances are small enough.
    """

    def __init__(self, op: CellDistance):
        width = op.stored.shape[1]
        words = (slice(0, width),) if op.plain_sum else op.words
        largest = max(word.stop - word.start for word in words) * int(op.table.max())
        self.kind = np.float32 if largest < 1 << SINGLE_BITS - 1 else np.float64
        self.values, self.step, self.items = 1 << op.bits, op.step, len(op.stored)
        unlimited = op.plain_sum or op.top is None
        self.top = np.iinfo(np.int64).max if unlimited else op.top
        self.planes = [
            (one.word, one.steps.astype(self.kind), one.least.astype(self.kind))
            for one in rising_planes(op, words)
        ]

    def __call__(self, query: Array) -> IntArray:
        """Distances [n, M] of query codes [n, d] to the stored items."""
        total = np.zeros((len(query), self.items), np.int64)
        for word, steps, least in self.planes:
            cells = query[:, word]
            marks = np.hstack([cells >= k for k in range(1, self.values)])
            partial = np.matmul(marks.astype(self.kind), steps)
            _add_codes(partial, least, self.step, self.top, total)
        return total


@jit
def _add_codes(partial, least, step, top, total):  # type: ignore[no-untyped-def]
    for i in range(partial.shape[0]):
        for j in range(partial.shape[1]):
            total[i, j] += min(np.int64(partial[i, j] + least[j]) // step, top)
