"""Converters of a chip whose thresholds were measured: a table for each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.hardware.converters import THRESHOLD_BITS, Law
from cimtool.hardware.references import AdcReferences


@dataclass(frozen=True, eq=False)
class MeasuredConverters:
    """The measured converters of a layer; the others follow the law.

    `thresholds` [tables, codes - 1] never fall; they count in 1/16 of a step from the
    column's offset.
    `table` [groups, slices, N] is the table of each column, -1 where the law holds.
    """

    thresholds: IntArray
    table: IntArray

    def read(
        self, p: IntArray, law: Law, references: AdcReferences, group: int, k: int
    ) -> IntArray:
        """The values of column sums [n, N] of slice k; a code stands for what the law says."""
        step, offset, law = references.step, references.of_group(group), references.law(law)
        above = p - offset
        codes = law.codes(above, step)
        own = np.flatnonzero(self.table[group, k] >= 0)
        edges = self.thresholds[self.table[group, k, own]] * np.int64(step)
        codes[:, own] = law.lo + _passed(above[:, own] << THRESHOLD_BITS, edges)
        return law.values(codes, step) + offset


def _passed(sums: IntArray, edges: IntArray) -> IntArray:
    """The number of its column's `edges` [N, T] that each of `sums` [n, N] has reached."""
    columns, count = edges.shape
    lowest = int(edges.min(initial=0)) - 1
    span = int(edges.max(initial=0)) - lowest + 2
    start = np.arange(columns) * span  # one column's edges behind the other's: one search for all
    flat = (edges - lowest + start[:, None]).ravel()
    place = np.clip(sums - lowest, 0, span - 1) + start
    found: IntArray = np.searchsorted(flat, place, side="right") - np.arange(columns) * count
    return found
