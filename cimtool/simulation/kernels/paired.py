"""Bit-serial byte products: one byte holds the digits of two cycles, and products add in 16 bits.

Digits x and y have one bit, cells w are 0 to 7. The kernel adds so few products at a time that in

    sum of (x + 128 y) w  =  sum of x w  +  128 * sum of y w

the first part is below 128 and the total fits 14 bits. A mask and a shift separate the two parts.
"""

from __future__ import annotations

import numpy as np

from cimtool.base.compiled import cpu_has, jit
from cimtool.simulation.kernels.dot import DEPTH, pack_cells, pack_read
from cimtool.simulation.kernels.fields import PackedCells, in_fields, region, room_of
from cimtool.simulation.kernels.fused import Layer, converters, cut, finish
from cimtool.simulation.kernels.tiles import (
    PAIR_ROWS,
    PART_BITS,
    SHORT_SUMS,
    WIDTH,
    accumulate,
    add_high,
    add_low,
    add_outer,
    convert,
    pair_tile,
    short_dot_step,
)

FASTER = SHORT_SUMS and not cpu_has("avx512vpopcntdq")
"""True if the kernel pays. If the CPU counts bits in vectors, `popcount` is faster."""

SMALLEST_CELL, LARGEST_CELL = 2, 7
"""Limits of the largest cell. Below, counting bits is as fast. Above, too few products can be added
at a time for a gain."""


def fits(layer: Layer) -> bool:
    """True if one-bit cycles, an even number, share references, and cells have few bits."""
    cycles, references = len(layer.drive.factors), layer.epilogue.adc.shape[1]
    few = SMALLEST_CELL <= _largest(layer) <= LARGEST_CELL
    return FASTER and layer.digit_limits == (0, 1) and cycles % 2 == 0 and references == 1 and few


def _largest(layer: Layer) -> int:
    """The largest cell minus the least one or 0."""
    lo, hi = layer.cell_limits
    return hi - min(lo, 0)


def pack(layer: Layer) -> PackedCells:
    """Pack as `dot` does, with no byte below 0."""
    slices, least = [s.digits for s in layer.slices], min(layer.cell_limits[0], 0)
    cells = in_fields(
        pack_cells(slices, layer.group_ends, layer.cell_limits, layer.digit_limits, least), layer
    )
    return cells._replace(short=((1 << PART_BITS) - 1) // (2 * _largest(layer)))


@jit
def run(x, bounds, drive, epilogue, cells, out):  # type: ignore[no-untyped-def]
    """Compute the layer's outputs from inputs `x` [rows, K] into `out` [rows, N]."""
    rows, pairs = len(x), len(drive.factors) // 2
    total = np.zeros((len(epilogue.start) // WIDTH, max(rows, 1), WIDTH), np.int32)
    # First come the reads of the first cycle of every pair, then those of the second cycle.
    size = -(-rows * pairs // PAIR_ROWS) * PAIR_ROWS
    slices = epilogue.adc.shape[0]
    owners, values = np.zeros(2 * size, np.int32), np.zeros(slices * 2 * size, np.int32)
    for i in range(rows):
        for c in range(2 * pairs):
            at = c % 2 * size + i * pairs + c // 2
            owners[at] = i
            for s in range(slices):
                values[s * 2 * size + at] = epilogue.values[s, c]
    row_sums, sums = np.zeros(2 * size, np.int32), np.zeros((rows, len(bounds)), np.int32)
    for g in range(len(bounds)):
        first, last = bounds[g]
        words = -(-(last - first) // DEPTH)
        one, other = np.zeros((2, words * DEPTH), np.int32)
        packed = np.zeros((size // PAIR_ROWS, words, PAIR_ROWS), np.int32)
        for i in range(rows):
            for c in range(pairs):
                at = i * pairs + c
                row_sums[at] = cut(x[i], first, last, drive, 2 * c, one)
                row_sums[size + at] = cut(x[i], first, last, drive, 2 * c + 1, other)
                sums[i, g] += row_sums[at] * drive.factors[2 * c]
                sums[i, g] += row_sums[size + at] * drive.factors[2 * c + 1]
                for k in range(last - first):
                    one[k] += other[k] << PART_BITS
                pack_read(one, packed, at)
        _group(packed.reshape(-1), words, cells, g, row_sums, owners, values, epilogue, total)
    finish(total, sums, epilogue, out)


@jit
def _group(driven, words, cells, g, row_sums, owners, values, epilogue, total):  # type: ignore[no-untyped-def]
    """Convert the column sums of a row group's pairs of reads and add the codes to `total`."""
    blocks, slices, reads = len(total), epilogue.adc.shape[0], len(owners)
    flat, size, stored = total.reshape(-1), words * WIDTH, room_of(cells, words * WIDTH)
    middle, short, columns = np.int32(cells.middle), cells.short, cells.columns
    for s in range(slices):
        one, two, three, four, five, table = converters(epilogue.adc, epilogue.tables, s, 0)
        for b in range(blocks):
            of = region(cells, g, s * blocks + b, size, stored)
            column, to = ((g * slices + s) * blocks + b) * WIDTH, b * total.shape[1] * WIDTH
            for i in range(0, reads // 2, PAIR_ROWS):
                low, high = pair_tile(), pair_tile()
                for start in range(0, words, short):
                    some = pair_tile()
                    for k in range(start, min(start + short, words)):
                        at = i * words + k * PAIR_ROWS
                        some = short_dot_step(some, driven, at, 1, stored, of + k * WIDTH)
                    low, high = add_low(low, some), add_high(high, some)
                low = add_outer(low, row_sums, i, middle, columns, column)
                low = convert(low, one, two, three, four, five,
                              epilogue.addends, column, epilogue.entries, table)  # fmt: skip
                accumulate(low, values, s * reads + i, owners, i,
                           epilogue.signs, column, flat, to)  # fmt: skip
                again = reads // 2 + i
                high = add_outer(high, row_sums, again, middle, columns, column)
                high = convert(high, one, two, three, four, five,
                               epilogue.addends, column, epilogue.entries, table)  # fmt: skip
                accumulate(high, values, s * reads + again, owners, again,
                           epilogue.signs, column, flat, to)  # fmt: skip
