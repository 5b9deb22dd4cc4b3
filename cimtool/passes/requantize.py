"""Requantisation: one scale to another by an integer multiplier and a shift, a channel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.errors import CimError
from cimtool.ir.format import Ratio, ratio, with_fewer_bits
from cimtool.ir.integer import Requant
from cimtool.ir.program import Builder, Node
from cimtool.ir.types import Type, exact_bounds
from cimtool.passes.formats import Format

BIAS_MARGIN = 4
"""Multipliers leave room for bounds a quarter wider: bias correction still moves them."""


def requantize(builder: Builder, name: str, value: str, fmt: Format) -> str:
    """Add the Requant from a value's own scale to a format's, with multipliers per channel."""
    known = builder.types[value]
    shape = np.broadcast_shapes(known.unit.shape, fmt.scale.shape)
    own, wanted = (np.broadcast_to(scale, shape).flat for scale in (known.unit, fmt.scale))
    channels = zip(own, wanted, _largest(known, shape), strict=True)
    try:
        ratios = [_ratio(*channel) for channel in channels]
    except ValueError as error:
        raise CimError(
            f"{builder.name}.{name}: {error} in 62 bits; its range differs too much from that of "
            "what it is added to or stored as"
        ) from None
    op = Requant(*_arrays(ratios, shape), fmt.lo, fmt.hi, fmt.scale)
    return builder.add(name, op, value)


def refit(builder: Builder, op: Requant, node: Node, inputs: tuple[str, ...]) -> str:
    """Take bits off multipliers whose products no longer fit, now that converters err as well."""
    shape = op.multiplier.shape
    channels = zip(
        op.multiplier.flat, op.shift.flat, _largest(builder.types[inputs[0]], shape), strict=True
    )
    ratios = [with_fewer_bits(Ratio(int(m), int(shift)), int(top)) for m, shift, top in channels]
    multiplier, shift = _arrays(ratios, shape)
    return builder.add(node.name, replace(op, multiplier=multiplier, shift=shift), *inputs)


def _largest(known: Type, shape: tuple[int, ...]) -> Iterable[int]:
    """The largest magnitude of each channel; of all where there is one scale."""
    magnitudes = np.maximum(np.abs(exact_bounds(known.lo)), np.abs(exact_bounds(known.hi)))
    return np.broadcast_to(magnitudes, shape).flat if shape else [magnitudes.max()]


def _arrays(ratios: Sequence[Ratio], shape: tuple[int, ...]) -> tuple[IntArray, IntArray]:
    """Multipliers and shifts of this shape."""
    multiplier = np.array([ratio.multiplier for ratio in ratios], np.int64).reshape(shape)
    return multiplier, np.array([ratio.shift for ratio in ratios], np.int64).reshape(shape)


def _ratio(own: float, wanted: float, top: int) -> Ratio:
    """The factor from one scale to another for values up to `top`, with room for BIAS_MARGIN."""
    factor = Fraction(float(own)) / Fraction(float(wanted))
    largest = max(int(top), 1)
    largest += largest // BIAS_MARGIN
    if factor * largest < Fraction(1, 2):  # all values round to zero, by a shift as well
        factor = Fraction(1, 2 << largest.bit_length())
    return ratio(factor, largest)
