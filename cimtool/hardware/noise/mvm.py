"""The crossbar product on a die, as an operation, readable; `simulation/kernels/noisy.py`
is the same, fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.hardware.crossbar import Cells, Crossbar, cells_mvm
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.converter_errors import ConverterErrors, converter_span
from cimtool.hardware.noise.fresh import Fresh
from cimtool.hardware.noise.gaussian import row_keys
from cimtool.ir.op import Level, Op
from cimtool.ir.types import Type, integer

FACTOR_BITS = 12
"""Binary places of the factors that drift compensation multiplies converted sums by."""


@dataclass(frozen=True, eq=False)
class NoisyMvm(Op, name="noisy_mvm", levels={Level.DIE}):
    """`perfect` on arrays that conduct as `cells` say: [rows, K] -> [rows, N] integers.

    A converter that is proved lossless on perfect cells has step 0 here: it rounds noise.
    `factors` [groups, slices, N], in 2^-FACTOR_BITS, multiply what converters say. The digital unit
    saturates at `lo` and `hi` [N], the range that was proved for the perfect layer.
    """

    perfect: CrossbarMvm
    cells: Cells
    lo: IntArray
    hi: IntArray
    fresh: Fresh | None = None
    errors: ConverterErrors | None = None
    factors: IntArray | None = None

    @property
    def crossbar(self) -> Crossbar:
        """How the layer is laid onto arrays."""
        return self.perfect.crossbar

    @property
    def accumulator_bits(self) -> int:
        """Width of the digital accumulator behind the converters."""
        return self.perfect.accumulator_bits

    @cached_property
    def steps(self) -> tuple[int | None, ...]:
        """Step exponents of the slices' converters, as the contract counts them."""
        return die_steps(self.perfect)

    @cached_property
    def fine_steps(self) -> tuple[int | None, ...]:
        """Step exponents in the units of this die's column sums."""
        finer = self.cells.fraction_bits - self.crossbar.fraction_bits
        return tuple(None if step is None else step + finer for step in self.steps)

    @property
    def offset(self) -> IntArray:
        """What is added digitally to every output [N]."""
        perfect = self.perfect
        return perfect.bias - perfect.stored.correction

    @property
    def plain(self) -> bool:
        """Whether the arrays are all that differs from the perfect layer."""
        return self.fresh is None and self.errors is None and self.factors is None

    def infer(self, *inputs: Type) -> Type:
        shape = (inputs[0].shape[0], self.perfect.weight.shape[1])
        return integer(shape, self.lo, self.hi, self.perfect.scale)

    def run(self, *inputs: Array) -> Array:
        x = inputs[0]
        reader = None if self.plain else Reader(self, x)
        total = cells_mvm(
            x, self.cells, self.crossbar, self.steps, convert=None if reader is None else reader
        )
        limited: Array = np.clip(total + self.offset, self.lo, self.hi)
        return limited


def die_steps(perfect: CrossbarMvm) -> tuple[int | None, ...]:
    """The steps of a layer's converters on a die: 0 where perfect cells need no converter model."""
    if perfect.crossbar.law is None:
        return perfect.steps
    return tuple(0 if step is None else step for step in perfect.steps)


class Reader:
    """Reads column sums as a die does: fresh noise, the converter's errors, codes, factors."""

    def __init__(self, op: NoisyMvm, x: IntArray):
        self.op = op
        self.groups = op.perfect.stored.groups
        self.digits = op.crossbar.digits(x)
        self.keys = np.zeros(0, np.uint64) if op.fresh is None else row_keys(x, op.fresh.key)

    def __call__(self, p: IntArray, r: int, k: int, c: int) -> IntArray:
        """What the digital side takes for sums `p` [n, N] of group r, slice k and cycle c."""
        op, law = self.op, self.op.crossbar.law
        if op.fresh is not None:
            conversion = r * len(op.cells.slices) + k
            p = p + op.fresh.noise(self.digits, self.keys, self.groups[r], conversion, k, c)
        step = op.fine_steps[k]
        if step is not None and law is not None:
            if op.errors is not None:
                p = op.errors.apply(p, r, k, *converter_span(law, step))
            p = op.crossbar.read(p, step)
        if op.factors is not None:
            p = p * op.factors[r, k] + (1 << FACTOR_BITS >> 1) >> FACTOR_BITS
        return p
