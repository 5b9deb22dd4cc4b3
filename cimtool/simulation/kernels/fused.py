"""The common parts of the fused kernels: digits, conversion behind the sums, modulo 2^32.

A tile's sums are converted in registers and added to int32 totals. Totals wrap modulo 2^32. That is
exact if the proved range of the layer's output fits 32 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.compiled import aligned, jit, jit_inlined
from cimtool.hardware.converted_layer import ConvertedColumns, ConvertedLayer
from cimtool.hardware.converters import StaircaseLaw
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.weight_codes import Slice, plain
from cimtool.simulation.kernels.staircases import tables_of
from cimtool.simulation.kernels.tiles import WIDTH

INT32 = np.iinfo(np.int32)

BYTE = 256
"""Number of values of a byte."""


class RowDrive(NamedTuple):
    """The digits of inputs in each cycle: (x + lift) >> shift & mask.

    If `sign_magnitude`, the magnitude of x + lift is cut and the digit gets its sign. `factors`
    [cycles] weight the cycles.
    """

    lift: int
    sign_magnitude: bool
    shifts: Array
    masks: Array
    factors: Array


class Epilogue(NamedTuple):
    """The steps from a column sum to the output, in int32.

    `adc` [slices, cycles or 1, 5]: the five numbers of `tiles.convert`.
    `addends` [groups * slices * cycles or 1 * N]: empty if converters count from zero with steps
    that are powers of two.
    `tables` [slices, cycles or 1]: the first of a converter's levels in `entries`; -1 if the code
    itself is used. Both are empty if no converter has levels.
    `values` [slices, cycles], `signs` [groups * slices * N], `unit`: a code is multiplied by all
    three.
    `row_factors` [groups, N]: a group's row sum is multiplied by them and added; `start` [N] is
    added too.
    `places`: binary places of the total, which is rounded half up.
    `narrow`: codes that count from zero fit 16 bits even before they are clipped, and so do their
    factors.
    """

    adc: Array
    addends: Array
    tables: Array
    entries: Array
    places: int
    unit: int
    narrow: bool
    values: Array
    signs: Array
    row_factors: Array
    start: Array


NOTHING_SET = np.zeros(0, np.int32), np.zeros((0, 0), np.int64), np.zeros(0, np.int32)
"""Empty `addends`, `tables` and `entries` of an `Epilogue`."""


class Layer(NamedTuple):
    """A layer as the fused kernels take it.

    `group_ends` [groups, 2] are the first row of each row group, and the row after its last. The
    limits are the least and the largest value of a driven digit and of a cell.
    """

    slices: tuple[Slice, ...]
    group_ends: Array
    digit_limits: tuple[int, int]
    cell_limits: tuple[int, int]
    drive: RowDrive
    epilogue: Epilogue
    columns: int


def modulo_int32(values: Array) -> Array:
    """Integers modulo 2^32, as int32."""
    return np.asarray(values, np.int64).astype(np.int32)


def padded(values: Array, columns: int | None = None) -> Array:
    """Pad the last axis with zeros to whole tiles."""
    width = values.shape[-1] if columns is None else columns
    room = np.zeros((*values.shape[:-1], -(-width // WIDTH) * WIDTH), values.dtype)
    room[..., : values.shape[-1]] = values
    return room


def packed_groups(
    slices: Sequence[Array], bounds: Array, words: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Apply `words` to each row group's cells [slices, rows, N]; returns words and group starts."""
    alone = len(slices) == 1  # np.stack copies
    cells = (
        slices[0][None, a:b] if alone else np.stack([digits[a:b] for digits in slices])
        for a, b in bounds
    )
    parts = [words(group).reshape(-1) for group in cells]
    starts = np.cumsum([0, *(part.size for part in parts[:-1])], dtype=np.int64)
    return aligned(np.concatenate(parts)), starts


