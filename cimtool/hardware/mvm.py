"""The crossbar product as an operation of a program, and its ONNX form: one call a row group."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.hardware.bounds import conversion_error, converted_bounds
from cimtool.hardware.crossbar import (
    Crossbar,
    correction,
    encode_weights,
    input_cycles,
    mvm,
    row_sum_factors,
    unit_cells,
)
from cimtool.ir.arithmetic import mvm_bounds
from cimtool.ir.op import Level, Op
from cimtool.ir.types import INT_LIMIT, RangeError, Type, integer


@dataclass(frozen=True, eq=False)
class CrossbarMvm(Op, name="crossbar_mvm", levels={Level.CROSSBAR}):
    """`x @ weight + bias` on crossbars: [rows, K] -> [rows, N] integers of `scale` [N] each.

    `steps` holds each slice's converter step exponent, `unit_step` that of the unit column where
    there is one; None where the converter is lossless.
    """

    weight: IntArray
    bias: IntArray
    scale: Array
    crossbar: Crossbar
    steps: tuple[int | None, ...]
    unit_step: int | None = None

    @property
    def accumulator_bits(self) -> int:
        """Width of the digital accumulator behind the converters."""
        return self.crossbar.accumulator_bits

    @property
    def exact(self) -> bool:
        """Whether every converter is lossless, so that the layer is one integer product."""
        return self.unit_step is None and all(step is None for step in self.steps)

    @cached_property
    def row_sum_factors(self) -> IntArray:
        """How often the sum of a group's encoded inputs is added to each output [groups, N]."""
        return row_sum_factors(encode_weights(self.weight, self.crossbar), self.crossbar)

    @cached_property
    def _converter_error(self) -> IntArray:
        """Largest error [N] that all conversions of an output together can make.

        Raises RangeError where it could leave the 62 bits of the digital unit.
        """
        total = np.zeros(self.weight.shape[1], np.int64)
        if self.exact:
            return total
        crossbar = self.crossbar
        drive = sum(1 << shift for shift, _, _ in input_cycles(crossbar))
        columns = [
            (cells, step, np.array(1 << cells.shift))
            for cells, step in zip(encode_weights(self.weight, crossbar), self.steps, strict=True)
        ]
        if self.unit_step is not None:
            unit = unit_cells(self.weight.shape[0], crossbar)
            columns.append((unit, self.unit_step, np.abs(self.row_sum_factors)))
        reach = 0.0
        for cells, step, counts in columns:
            if step is not None:
                error = conversion_error(cells, crossbar, step)
                reach += float((error.astype(np.float64) * counts).sum(axis=0).max()) * drive
                if reach >= INT_LIMIT:
                    raise RangeError
                total += (error * counts).sum(axis=0) * drive
        whole: IntArray = (total >> crossbar.fraction_bits) + (crossbar.fraction_bits > 0)
        return whole

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        slack = self._converter_error
        lo, hi = mvm_bounds(self.weight, self.bias, x)
        lo, hi = lo - slack, hi + slack
        if self._converted_bounds is not None:
            least, most = self._converted_bounds
            lo, hi = np.maximum(lo, least + self.bias), np.minimum(hi, most + self.bias)
        if max(hi.max(), -lo.min()) >= INT_LIMIT >> self.crossbar.fraction_bits:
            raise RangeError
        return integer((x.shape[0], self.weight.shape[1]), lo, hi, self.scale)

    @cached_property
    def _converted_bounds(self) -> tuple[IntArray, IntArray] | None:
        """What converters let through [N], without the bias; None where digital terms join them."""
        crossbar = self.crossbar
        if self.exact or crossbar.encoding != "differential" or crossbar.column_leak:
            return None
        lo = hi = -correction(self.weight, crossbar)
        for cells, step in zip(encode_weights(self.weight, crossbar), self.steps, strict=True):
            least, most = (b.sum(axis=0) for b in converted_bounds(cells, crossbar, step))
            for shift, _, sign in input_cycles(crossbar):
                ends = (least, most) if sign * cells.sign > 0 else (-most, -least)
                lo = lo + (ends[0] << shift + cells.shift)
                hi = hi + (ends[1] << shift + cells.shift)
        return lo, hi

    def run(self, *inputs: Array) -> Array:
        crossbar = self.crossbar
        return mvm(inputs[0], self.weight, crossbar, self.steps, self.unit_step) + self.bias
