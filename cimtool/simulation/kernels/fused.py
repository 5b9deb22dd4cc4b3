"""What the fused kernels share: digits driven, conversion behind the sums, modulo 2^32.

The sums of a tile are converted in registers and added to int32 totals. Totals wrap modulo 2^32,
which is exact where the proved range of the layer's output fits 32 bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.compiled import jit
from cimtool.hardware.converters import StaircaseLaw, UniformLaw
from cimtool.hardware.crossbar import Cells, Crossbar, row_sum_factors
from cimtool.hardware.weight_codes import Slice, plain
from cimtool.ir.types import Type
from cimtool.simulation.kernels.tiles import WIDTH

INT32 = np.iinfo(np.int32)

BYTE = 256
"""Values of a byte."""

MOST_INPUT_BITS = 31
"""Inputs of so many bits, and what their cycles count, are int32."""


class Drive(NamedTuple):
    """How inputs become digits: (x + lift, or |x| with its sign) >> shift & mask, by cycle.

    `factors` [cycles] weigh the cycles' sums.
    """

    lift: int
    sign_magnitude: bool
    shifts: Array
    masks: Array
    factors: Array


class Epilogue(NamedTuple):
    """What follows a column sum, in int32.

    `adc` [slices, 5] are the arguments of `tiles.convert`; `scale` [groups * slices * N] the value
    of a code; `row_factors` [groups, N] how often a group's row sum is added; `start` [N].
    """

    adc: Array
    scale: Array
    row_factors: Array
    start: Array


class Layer(NamedTuple):
    """A layer as the fused kernels take it: cells of each slice, row groups, and what is around.

    `digits` and `cells` are the least and largest digit that is driven, and that a cell holds.
    """

    slices: tuple[Slice, ...]
    bounds: Array
    digits: tuple[int, int]
    cells: tuple[int, int]
    drive: Drive
    epilogue: Epilogue
    columns: int


def wrapped(values: Array) -> Array:
    """Integers modulo 2^32, as int32."""
    return np.asarray(values, np.int64).astype(np.int32)


def padded(values: Array, columns: int | None = None) -> Array:
    """Zeros behind the last axis, up to whole tiles."""
    width = values.shape[-1] if columns is None else columns
    room = np.zeros((*values.shape[:-1], -(-width // WIDTH) * WIDTH), values.dtype)
    room[..., : values.shape[-1]] = values
    return room


def converted_layer(
    cells: Cells,
    crossbar: Crossbar,
    steps: tuple[int | None, ...],
    offset: IntArray,
    bounds: tuple[IntArray, IntArray] | None,
) -> Layer | None:
    """`cells_mvm` plus `offset` [N] as fused kernels take it; None where they cannot.

    `bounds` are those proved of the outputs [N]; where None they are found from the codes.
    """
    fraction, law = cells.fraction_bits, crossbar.law
    if crossbar.fraction_bits or cells.leak or isinstance(law, StaircaseLaw):
        return None
    if fraction and any(step is None for step in steps):
        return None
    if crossbar.inputs.bits > MOST_INPUT_BITS:
        return None
    exponents = [0 if step is None else step for step in steps]
    height = len(cells.slices[0].digits)
    groups = crossbar.tiling.groups(height)
    drive = _drive(crossbar)
    factors = row_sum_factors(cells.slices, crossbar)
    reach = max(_reach(s, groups, crossbar) for s in cells.slices)
    if reach + (1 << max(exponents) + fraction) > INT32.max:
        return None
    if bounds is None:
        bounds = _code_bounds(cells, crossbar, steps, factors, offset, drive)
    if min(bounds[0].min(), -bounds[1].max()) <= INT32.min:
        return None
    signs = np.stack([s.signs for s in cells.slices], axis=1)
    shifts = np.array([s.shift + e for s, e in zip(cells.slices, exponents, strict=True)])
    epilogue = Epilogue(
        np.array([_adc(law, step, fraction) for step in steps], np.int32),
        padded(wrapped(signs << shifts[None, :, None])).reshape(-1),
        padded(wrapped(factors)),
        padded(wrapped(offset)),
    )
    edges = [(int(s.digits.min()), int(s.digits.max())) for s in cells.slices]
    held = min(lo for lo, _ in edges), max(hi for _, hi in edges)
    rows = np.array([(g.start, g.stop) for g in groups], np.int64)
    return Layer(cells.slices, rows, crossbar.digit_limits, held, drive, epilogue, offset.size)


def input_limits(crossbar: Crossbar) -> tuple[int, int]:
    """Least and largest input that a layer takes."""
    return crossbar.inputs.limits(crossbar.inputs.bits)


def _reach(cells: Slice, groups: tuple[slice, ...], crossbar: Crossbar) -> int:
    """A bound of every partial sum of a column."""
    lo, hi = crossbar.digit_limits
    parts = (np.abs(cells.digits[group].astype(np.int64)) for group in groups)
    largest = max(int(part.sum(axis=0).max()) for part in parts)
    return largest * max(-lo, hi)


def _code_bounds(
    cells: Cells,
    crossbar: Crossbar,
    steps: tuple[int | None, ...],
    factors: IntArray,
    offset: IntArray,
    drive: Drive,
) -> tuple[IntArray, IntArray]:
    """What outputs [N] come to at most when every code, or lossless sum, is the furthest."""
    counts = int(np.abs(drive.factors.astype(np.int64)).sum())
    groups = crossbar.tiling.groups(len(cells.slices[0].digits))
    ends = (0, 0) if crossbar.law is None else crossbar.law.ends
    codes = 0
    for column, step in zip(cells.slices, steps, strict=True):
        if step is None:
            furthest = _reach(column, groups, crossbar)
        else:
            furthest = max(abs(end) for end in ends) << step
        codes += (furthest << column.shift) * len(groups)
    digit = max(abs(limit) for limit in crossbar.digit_limits)
    heights = np.array([g.stop - g.start for g in groups])
    sums = (np.abs(factors) * (heights * digit)[:, None]).sum(axis=0)
    most = np.abs(offset) + (codes + sums) * counts
    return -most, most


def exact_layer(weight: IntArray, bias: IntArray, inputs: tuple[int, int]) -> Layer:
    """One integer product, modulo 2^32, as a layer of one group and slice."""
    drive, digits = exact_drive(inputs)
    cells = plain(weight, (slice(0, len(weight)),), 0)
    reach = (int(weight.min()), int(weight.max())) if weight.size else (0, 0)
    bounds = np.array([(0, len(weight))], np.int64)
    epilogue = exact_epilogue(bias - drive.lift * weight.sum(axis=0))
    return Layer((cells,), bounds, digits, reach, drive, epilogue, bias.size)


def exact_drive(inputs: tuple[int, int]) -> tuple[Drive, tuple[int, int]]:
    """How inputs within limits drive one product, and the limits of their digits.

    Those of more than a byte take two cycles, lifted to be unsigned.
    """
    lo, hi = inputs
    one = np.ones(1, np.int32)
    if hi - lo < BYTE:
        return Drive(0, False, one - 1, -one, one), inputs
    both = np.array([0, 8], np.int32)
    return Drive(-lo, False, both, np.full(2, BYTE - 1, np.int32), one << both), (0, BYTE - 1)


def exact_epilogue(start: IntArray) -> Epilogue:
    """What follows the sums of one product: nothing but `start` [N]."""
    return Epilogue(
        np.array([_LOSSLESS], np.int32),
        padded(np.ones(start.size, np.int32)),
        padded(np.zeros((1, start.size), np.int32)),
        padded(wrapped(start)),
    )


_LOSSLESS = (0, 0, 0, INT32.min, INT32.max)


def is_narrow(known: Type) -> bool:
    """Whether every value within the bounds fits 32 bits."""
    return bool(int(known.lo.min()) >= INT32.min and int(known.hi.max()) <= INT32.max)


def _adc(law: UniformLaw | None, step: int | None, fraction: int) -> tuple[int, ...]:
    """The arguments of `tiles.convert`; half to even adds one less below an even code."""
    if step is None or law is None:
        return _LOSSLESS
    step += fraction
    half = 1 << step >> 1 if law.half else 0
    even = int(law.to_even and step > 0)
    return half - even, step, even, law.lo, law.hi


def _drive(crossbar: Crossbar) -> Drive:
    cycles = crossbar.cycles
    return Drive(
        crossbar.inputs.lift,
        crossbar.inputs.sign_magnitude,
        np.array([cycle.shift for cycle in cycles], np.int32),
        np.array([cycle.mask for cycle in cycles], np.int32),
        crossbar.cycle_factors.astype(np.int32),
    )


@jit
def cut(x, first, last, drive, cycle, digits):  # type: ignore[no-untyped-def]
    """Write the digits that a cycle drives into the rows of a group; return their sum."""
    lift, shift, mask = np.int32(drive.lift), drive.shifts[cycle], drive.masks[cycle]
    total = np.int32(0)
    for k in range(last - first):
        value = np.int32(x[first + k])
        if drive.sign_magnitude:
            digit = np.int32((abs(value) >> shift) & mask)
            digit = np.int32(-digit) if value < 0 else digit
        else:
            digit = np.int32(((value + lift) >> shift) & mask)
        digits[k] = digit
        total += digit
    return np.int32(total)


@jit
def row_cycles(rows, factors, height):  # type: ignore[no-untyped-def]
    """(owners, factors) of each row and cycle, up to whole tiles of `height`; the rest are zero."""
    cycles = len(factors)
    count = -(-rows * cycles // height) * height
    owners, weights = np.zeros(count, np.int32), np.zeros(count, np.int32)
    for i in range(rows * cycles):
        owners[i] = i // cycles
        weights[i] = factors[i % cycles]
    return owners, weights


@jit
def finish(total, sums, epilogue, out):  # type: ignore[no-untyped-def]
    """Write the totals [blocks, rows, 32] as rows [rows, N], with what is added digitally.

    That are `start` and the row sums [rows, groups] times the columns' factors.
    """
    rows, width = out.shape
    summed = epilogue.row_factors.any()
    line = np.empty(WIDTH, np.int32)
    for i in range(rows):
        for b in range(total.shape[0]):
            for j in range(WIDTH):
                line[j] = total[b, i, j] + epilogue.start[b * WIDTH + j]
            if summed:
                for g in range(sums.shape[1]):
                    for j in range(WIDTH):
                        line[j] += sums[i, g] * epilogue.row_factors[g, b * WIDTH + j]
            for j in range(min(WIDTH, width - b * WIDTH)):
                out[i, b * WIDTH + j] = line[j]