def fused_layer(
    layer: ConvertedLayer, bounds: tuple[IntArray, IntArray] | None, noise: int = 0
) -> Layer | None:
    """Prepare a converted layer for the fused kernels; None if they cannot take it.

    `bounds` are proved bounds of the outputs [N]; if None, they come from the codes' limits.
    `noise` is the most that is added to a sum before its conversion.
    """
    cells, crossbar, columns = layer.cells, layer.crossbar, layer.of_slices
    if crossbar.fraction_bits or cells.leak:
        return None
    if cells.fraction_bits and any(one.law is None for one in columns):
        return None
    if any(one.law is not None for one in layer.columns[len(columns) :]):
        return None  # a unit column with a converter
    lo, hi = crossbar.inputs.lifted_limits
    if max(-lo, hi, int(np.abs(crossbar.cycle_factors).max())) > INT32.max:
        return None
    if bounds is None:
        bounds = _code_bounds(layer)
    if min(bounds[0].min(), -bounds[1].max()) <= INT32.min >> crossbar.reference_bits:
        return None
    of_table = isinstance(crossbar.law, StaircaseLaw)
    form = _from_offsets if crossbar.scope.set or of_table else _from_zero
    epilogue = form(layer, max(one.reach for one in columns) + noise)
    if epilogue is None:
        return None
    edges = [(int(s.digits.min()), int(s.digits.max())) for s in cells.slices]
    held = min(lo for lo, _ in edges), max(hi for _, hi in edges)
    rows = np.array([(g.start, g.stop) for g in cells.groups], np.int64)
    digits, width = crossbar.digit_limits, len(layer.bias)
    return Layer(cells.slices, rows, digits, held, _drive(crossbar), epilogue, width)


def _values(layer: ConvertedLayer, steps: Sequence[int]) -> Array:
    """The weights [slices, cycles] of codes, from the steps of the references."""
    of_slices = np.array(steps, np.int64).reshape(len(layer.cells.slices), -1)
    return modulo_int32(of_slices * layer.crossbar.cycle_factors)


