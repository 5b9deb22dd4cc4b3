"""Offset, gain and non-linearity of each converter, applied to column sums before they round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.hardware.converters import Law
from cimtool.hardware.noise.model import ConverterNoise
from cimtool.hardware.references import AdcReferences
from cimtool.ir.format import round_half_up

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

    def apply(self, p: IntArray, group: int, place: int, lowest: int, span: int) -> IntArray:
        """Column sums [n, N], less their offset, as a converter sees them.

        Its references are those at a `place`; its range starts at `lowest` and is `span` long, in
        the units of the sums.
        """
        scaled = p * self.gain[group, place] + (1 << GAIN_BITS >> 1) >> GAIN_BITS
        bow = self.bow[group, place] * arch(p, lowest, span) + (1 << CURVE_BITS >> 1) >> CURVE_BITS
        moved: IntArray = p + scaled + self.offset[group, place] + bow
        return moved


def converter_span(law: Law, references: AdcReferences) -> tuple[int, int]:
    """The start and the length of a converter's range, from its offset on."""
    step, (lo, hi) = references.step, references.law(law).ends
    if references.levels is not None:
        return lo * step, (hi - lo) * step + references.width
    return lo * step, step << (hi - lo).bit_length()


def arch(p: IntArray, lowest: int, span: int) -> IntArray:
    """4 u (1 - u) in 2^-CURVE_BITS, for u = (p - lowest) / span held to 0..1."""
    u = (np.clip(p - lowest, 0, span) << CURVE_BITS) // span
    risen: IntArray = u * ((1 << CURVE_BITS) - u) >> CURVE_BITS - 2
    return risen


def draw_errors(
    noise: ConverterNoise, rng: np.random.Generator, converters: IntArray, steps: Sequence[int]
) -> ConverterErrors:
    """The errors of a layer whose columns [groups, slices, N] go to the `converters` numbered.

    `steps` [references], as many of each slice, are the mean widths of a code in the units of what
    converters convert.
    """
    drawn = noise.errors(int(converters.max()) + 1, rng)
    each = np.repeat(converters, len(steps) // converters.shape[1], axis=1)
    offset, gain, bow = (errors[each] for errors in drawn)
    code = np.array(steps, np.float64)[None, :, None]
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
