"""The crossbar product on a die, readable; `simulation/kernels/conversions.py` is it, fast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.hardware.contract import Convert, layer_mvm
from cimtool.hardware.converted_layer import Cells, ConvertedLayer
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.converter_errors import ConverterErrors, converter_span
from cimtool.hardware.noise.fresh import Fresh
from cimtool.hardware.noise.gaussian import row_keys
from cimtool.hardware.noise.transfer import MeasuredConverters
from cimtool.ir.op import Level, Op
from cimtool.ir.types import Type, integer

FACTOR_BITS = 12
"""Binary places of the factors that drift compensation multiplies converted sums by."""


@dataclass(frozen=True, eq=False)
class NoisyMvm(Op, name="noisy_mvm", levels={Level.DIE}):
    """`perfect` on the arrays of a `layer` that conduct otherwise: [rows, K] -> [rows, N] integers.

    `factors` [groups, slices, N], in 2^-FACTOR_BITS, multiply what converters say; `measured` are
    those whose thresholds are known. The digital unit saturates at `lo` and `hi` [N], the range
    that was proved for the perfect layer.
    """

    perfect: CrossbarMvm
    layer: ConvertedLayer
    lo: IntArray
    hi: IntArray
    fresh: Fresh | None = None
    errors: ConverterErrors | None = None
    factors: IntArray | None = None
    measured: MeasuredConverters | None = None

    @property
    def crossbar(self) -> Crossbar:
        """The arrays of the layer."""
        return self.perfect.crossbar

    @property
    def cells(self) -> Cells:
        """The cells as they conduct."""
        return self.layer.cells

    @property
    def accumulator_bits(self) -> int:
        """Width of the digital accumulator behind the converters."""
        return self.perfect.accumulator_bits

    @property
    def frozen(self) -> bool:
        """True where the cells are all that differs from the perfect layer."""
        beside = (self.fresh, self.errors, self.factors, self.measured)
        return all(one is None for one in beside)

    def infer(self, *inputs: Type) -> Type:
        shape = (inputs[0].shape[0], len(self.layer.bias))
        return integer(shape, self.lo, self.hi, self.perfect.scale)

    def run(self, *inputs: Array) -> Array:
        x = inputs[0]
        convert = None if self.frozen else self._reader(x)
        limited: Array = np.clip(layer_mvm(x, self.layer, convert), self.lo, self.hi)
        return limited

    def carried(self, x: IntArray) -> Convert:
        """The column sums that lines carry for inputs [n, K], with the fresh noise of reads."""
        fresh, digits = self.fresh, self.crossbar.digits(x)
        if fresh is None:
            return lambda p, r, k, c: p
        keys = row_keys(x, fresh.key)

        def noisy(p: IntArray, r: int, k: int, c: int) -> IntArray:
            conversion = r * len(self.cells.slices) + k
            return p + fresh.noise(digits, keys, self.cells.groups[r], conversion, k, c)

        return noisy

    def seen(self, p: IntArray, r: int, k: int, c: int) -> IntArray:
        """The sums that converters make codes of, errors included; finer by reference_bits."""
        p = p << self.crossbar.reference_bits
        law, place = self.crossbar.law, self.crossbar.reference_of(k, c)
        references = self.layer.references[place]
        if self.errors is None or references is None or law is None:
            return p
        offset, span = references.of_group(r), converter_span(law, references)
        wrong: IntArray = self.errors.apply(p - offset, r, place, *span) + offset
        return wrong

    def _reader(self, x: IntArray) -> Convert:
        """The reading of column sums on this die: fresh noise, errors, codes, factors."""
        law, carried = self.crossbar.law, self.carried(x)

        def read(p: IntArray, r: int, k: int, c: int) -> IntArray:
            p = self.seen(carried(p, r, k, c), r, k, c)
            references = self.layer.references[self.crossbar.reference_of(k, c)]
            if references is not None and law is not None:
                if self.measured is None:
                    p = references.read(law, p, r)
                else:
                    p = self.measured.read(p, law, references, r, k)
            if self.factors is not None:
                p = p * self.factors[r, k] + (1 << FACTOR_BITS >> 1) >> FACTOR_BITS
            return p

        return read
