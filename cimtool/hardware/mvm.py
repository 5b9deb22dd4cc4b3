"""The crossbar product as an operation of a program."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.hardware.bounds import conversion_error
from cimtool.hardware.contract import layer_mvm
from cimtool.hardware.converted_layer import ConvertedLayer
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.references import AdcReferences
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.arithmetic import mvm_bounds, mvm_shape
from cimtool.ir.op import IF_GIVEN, Level, Op
from cimtool.ir.types import INT_LIMIT, RangeError, Type, integer


@dataclass(frozen=True, eq=False)
class CrossbarMvm(Op, name="crossbar_mvm", levels={Level.CROSSBAR}):
    """`x @ weight + bias` on crossbars: [rows, K] -> [rows, N] integers of `scale` [N] each.

    There are `references` for each slice's converters and last for the unit column's, if there is
    one; each for all cycles, or for each cycle in turn. None is a lossless converter. `driven`, if
    the arrays skip zero inputs, are the shares `driven_shares` of the calibration rows.
    """

    stored: StoredWeights
    bias: IntArray
    scale: Array
    references: tuple[AdcReferences | None, ...]
    driven: tuple[float, ...] = field(default=(), metadata=IF_GIVEN)

    def __post_init__(self) -> None:
        crossbar = self.crossbar
        if len(self.driven) not in (0, 2) or not all(0 <= one <= 1 for one in self.driven):
            raise ValueError(f"driven is {list(self.driven)}; expected two shares")
        wanted = len(crossbar.no_references)
        if len(self.references) != wanted:
            raise ValueError(f"it has {len(self.references)} references; expected {wanted}")
        for one in self.references:
            if one is not None and crossbar.law is not None:
                one.check(crossbar.law, crossbar.scope)

    @property
    def weight(self) -> IntArray:
        """The integer weights [K, N]."""
        return self.stored.weight

    @property
    def crossbar(self) -> Crossbar:
        """The arrays of the layer."""
        return self.stored.crossbar

    @property
    def accumulator_bits(self) -> int:
        """Width of the digital accumulator behind the converters."""
        return self.crossbar.accumulator_bits

    @property
    def exact(self) -> bool:
        """Every converter is lossless, so that the layer is one integer product."""
        return self.crossbar.law is None or all(one is None for one in self.references)

    @property
    def steps(self) -> tuple[float | None, ...]:
        """The mean steps in digits, a slice (and cycle) after the other; None: lossless."""
        digit = 1 << self.crossbar.places
        slices = self.references[: self.crossbar.reference_of(self.crossbar.slices, 0)]
        return tuple(None if one is None else float(one.width.mean()) / digit for one in slices)

    @property
    def layer(self) -> ConvertedLayer:
        """The layer as backends read it; its cells are dropped with the cells of `stored`."""
        bias = self.bias - self.stored.correction
        return ConvertedLayer(self.stored.cells, self.references, bias)

    @cached_property
    def _converter_error(self) -> IntArray:
        """Largest error [N] that all conversions of an output together can make.

        Raises RangeError if it could leave the 62 bits of the digital unit.
        """
        total = np.zeros(self.stored.shape[1], np.int64)
        if self.exact:
            return total
        reach, crossbar = 0.0, self.crossbar
        for column in self.layer.columns:
            if column.law is not None:
                step, offset, places = column.step, column.offset, crossbar.reference_bits
                error = conversion_error(column.bounds, column.law, step, offset, places)
                factors = np.abs(column.factors)
                largest = float((error.astype(np.float64) * factors).sum(axis=0).max())
                reach += largest * column.drive
                if reach >= INT_LIMIT:
                    raise RangeError
                total += (error * factors).sum(axis=0) * column.drive
        whole: IntArray = (total >> crossbar.places) + (crossbar.places > 0)
        return whole

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        shape = mvm_shape(x, self.weight, self.bias)
        slack = self._converter_error
        lo, hi = mvm_bounds(self.weight, self.bias, x)
        lo, hi = lo - slack, hi + slack
        if self._converted_bounds is not None:
            least, most = self._converted_bounds
            lo, hi = np.maximum(lo, least + self.bias), np.minimum(hi, most + self.bias)
        if max(hi.max(), -lo.min()) >= INT_LIMIT >> self.crossbar.places:
            raise RangeError
        return integer(shape, lo, hi, self.scale)

    @cached_property
    def _converted_bounds(self) -> tuple[IntArray, IntArray] | None:
        """Bounds [N] of what passes converters, without the bias; None if digital terms join."""
        stored, crossbar = self.stored, self.crossbar
        # Weights are cut into slices here, also of lossless layers: they must fit their code.
        flips = any(one.flipped.any() for one in stored.slices)
        if self.exact or crossbar.column_leak or flips or stored.cells.row_sum_factors.any():
            return None
        lo = hi = np.zeros(stored.shape[1], np.int64)
        for column, one in zip(self.layer.columns, self.references, strict=True):
            cells = column.cells
            least, most = (self._read(edge, one) for edge in column.bounds)
            for cycle in crossbar.cycles[column.cycles.start : column.cycles.stop]:
                factor = cycle.factor * cells.worth
                ends = (least, most) if factor > 0 else (most, least)
                lo, hi = lo + factor * ends[0], hi + factor * ends[1]
        places, half = crossbar.places, 1 << crossbar.places >> 1
        least, most = ((end + half >> places) - stored.correction for end in (lo, hi))
        return least, most

    def _read(self, edge: IntArray, references: AdcReferences | None) -> IntArray:
        """The sum [N] over row groups of the values read of their column sums [groups, N]."""
        parts = [self.crossbar.read(row, references, r) for r, row in enumerate(edge)]
        return np.asarray(np.sum(parts, axis=0), np.int64)

    def run(self, *inputs: Array) -> Array:
        return layer_mvm(inputs[0], self.layer)
