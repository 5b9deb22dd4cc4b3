"""Weights as the cells of crossbars hold them: what every walker of an array reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cimtool.base.arrays import Array, IntArray, narrow
from cimtool.hardware.bounds import Bounds, column_bounds
from cimtool.hardware.crossbar import Cells, Crossbar, cells_mvm
from cimtool.hardware.references import AdcReferences
from cimtool.hardware.weight_codes import Slice, plain, stored_slices


@dataclass(frozen=True, eq=False)
class StoredWeights:
    """Integer weights [K, N] in the cells of crossbars: cut into slices once, for every walker."""

    weight: IntArray
    crossbar: Crossbar

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of weights."""
        rows, columns = self.weight.shape
        return rows, columns

    @cached_property
    def groups(self) -> tuple[slice, ...]:
        """The row groups."""
        return self.crossbar.tiling.groups(len(self.weight))

    @cached_property
    def slices(self) -> tuple[Slice, ...]:
        """Digits as stored, a slice for each column that is converted, in as few bytes as hold."""
        slices = stored_slices(self.crossbar.weights, self.weight, self.groups)
        if self.crossbar.columns_by_polarity:
            slices = tuple(
                plain(np.maximum(sign * s.digits, 0), self.groups, s.shift, sign * s.sign)
                for s in slices
                for sign in (1, -1)
            )
        return tuple(replace(s, digits=narrow(s.digits)) for s in slices)

    @cached_property
    def cells(self) -> Cells:
        """The cells as the contract has them, every device perfect."""
        crossbar = self.crossbar
        fraction, leak = crossbar.fraction_bits, crossbar.column_leak
        if not leak:
            return Cells(crossbar, self.slices, fraction, leak)
        conduct = (narrow((s.digits.astype(np.int64) << fraction) + leak) for s in self.slices)
        slices = (replace(s, digits=d) for s, d in zip(self.slices, conduct, strict=True))
        return Cells(crossbar, tuple(slices), fraction, leak)

    @cached_property
    def bounds(self) -> tuple[Bounds, ...]:
        """The proved bounds of every slice's column sums."""
        return tuple(column_bounds(s.digits, self.crossbar) for s in self.cells.slices)

    @cached_property
    def unit_bounds(self) -> Bounds:
        """The proved bounds of the unit column's sums."""
        return column_bounds(self.unit_cells.digits, self.crossbar)

    @cached_property
    def unit_cells(self) -> Slice:
        """The unit column: a slice of one column whose cells all hold 1."""
        return plain(np.ones((len(self.weight), 1), np.int64), self.groups, 0)

    def release(self) -> None:
        """Let go of the cells, a byte or more each: whoever asks for them next cuts them anew."""
        for name in ("slices", "cells"):
            vars(self).pop(name, None)

    @cached_property
    def correction(self) -> IntArray:
        """The excess of every output [N] by lifted inputs, to be taken off in the digital bias."""
        total: IntArray = self.weight.sum(axis=0)
        return total * self.crossbar.inputs.lift


def cell_digits(stored: StoredWeights, rows: slice) -> Array:
    """Contents of the cells [rows, N, slices, polarities] of some rows, as unsigned numbers."""
    crossbar, code = stored.crossbar, stored.crossbar.weights
    digits = np.stack([one.digits[rows] for one in stored.slices], axis=2)
    if crossbar.columns_by_polarity:
        cells = digits.reshape(*digits.shape[:2], -1, 2)
    elif code.paired:
        cells = np.stack([np.maximum(digits, 0), np.maximum(-digits, 0)], axis=3)
    else:
        cells = digits[..., None] + code.baseline & code.cell_maximum
    return cells.astype(np.uint8)


def mvm(x: IntArray, stored: StoredWeights, references: Sequence[AdcReferences | None]) -> IntArray:
    """The crossbar product [n, N] of integer inputs [n, K] and stored weights [K, N].

    The references are those of `cells_mvm`.
    """
    return cells_mvm(x, stored.cells, references) - stored.correction
