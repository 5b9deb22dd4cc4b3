"""Digits times cells of up to 8 bits, by the CPU's byte products (VNNI or AVX2).

lo moves digits to unsigned bytes, and the middle m moves cells to signed bytes:

    column sum = sum of (x - lo) (w - m)  +  lo * sum of (w - m)  +  m * sum of x
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.compiled import aligned, jit, jit_inlined
from cimtool.simulation.kernels.fields import PackedCells, in_fields, region, room_of
from cimtool.simulation.kernels.fused import (
    BYTE,
    Layer,
    converters,
    cut,
    finish,
    modulo_int32,
    ordered_reads,
    packed_groups,
    padded,
)
from cimtool.simulation.kernels.tiles import (
    BYTE_ROWS,
    DOT_BITS,
    VNNI_BITS,
    WIDTH,
    accumulate,
    add_outer,
    add_scaled,
    add_short,
    byte_tile,
    convert,
    dot_step,
    short_dot_step,
)

DEPTH = 4
"""Rows of a column in one word, a byte each."""


def fits(layer: Layer) -> bool:
    """True if the CPU has byte products and the layer fits bytes."""
    return DOT_BITS > 0 and in_bytes(layer)


def in_bytes(layer: Layer) -> bool:
    """True if a digit fits one byte, and a cell one or two."""
    digits, cells = (hi - lo for lo, hi in (layer.digit_limits, layer.cell_limits))
    return digits < BYTE and cells < BYTE * (BYTE - 1)


def pack(layer: Layer) -> PackedCells:
    """Pack the cells' bytes in the narrowest fields that hold a cell."""
    return in_fields(pack_bytes(layer), layer)


def pack_bytes(layer: Layer) -> PackedCells:
    """Cut the cells into signed bytes, four rows of a column to a word."""
    return pack_cells(
        [s.digits for s in layer.slices], layer.group_ends, layer.cell_limits, layer.digit_limits
    )


def pack_cells(
    slices: Sequence[Array],
    bounds: Array,
    limits: tuple[int, int],
    digits: tuple[int, int],
    middle: int | None = None,
) -> PackedCells:
    """Pack the cells [K, N] of each slice by row groups, for cells and digits within these limits.

    Bytes hold a cell minus `middle`. If it is None, `byte_parts` chooses it.
    """
    lowest, short = digits[0], _short(limits, digits)
    middle, count = byte_parts(limits) if middle is None else (middle, 1)
    sums: list[IntArray] = []

    def words(cells: Array) -> Array:
        group = np.subtract(cells, middle, dtype=np.int32)
        sums.append(lowest * group.sum(axis=1, dtype=np.int64))
        parts = [group] if count == 1 else [(group + 128 & 255) - 128, group + 128 >> 8]
        return _words(np.stack([part.astype(np.int8) for part in parts], axis=1))

    packed, starts = packed_groups(slices, bounds, words)
    columns = padded(modulo_int32(np.stack(sums))).reshape(-1)
    return PackedCells(
        packed,
        starts,
        bits=8,
        sign=0,
        parts=count,
        lowest=lowest,
        middle=middle,
        columns=columns,
        short=short,
    )


