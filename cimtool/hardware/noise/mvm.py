"""The crossbar product on a die, readable; `simulation/kernels/conversions.py` is it, fast.

Converters have an offset, a gain and a non-linearity each, applied to column sums before they
round; those of a measured chip have a table of thresholds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.hardware.contract import Convert, layer_mvm
from cimtool.hardware.converted_layer import Cells, ConvertedLayer
from cimtool.hardware.converters import THRESHOLD_BITS, Law
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.fresh import Fresh, row_keys
from cimtool.hardware.noise.model import ConverterNoise
from cimtool.hardware.references import AdcReferences
from cimtool.ir.format import round_half_up
from cimtool.ir.op import Level, Op
from cimtool.ir.types import Type, integer

GAIN_BITS = 16
"""Binary places of a converter's gain."""

CURVE_BITS = 15
"""Binary places in which the position of a sum in the converter's range is counted for INL."""


class ConverterErrors(NamedTuple):
    """Errors of the converters of one layer: whole numbers [groups, references, N].

    Those of a slice are as many as it has references: a cycle's own, or one for all.
    `offset` and `bow` count in the units of the column sums, `gain` in 2^-GAIN_BITS.
    """

    offset: IntArray
    gain: IntArray
    bow: IntArray

    def apply(
        self, p: IntArray, group: int, place: int, lowest: IntArray, span: IntArray
    ) -> IntArray:
        """Column sums [n, N], less their offset, as a converter sees them.

        Its references are those at a `place`; its range starts at `lowest` and is `span` long, in
        the units of the sums: one of each for all columns, or [N].
        """
        scaled = p * self.gain[group, place] + (1 << GAIN_BITS >> 1) >> GAIN_BITS
        bow = self.bow[group, place] * arch(p, lowest, span) + (1 << CURVE_BITS >> 1) >> CURVE_BITS
        moved: IntArray = p + scaled + self.offset[group, place] + bow
        return moved


def converter_span(law: Law, references: AdcReferences) -> tuple[IntArray, IntArray]:
    """The starts and lengths of converters' ranges, from their offsets on: one for each step."""
    step, (lo, hi) = references.step, references.law(law).ends
    if references.levels is not None:
        return lo * step, (hi - lo) * step + references.width
    return lo * step, step << (hi - lo).bit_length()


def arch(p: IntArray, lowest: IntArray, span: IntArray) -> IntArray:
    """4 u (1 - u) in 2^-CURVE_BITS, for u = (p - lowest) / span held to 0..1."""
    u = (np.clip(p - lowest, 0, span) << CURVE_BITS) // span
    risen: IntArray = u * ((1 << CURVE_BITS) - u) >> CURVE_BITS - 2
    return risen


def draw_errors(
    noise: ConverterNoise, rng: np.random.Generator, converters: IntArray, steps: IntArray
) -> ConverterErrors:
    """The errors of a layer whose columns [groups, slices, N] go to the `converters` numbered.

    `steps` [groups, references, N], as many of each slice, are the mean widths of a code in the
    units of what converters convert; extents of one stand for all.
    """
    drawn = noise.errors(int(converters.max()) + 1, rng)
    each = np.repeat(converters, steps.shape[1] // converters.shape[1], axis=1)
    offset, gain, bow = (errors[each] for errors in drawn)
    code = steps.astype(np.float64)
    return ConverterErrors(
        round_half_up(offset * code),
        round_half_up(gain * (1 << GAIN_BITS)),
        round_half_up(bow * code),
    )


def added(errors: Sequence[ConverterErrors]) -> ConverterErrors | None:
    """Errors of several mechanisms together; None without any."""
    if not errors:
        return None
    return ConverterErrors(*(np.sum(parts, axis=0) for parts in zip(*errors, strict=True)))


@dataclass(frozen=True, eq=False)
class MeasuredConverters:
    """The measured converters of a layer; the others follow the law.

    `thresholds` [tables, codes - 1] never fall; they count in 1/16 of a step from the
    column's offset.
    `table` [groups, slices, N] is the table of each column, -1 if the law holds.
    """

    thresholds: IntArray
    table: IntArray

    def read(
        self, p: IntArray, law: Law, references: AdcReferences, group: int, k: int
    ) -> IntArray:
        """The values of column sums [n, N] of slice k; a code stands for what the law says."""
        (step, offset), law = references.of_group(group), references.law(law)
        above = p - offset
        codes = law.codes(above, step)
        own = np.flatnonzero(self.table[group, k] >= 0)
        steps = np.broadcast_to(step, p.shape[1])[own]
        edges = self.thresholds[self.table[group, k, own]] * steps[:, None]
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


FACTOR_BITS = 12
"""Binary places of the factors that drift compensation multiplies converted sums by."""


@dataclass(frozen=True, eq=False)
class NoisyMvm(Op, name="noisy_mvm", levels={Level.DIE}):
    """`perfect` on arrays whose cells conduct the values of `layer`: [rows, K] -> [rows, N].

    `factors` [groups, slices, N], in 2^-FACTOR_BITS, multiply converted values; `measured` are the
    converters whose thresholds are known. The digital unit saturates at `lo` and `hi` [N], the
    range that was proved for the perfect layer.
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
        """True if the cells are all that differs from the perfect layer."""
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
        """The sums that converters see, errors included, shifted left by `reference_bits`."""
        p = p << self.crossbar.reference_bits
        law, place = self.crossbar.law, self.crossbar.reference_of(k, c)
        references = self.layer.references[place]
        if self.errors is None or references is None or law is None:
            return p
        _, offset = references.of_group(r)
        span = (part[min(r, len(part) - 1)] for part in converter_span(law, references))
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