def _units(values: Array) -> tuple[int, Array]:
    """The greatest common divisor of all values, and the values divided by it."""
    whole = values.astype(np.int64)
    unit = max(int(np.gcd.reduce(whole, axis=None)), 1)
    return unit, modulo_int32(whole // unit)


def _narrow(adc: Array, reach: int, values: Array, signs: Array) -> bool:
    """True if codes of sums up to `reach`, and their factors, fit 16 bits.

    Also no tie may round to the even code, and no step may exceed 2^16.
    """
    _, steps, even, *limits = adc.T.astype(np.int64)
    largest = max(int(np.abs(one).max()) for one in limits)
    furthest = (reach >> int(steps.min())) + 2
    counted = math.prod(int(np.abs(one.astype(np.int64)).max()) for one in (values, signs))
    fits = max(largest, furthest, counted) <= np.iinfo(np.int16).max
    return bool(fits and steps.max() <= 16 and not even.any())


def _from_zero(layer: ConvertedLayer, reach: int) -> Epilogue | None:
    """Conversions of sums up to `reach` that count from zero with steps that are powers of two."""
    cells, columns = layer.cells, layer.of_slices
    steps = [int(one.step[0, 0]) for one in columns]
    if any(step & step - 1 for step in steps) or reach + max(*steps, 1) > INT32.max:
        return None
    adc = np.array([_adc(one) for one in columns], np.int32)
    unit, values = _units(_values(layer, [step >> cells.finer or 1 for step in steps]))
    signs = modulo_int32(cells.counts)
    return Epilogue(
        adc.reshape(len(cells.slices), -1, adc.shape[1]),
        *NOTHING_SET,
        places=0,
        unit=unit,
        narrow=_narrow(adc, reach, values, signs),
        values=values,
        signs=padded(signs).reshape(-1),
        row_factors=padded(modulo_int32(cells.row_sum_factors)),
        start=padded(modulo_int32(layer.bias)),
    )


def _from_offsets(layer: ConvertedLayer, reach: int) -> Epilogue | None:
    """Conversions of sums up to `reach` with any step S and offset O. R are the references' places:

        code - lo = clip((p << R) - O - lo S + half, 0, codes S - 1) // S

    lo S + O does not depend on the input, so its share of the output is part of `start`. For a
    staircase the quotient is a place in its table. Its thresholds are in 2^-F of a step:

        place = clip((p << R << F) - (O << F) - first S, 0, entries S - 1) // S

    None if a quotient has no reciprocal in 32 bits, if ties round to the even code, or if columns
    have steps of their own.
    """
    cells, crossbar, columns = layer.cells, layer.crossbar, layer.of_slices
    rise, width = crossbar.reference_bits, len(layer.bias)
    arguments, addends, steps, lowest = [], [], [], []
    begins, tables = [], tables_of([one.law for one in columns])
    for i, one in enumerate(columns):
        law, step, fine, zero = one.law, one.one_step, rise, one.offset
        if step is None:
            return None
        half, begin = 0, -1
        if isinstance(law, StaircaseLaw):
            fine += law.places
            begin, last = tables.spans[i].tolist()
            count, least = last + 1, (zero << law.places) + int(tables.firsts[i]) * step
        elif law is not None:
            if law.to_even:
                return None
            half = step >> 1 if law.half else 0
            count = law.hi + 1 - law.lo
            least = zero = zero + law.lo * step
        else:
            # A lossless sum is its own code. It counts from the least sum, so it is never negative.
            step, count = 1 << cells.finer, (2 * reach << rise) + 1
            least = zero = np.full_like(zero, -reach << rise)
        divisor = reciprocal(step, count * step - 1)
        farthest = (reach << fine) + int(np.abs(least).max()) + half
        if divisor is None or max(farthest, count * step) > INT32.max:
            return None
        arguments.append((fine, count * step - 1, *divisor))
        addends.append(half - least)
        lowest.append(np.broadcast_to(zero >> cells.finer, (len(zero), width)))
        steps.append(step >> cells.finer)
        begins.append(begin)
    signs, slices = cells.counts, len(cells.slices)
    least = np.stack(lowest, axis=1).reshape(len(signs), slices, -1, width)
    drives = crossbar.cycle_factors.reshape(-1, least.shape[2]).sum(axis=0)
    constant = (signs * np.einsum("gkcn,c->gkn", least, drives)).sum(axis=(0, 1))
    levels = np.array(begins, np.int64).reshape(slices, -1)
    unit, values = _units(_values(layer, steps))
    return Epilogue(
        adc=np.array(arguments, np.int32).reshape(slices, -1, len(arguments[0])),
        addends=padded(modulo_int32(np.stack(addends, axis=1))).reshape(-1),
        tables=levels if max(begins) >= 0 else NOTHING_SET[1],
        entries=modulo_int32(tables.entries),
        places=rise,
        unit=unit,
        narrow=False,
        values=values,
        signs=padded(modulo_int32(signs)).reshape(-1),
        row_factors=padded(modulo_int32(cells.row_sum_factors << rise)),
        start=padded(modulo_int32(constant + (layer.bias << rise))),
    )


def reciprocal(divisor: int, largest: int) -> tuple[int, int, int] | None:
    """(down, M, t) with x // divisor = ((x >> down) M mod 2^32) >> t for 0 <= x <= largest.

    With divisor = m 2^down and odd m, M = ceil(2^t / m) is right if
    (M m - 2^t) (largest >> down) < 2^t. The product must fit 32 bits. None if no t satisfies both.
    """
    down = (divisor & -divisor).bit_length() - 1
    odd, most = divisor >> down, largest >> down
    if odd == 1:
        return down, 1, 0
    for t in range(31, 0, -1):
        factor = -(-(1 << t) // odd)
        small = factor * most < 1 << 32 and factor <= INT32.max
        if small and (factor * odd - (1 << t)) * most < 1 << t:
            return down, factor, t
    return None


def _code_bounds(layer: ConvertedLayer) -> tuple[IntArray, IntArray]:
    """Bounds of outputs [N] if every code or lossless sum has its largest magnitude."""
    cells, crossbar, again = layer.cells, layer.crossbar, layer.crossbar.reference_cycles
    largest = []
    for one in layer.of_slices:
        far = one.reach
        if one.law is not None:
            furthest = max(map(abs, one.law.ends))
            far = furthest * int(one.step.max()) + int(np.abs(one.offset).max())
            far = (far >> crossbar.reference_bits + cells.finer) + 1
        largest.append(far * abs(one.cells.worth))
    of_slices = (max(largest[k : k + again]) for k in range(0, len(largest), again))
    codes = sum(of_slices) * len(cells.groups)
    digit = max(map(abs, crossbar.digit_limits))
    sums = (np.abs(cells.row_sum_factors) * (cells.heights * digit)[:, None]).sum(axis=0)
    most = np.abs(layer.bias) + (codes + sums) * int(np.abs(crossbar.cycle_factors).sum())
    return -most, most


def exact_layer(weight: IntArray, bias: IntArray, inputs: tuple[int, int]) -> Layer:
    """Express one integer product, modulo 2^32, as a layer of one row group and one slice."""
    drive, digits = exact_drive(inputs)
    cells = plain(weight, (slice(0, len(weight)),), 0)
    reach = (int(weight.min()), int(weight.max())) if weight.size else (0, 0)
    bounds = np.array([(0, len(weight))], np.int64)
    epilogue = exact_epilogue(drive, bias - drive.lift * weight.sum(axis=0))
    return Layer((cells,), bounds, digits, reach, drive, epilogue, bias.size)


def exact_drive(inputs: tuple[int, int]) -> tuple[RowDrive, tuple[int, int]]:
    """The drive of one product with inputs within limits, and the limits of its digits.

    If inputs need more than a byte, they are lifted to be unsigned and take two cycles.
    """
    lo, hi = inputs
    one = np.ones(1, np.int32)
    if hi - lo < BYTE:
        return RowDrive(0, False, one - 1, -one, one), inputs
    both = np.array([0, 8], np.int32)
    return RowDrive(-lo, False, both, np.full(2, BYTE - 1, np.int32), one << both), (0, BYTE - 1)


def exact_epilogue(drive: RowDrive, start: IntArray) -> Epilogue:
    """The steps behind the sums of one product: they only add `start` [N]."""
    return Epilogue(
        np.array([[_LOSSLESS]], np.int32),
        *NOTHING_SET,
        places=0,
        unit=1,
        narrow=False,
        values=drive.factors[None],
        signs=padded(np.ones(start.size, np.int32)),
        row_factors=padded(np.zeros((1, start.size), np.int32)),
        start=padded(modulo_int32(start)),
    )


_LOSSLESS = (0, 0, 0, INT32.min, INT32.max)


def _adc(columns: ConvertedColumns) -> tuple[int, ...]:
    """The five numbers of `tiles.convert`. Half to even adds one less below even codes."""
    law, step = columns.law, columns.exponent
    if law is None:
        return _LOSSLESS
    assert not isinstance(law, StaircaseLaw)
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
    """Write the digits that a cycle drives into rows first..last of a group; returns their sum."""
    lift, shift, mask = np.int32(drive.lift), drive.shifts[cycle], drive.masks[cycle]
    own, total = x[first:last], np.int32(0)
    if drive.sign_magnitude:
        for k in range(len(own)):
            value = np.int32(np.int32(own[k]) + lift)
            digit = np.int32((abs(value) >> shift) & mask)
            digits[k] = np.int32(-digit) if value < 0 else digit
            total += digits[k]
    else:
        for k in range(len(own)):
            digits[k] = np.int32((np.int32(np.int32(own[k]) + lift) >> shift) & mask)
            total += digits[k]
    return np.int32(total)


class Reads(NamedTuple):
    """The order of reads in tiles. A read is one row of inputs in one cycle.

    Row i and cycle c have the read i * `by_row` + c * `by_cycle`. Each run of `stride` reads is
    whole tiles and shares its references; padding reads have the value 0. `owners` [size] are the
    reads' rows of inputs, `values` [slices * size] the weights of their codes.
    """

    by_row: int
    by_cycle: int
    stride: int
    size: int
    owners: Array
    values: Array


@jit
def ordered_reads(rows, epilogue, height):  # type: ignore[no-untyped-def]
    """Order the reads in tiles of `height` rows."""
    slices, cycles = epilogue.values.shape
    references = epilogue.adc.shape[1]
    by_row, by_cycle, stride = cycles, 1, -(-rows * cycles // height) * height
    if references > 1:
        stride = -(-rows // height) * height
        by_row, by_cycle = 1, stride
    size = references * stride
    owners, values = np.zeros(size, np.int32), np.zeros(slices * size, np.int32)
    for i in range(rows):
        for c in range(cycles):
            at = i * by_row + c * by_cycle
            owners[at] = i
            for k in range(slices):
                values[k * size + at] = epilogue.values[k, c]
    return Reads(by_row, by_cycle, stride, size, owners, values)


@jit_inlined
def converters(adc, tables, s, c):  # type: ignore[no-untyped-def]
    """The five numbers of `tiles.convert` for slice s and cycle c, and the start of its table.

    They come from `adc` and `tables` of an `Epilogue`. Callers fetch them outside inner loops,
    because taking an array from a tuple costs as much as some conversions.
    """
    table = tables[s, c] if len(tables) else np.int64(-1)
    return adc[s, c, 0], adc[s, c, 1], adc[s, c, 2], adc[s, c, 3], adc[s, c, 4], table


@jit
def finish(total, sums, epilogue, out):  # type: ignore[no-untyped-def]
    """Write the totals [blocks, rows, 32] to `out` [rows, N] and add the digital terms.

    These are `start` and the row sums [rows, groups] times `row_factors`.
    """
    rows, width = out.shape
    places, half = np.int32(epilogue.places), np.int32(1 << epilogue.places >> 1)
    unit = np.int32(epilogue.unit)
    summed = epilogue.row_factors.any()
    line = np.empty(len(epilogue.start), np.int32)
    for i in range(rows):
        for b in range(len(total)):
            block = slice(b * WIDTH, (b + 1) * WIDTH)
            own, start, of_block = total[b, i], epilogue.start[block], line[block]
            for j in range(WIDTH):
                of_block[j] = own[j] * unit + start[j]
        if summed:
            for g in range(sums.shape[1]):
                row_sum, factors = sums[i, g], epilogue.row_factors[g]
                for j in range(len(line)):
                    line[j] += row_sum * factors[j]
        to = out[i]
        for j in range(width):
            to[j] = np.int32(line[j] + half) >> places