def _short(limits: tuple[int, int], digits: tuple[int, int]) -> int:
    """Number of words whose byte products can be added in 16 bits; 0 if that is not used."""
    middle, parts = byte_parts(limits)
    if VNNI_BITS or parts > 1:
        return 0
    largest = max(abs(edge - middle) for edge in limits) * (digits[1] - digits[0])
    return int(np.iinfo(np.int16).max // max(2 * largest, 1))


def byte_parts(limits: tuple[int, int]) -> tuple[int, int]:
    """The value in the middle of the range of cells, and the bytes per cell."""
    lo, hi = limits
    if hi - lo < BYTE:
        return 0 if lo >= -128 and hi <= 127 else lo + 128, 1
    return lo + BYTE * 128, 2


def pack_rows(
    y: Array, limits: tuple[int, int], digits: tuple[int, int]
) -> tuple[PackedCells, IntArray]:
    """Pack rows y [N, K] as one group of cells [K, N]. Also returns the sum of each row [N]."""
    middle, parts = byte_parts(limits)
    words = -(-y.shape[1] // DEPTH)
    blocks = -(-len(y) // WIDTH)
    packed = aligned(np.zeros(blocks * parts * words * WIDTH, np.int32))
    sums = np.zeros(blocks * WIDTH, np.int64)
    _pack_rows(y, middle, parts, packed.view(np.int8), sums)
    lowest, short = digits[0], _short(limits, digits)
    columns = modulo_int32(lowest * (sums - middle * y.shape[1]))
    cells = PackedCells(
        packed,
        np.zeros(1, np.int64),
        bits=8,
        sign=0,
        parts=parts,
        lowest=lowest,
        middle=middle,
        columns=columns,
        short=short,
    )
    return cells, sums[: len(y)]


@jit
def _pack_rows(y, middle, parts, packed, sums):  # type: ignore[no-untyped-def]
    height, width = y.shape
    words = -(-width // DEPTH)
    for j in range(height):
        block, lane = j // WIDTH, j % WIDTH
        total = np.int64(0)
        for k in range(width):
            value = np.int64(y[j, k])
            total += value
            rest = value - middle
            at = ((block * parts * words + k // DEPTH) * WIDTH + lane) * DEPTH + k % DEPTH
            if parts == 2:
                packed[at + words * WIDTH * DEPTH] = (rest + 128) >> 8
            packed[at] = ((rest + 128) & 255) - 128
        sums[j] = total


def _words(cells: Array) -> Array:
    """Arrange bytes [slices, parts, rows, N] as words [slice][block][part][word][32]."""
    count = -(-cells.shape[2] // DEPTH)
    room = np.zeros((*cells.shape[:2], count * DEPTH, cells.shape[3]), np.int8)
    room[:, :, : cells.shape[2]] = cells
    blocks = padded(room).reshape(*cells.shape[:2], count, DEPTH, -1, WIDTH)
    return np.ascontiguousarray(blocks.transpose(0, 4, 1, 2, 5, 3)).reshape(-1).view(np.int32)


@jit
def run(x, bounds, drive, epilogue, cells, out):  # type: ignore[no-untyped-def]
    """Compute the layer's outputs from inputs `x` [rows, K] into `out` [rows, N]."""
    rows, cycles = x.shape[0], len(drive.factors)
    reads = ordered_reads(rows, epilogue, BYTE_ROWS)
    total = np.zeros((len(epilogue.start) // WIDTH, max(rows, 1), WIDTH), np.int32)
    row_sums = np.zeros(reads.size, np.int32)
    lowest = np.int32(cells.lowest)
    sums = np.zeros((rows, len(bounds)), np.int32)
    for g in range(len(bounds)):
        first, last = bounds[g]
        words = -(-(last - first) // DEPTH)
        digits = np.zeros(words * DEPTH, np.int32)
        packed = np.zeros((reads.size // BYTE_ROWS, words, BYTE_ROWS), np.int32)
        for i in range(rows):
            for c in range(cycles):
                at = i * reads.by_row + c * reads.by_cycle
                row_sums[at] = cut(x[i], first, last, drive, c, digits)
                sums[i, g] += row_sums[at] * drive.factors[c]
                for k in range(last - first):
                    digits[k] -= lowest
                pack_read(digits, packed, at)
        _group(packed.reshape(-1), words, cells, g, row_sums, reads, epilogue, total)
    finish(total, sums, epilogue, out)


@jit
def pack_read(digits, packed, at):  # type: ignore[no-untyped-def]
    """Write digits as read `at` of `packed` [tiles, words, rows], four bytes to a word."""
    rows = packed.shape[2]
    tile, lane = packed[at // rows], at % rows
    for k in range(len(tile)):
        low = digits[DEPTH * k] | (digits[DEPTH * k + 1] << 8)
        high = digits[DEPTH * k + 2] | (digits[DEPTH * k + 3] << 8)
        tile[k, lane] = low | (high << 16)


@jit
def _group(driven, words, cells, g, row_sums, reads, epilogue, total):  # type: ignore[no-untyped-def]
    blocks, stride = len(total), reads.stride
    slices, references = epilogue.adc.shape[:2]
    flat = total.reshape(-1)
    size = cells.parts * words * WIDTH
    stored = room_of(cells, size)
    for s in range(slices):
        for b in range(blocks):
            of = region(cells, g, s * blocks + b, size, stored)
            column = ((g * slices + s) * blocks + b) * WIDTH
            for c in range(references):
                one, two, three, four, five, table = converters(epilogue.adc, epilogue.tables, s, c)
                addend = (((g * slices + s) * references + c) * blocks + b) * WIDTH
                for i in range(c * stride, (c + 1) * stride, BYTE_ROWS):
                    p = column_sums(driven, i, words, cells, stored, of, row_sums, column)
                    p = convert(p, one, two, three, four, five,
                                epilogue.addends, addend, epilogue.entries, table)  # fmt: skip
                    at, to = s * reads.size + i, b * total.shape[1] * WIDTH
                    accumulate(p, reads.values, at, reads.owners, i,
                               epilogue.signs, column, flat, to)  # fmt: skip


@jit_inlined
def _whole_products(driven, at, words, short, cells, of):  # type: ignore[no-untyped-def]
    p = byte_tile()
    for k in range(words):
        p = dot_step(p, driven, at + k * BYTE_ROWS, 1, cells, of + k * WIDTH)
    return p


@jit_inlined
def _short_products(driven, at, words, short, cells, of):  # type: ignore[no-untyped-def]
    """As `_whole_products`, but `short` words at a time are added in 16 bits."""
    if short == 0:
        return _whole_products(driven, at, words, short, cells, of)
    p = byte_tile()
    for start in range(0, words, short):
        some = byte_tile()
        for k in range(start, min(start + short, words)):
            some = short_dot_step(some, driven, at + k * BYTE_ROWS, 1, cells, of + k * WIDTH)
        p = add_short(p, some)
    return p


_products = _whole_products if VNNI_BITS else _short_products


@jit_inlined
def column_sums(driven, i, words, cells, stored, of, row_sums, column):  # type: ignore[no-untyped-def]
    """Sums of a tile of reads from `i` on and 32 columns, whose bytes start at stored[of]."""
    p = _products(driven, i * words, words, cells.short, stored, of)
    for q in range(1, cells.parts):
        more = of + q * words * WIDTH
        part = _products(driven, i * words, words, cells.short, stored, more)
        p = add_scaled(p, part, np.int32(1 << 8 * q))
    return add_outer(p, row_sums, i, np.int32(cells.middle), cells.columns, column)
