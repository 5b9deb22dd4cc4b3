"""The common parts of the fused kernels: digits, conversion behind the sums, modulo 2^32.

The sums of a tile are converted in registers and added to int32 totals. Totals wrap modulo 2^32,
which is exact where the proved range of the layer's output fits 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.compiled import aligned, jit
from cimtool.hardware.converters import StaircaseLaw, UniformLaw
from cimtool.hardware.crossbar import Cells, Crossbar
from cimtool.hardware.weight_codes import Slice, plain
from cimtool.simulation.kernels.tiles import WIDTH

INT32 = np.iinfo(np.int32)

BYTE = 256
"""Values of a byte."""


class RowDrive(NamedTuple):
    """The cut of inputs into digits: (x + lift, or its size) >> shift & mask, by cycle.

    `factors` [cycles] weigh the cycles' sums.
    """

    lift: int
    sign_magnitude: bool
    shifts: Array
    masks: Array
    factors: Array


class Epilogue(NamedTuple):
    """The steps behind a column sum, in int32.

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
    drive: RowDrive
    epilogue: Epilogue
    columns: int


def modulo_int32(values: Array) -> Array:
    """Integers modulo 2^32, as int32."""
    return np.asarray(values, np.int64).astype(np.int32)


def padded(values: Array, columns: int | None = None) -> Array:
    """Zeros behind the last axis, up to whole tiles."""
    width = values.shape[-1] if columns is None else columns
    room = np.zeros((*values.shape[:-1], -(-width // WIDTH) * WIDTH), values.dtype)
    room[..., : values.shape[-1]] = values
    return room


def packed_groups(layer: Layer, words: Callable[[Array], Array]) -> tuple[Array, Array]:
    """The words of every row group's cells [slices, rows, N], and where each group starts."""
    cells = (np.stack([s.digits[a:b] for s in layer.slices]) for a, b in layer.bounds)
    parts = [words(group).reshape(-1) for group in cells]
    starts = np.cumsum([0, *(part.size for part in parts[:-1])], dtype=np.int64)
    return aligned(np.concatenate(parts)), starts


def converted_layer(
    cells: Cells,
    steps: tuple[int | None, ...],
    offset: IntArray,
    bounds: tuple[IntArray, IntArray] | None,
) -> Layer | None:
    """`cells_mvm` plus `offset` [N] as fused kernels take it; None where they cannot.

    `bounds` are those proved of the outputs [N]; where None they are found from the codes.
    """
    crossbar, fraction, law = cells.crossbar, cells.fraction_bits, cells.crossbar.law
    if crossbar.fraction_bits or cells.leak or isinstance(law, StaircaseLaw):
        return None
    if fraction and any(step is None for step in steps):
        return None
    lo, hi = crossbar.inputs.lifted_limits
    if max(-lo, hi, int(np.abs(crossbar.cycle_factors).max())) > INT32.max:
        return None
    exponents = [0 if step is None else step for step in steps]
    drive, factors = _drive(crossbar), cells.row_sum_factors
    reach = max(_reach(cells, k) for k in range(len(cells.slices)))
    if reach + (1 << max(exponents) + fraction) > INT32.max:
        return None
    if bounds is None:
        bounds = _code_bounds(cells, steps, offset)
    if min(bounds[0].min(), -bounds[1].max()) <= INT32.min:
        return None
    signs = np.stack([s.signs for s in cells.slices], axis=1)
    shifts = np.array([s.shift + e for s, e in zip(cells.slices, exponents, strict=True)])
    epilogue = Epilogue(
        np.array([_adc(law, step, fraction) for step in steps], np.int32),
        padded(modulo_int32(signs << shifts[None, :, None])).reshape(-1),
        padded(modulo_int32(factors)),
        padded(modulo_int32(offset)),
    )
    edges = [(int(s.digits.min()), int(s.digits.max())) for s in cells.slices]
    held = min(lo for lo, _ in edges), max(hi for _, hi in edges)
    rows = np.array([(g.start, g.stop) for g in cells.groups], np.int64)
    return Layer(cells.slices, rows, crossbar.digit_limits, held, drive, epilogue, offset.size)


def _reach(cells: Cells, k: int) -> int:
    """A bound of every partial sum of slice k's columns."""
    lo, hi = cells.crossbar.digit_limits
    parts = (np.abs(cells.slices[k].digits[group].astype(np.int64)) for group in cells.groups)
    largest = max(int(part.sum(axis=0).max()) for part in parts)
    return largest * max(-lo, hi)


def _code_bounds(
    cells: Cells, steps: tuple[int | None, ...], offset: IntArray
) -> tuple[IntArray, IntArray]:
    """Bounds of outputs [N] at which every code, or lossless sum, is the furthest."""
    crossbar, codes = cells.crossbar, 0
    furthest = 0 if crossbar.law is None else max(map(abs, crossbar.law.ends))
    for k, step in enumerate(steps):
        largest = _reach(cells, k) if step is None else furthest << step
        codes += (largest << cells.slices[k].shift) * len(cells.groups)
    digit = max(map(abs, crossbar.digit_limits))
    heights = np.array([g.stop - g.start for g in cells.groups])
    sums = (np.abs(cells.row_sum_factors) * (heights * digit)[:, None]).sum(axis=0)
    most = np.abs(offset) + (codes + sums) * int(np.abs(crossbar.cycle_factors).sum())
    return -most, most


def exact_layer(weight: IntArray, bias: IntArray, inputs: tuple[int, int]) -> Layer:
    """One integer product, modulo 2^32, as a layer of one group and slice."""
    drive, digits = exact_drive(inputs)
    cells = plain(weight, (slice(0, len(weight)),), 0)
    reach = (int(weight.min()), int(weight.max())) if weight.size else (0, 0)
    bounds = np.array([(0, len(weight))], np.int64)
    epilogue = exact_epilogue(bias - drive.lift * weight.sum(axis=0))
    return Layer((cells,), bounds, digits, reach, drive, epilogue, bias.size)


def exact_drive(inputs: tuple[int, int]) -> tuple[RowDrive, tuple[int, int]]:
    """The drive of one product by inputs within limits, and the limits of its digits.

    Those of more than a byte take two cycles, lifted to be unsigned.
    """
    lo, hi = inputs
    one = np.ones(1, np.int32)
    if hi - lo < BYTE:
        return RowDrive(0, False, one - 1, -one, one), inputs
    both = np.array([0, 8], np.int32)
    return RowDrive(-lo, False, both, np.full(2, BYTE - 1, np.int32), one << both), (0, BYTE - 1)


def exact_epilogue(start: IntArray) -> Epilogue:
    """The steps behind the sums of one product: nothing but `start` [N]."""
    return Epilogue(
        np.array([_LOSSLESS], np.int32),
        padded(np.ones(start.size, np.int32)),
        padded(np.zeros((1, start.size), np.int32)),
        padded(modulo_int32(start)),
    )


_LOSSLESS = (0, 0, 0, INT32.min, INT32.max)


def _adc(law: UniformLaw | None, step: int | None, fraction: int) -> tuple[int, ...]:
    """The arguments of `tiles.convert`; half to even adds one less below an even code."""
    if step is None or law is None:
        return _LOSSLESS
    step += fraction
    half = 1 << step >> 1 if law.half else 0
    even = int(law.to_even and step > 0)
    return half - even, step, even, law.lo, law.hi


def _drive(crossbar: Crossbar) -> RowDrive:
    cycles = crossbar.cycles
    return RowDrive(
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
        value = np.int32(np.int32(x[first + k]) + lift)
        if drive.sign_magnitude:
            digit = np.int32((abs(value) >> shift) & mask)
            digit = np.int32(-digit) if value < 0 else digit
        else:
            digit = np.int32((value >> shift) & mask)
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
