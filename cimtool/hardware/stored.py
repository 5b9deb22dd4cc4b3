"""Weights as the cells of crossbars hold them, for every backend and pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cimtool.base.arrays import Array, IntArray, narrow
from cimtool.base.errors import CimError
from cimtool.hardware.converted_layer import Cells
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.weight_codes import Slice, WeightCode, stored_slices


@dataclass(frozen=True, eq=False)
class StoredWeights:
    """Integer weights [K, N] in the cells of crossbars, cut into slices once."""

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
                replace(s, digits=np.maximum(sign * s.digits, 0), sign=sign * s.sign)
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

    def release(self) -> None:
        """Let go of the cells, a byte or more each: whoever asks for them next cuts them anew."""
        for name in ("slices", "cells"):
            vars(self).pop(name, None)

    @cached_property
    def correction(self) -> IntArray:
        """The sum that the lift of the inputs adds to each output [N]; the bias subtracts it."""
        total: IntArray = self.weight.sum(axis=0)
        return total * self.crossbar.inputs.lift


def require_digits(code: WeightCode) -> None:
    """Raise CimError for a code whose cells do not hold the digits that are summed."""
    if not code.holds_digits:
        raise CimError(
            f'encoding = "{code.name}": an array makes its digits of what cells hold, which '
            'hand-offs and test vectors do not describe; expected encoding = "twos-complement", or '
            "the format onnx"
        )


def cell_digits(stored: StoredWeights, rows: slice) -> Array:
    """Contents of the cells [rows, N, slices, polarities] of some rows, as unsigned numbers.

    Raises CimError for a code whose cells do not hold digits.
    """
    crossbar, code = stored.crossbar, stored.crossbar.weights
    require_digits(code)
    digits = np.stack([one.digits[rows] for one in stored.slices], axis=2)
    if crossbar.columns_by_polarity:
        cells = digits.reshape(*digits.shape[:2], -1, 2)
    elif code.paired:
        cells = np.stack([np.maximum(digits, 0), np.maximum(-digits, 0)], axis=3)
    else:
        wide = np.add(digits[..., None], code.baseline, dtype=np.int64)
        cells = wide & code.cell_maximum
    return cells.astype(np.uint8)
