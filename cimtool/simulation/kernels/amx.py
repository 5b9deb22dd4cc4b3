"""Digits times cells of up to 8 bits in the tile registers of AMX, on Linux.

The bytes are those of `dot`. Two tile registers of 16 reads and 64 digits each times two of 64
cells of 16 columns give the sums of 32 reads and 32 columns. Sums go through the first cache to
the vector registers, where they are converted while the tile registers make the next ones.
"""

from __future__ import annotations

import ctypes
import platform
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from cimtool.base.compiled import aligned, cpu_has, jit, jit_inlined
from cimtool.simulation.kernels import dot
from cimtool.simulation.kernels.dot import DEPTH, in_bytes
from cimtool.simulation.kernels.fields import PackedCells, in_fields, unpack, zero_bytes
from cimtool.simulation.kernels.fused import Layer, converters, finish
from cimtool.simulation.kernels.tiles import (
    LANES,
    STORED_ROWS,
    WIDTH,
    VectorPlaces,
    call,
    convert_stored,
    cut_line,
)

TILE_ROWS, TILE_BYTES = 16, 64
"""Rows of a tile register, and the bytes of each."""

READS = 2 * TILE_ROWS
"""Reads whose sums are made at a time."""

ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18
"""Linux's numbers: of the call, of a request for registers, of those of tiles."""


def allowed() -> bool:
    """Ask Linux for the tile registers, which it grants to a whole process; False without them."""
    if platform.system() != "Linux" or not (cpu_has("amx-tile") and cpu_has("amx-int8")):
        return False
    asked = map(ctypes.c_long, (ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA))
    return bool(ctypes.CDLL(None).syscall(*asked) == 0)


ALLOWED = allowed()


def fits(layer: Layer) -> bool:
    """True where the CPU has tile registers, and digits and cells are bytes."""
    return ALLOWED and in_bytes(layer)


def pack(layer: Layer) -> PackedCells:
    """The bytes of `dot` in the narrowest fields that hold a cell, slices of a block together."""
    cells = in_fields(dot.pack_bytes(layer), layer, blocks_first=True)
    # What the last tile reads behind the cells is multiplied by zeros.
    behind = np.zeros(TILE_ROWS * WIDTH, np.int32)
    return cells._replace(words=aligned(np.concatenate([cells.words, behind])))


@jit
def run(x, bounds, drive, epilogue, cells, out):  # type: ignore[no-untyped-def]
    """The layer's outputs [rows, N] of inputs `x` [rows, K], into `out`."""
    rows, cycles = x.shape[0], len(drive.factors)
    # The cycles of a row are side by side where they fill the reads that are converted at a time,
    # and share a reference; else each cycle has its own tiles.
    together = cycles % STORED_ROWS == 0 and epilogue.adc.shape[1] == 1
    turn = -(-(rows * cycles if together else rows) // READS) * READS
    by_row, by_cycle = (cycles, 1) if together else (1, turn)
    reads = turn if together else cycles * turn
    lines = -(-rows // STORED_ROWS) * STORED_ROWS
    total = np.zeros((len(epilogue.start) // WIDTH, max(lines, 1), WIDTH), np.int32)
    row_sums, owners = np.zeros(reads, np.int32), np.full(reads, -1, np.int64)
    for i in range(rows):
        for c in range(cycles):
            owners[i * by_row + c * by_cycle] = i * cycles + c
    sums = np.zeros((rows, len(bounds)), np.int32)
    flat, width, lowest = x.reshape(-1), x.shape[1], np.int32(cells.lowest)
    lift, signs = np.int32(drive.lift), np.int32(-1 if drive.sign_magnitude else 0)
    shifts, masks, factors = drive.shifts, drive.masks, drive.factors
    configure()
    for g in range(len(bounds)):
        first, last = bounds[g]
        steps = -(-(last - first) // TILE_BYTES)
        driven = zero_bytes(reads * steps * TILE_BYTES)
        for i in range(rows):
            for c in range(cycles):
                at = i * by_row + c * by_cycle
                row_sums[at] = _drive(flat, i * width + first, last - first,
                                      lift, shifts[c], masks[c], signs, lowest,
                                      driven, steps, at)  # fmt: skip
                sums[i, g] += row_sums[at] * factors[c]
        words = -(-(last - first) // DEPTH)
        _group(driven, steps, words, cells, g, row_sums, owners, together, epilogue, total)
    release()
    finish(total, sums, epilogue, out)


@jit_inlined
def _drive(x, start, width, lift, shift, mask, signs, lowest, driven, steps, at):  # type: ignore[no-untyped-def]
    """Write digits above the lowest as read `at` of `driven`, bytes [reads / 32][steps][32][64].

    Returns the sum of the digits of the inputs from `start` on.
    """
    total = np.int32(0)
    for k in range(steps):
        line = ((at // READS * steps + k) * READS + at % READS) * TILE_BYTES
        own, rest = start + k * TILE_BYTES, width - k * TILE_BYTES
        if rest >= TILE_BYTES:
            total += cut_line(x, own, lift, shift, mask, signs, lowest, driven, line)
        else:
            for j in range(rest):
                value = np.int32(x[own + j] + lift)
                sign = np.int32(value >> 31) & signs
                digit = (np.int32((value ^ sign) - sign) >> shift) & mask
                digit = np.int32((digit ^ sign) - sign)
                driven[line + j] = digit - lowest
                total += digit
    return np.int32(total)


@jit
def _group(driven, steps, words, cells, g, row_sums, owners, together, epilogue, total):  # type: ignore[no-untyped-def]
    """Add to `total` what a row group makes of its reads.

    The sums of a tile are converted while the tile registers make those of the next. `owners` are
    the reads' cycles, counted from the first of the first row of inputs; -1 of none.
    """
    blocks, (slices, references) = len(total), epilogue.adc.shape[:2]
    cycles, lines = epilogue.values.shape[1], total.shape[1]
    tiles, flat = len(owners) // READS, total.reshape(-1)
    rows, turns = owners // cycles, owners % cycles
    # Arrays are taken from their tuples here, for in the loop that takes longer than conversions.
    adc, tables, addends = epilogue.adc, epilogue.tables, epilogue.addends
    values, signs, entries = epilogue.values.reshape(-1), epilogue.signs, epilogue.entries
    stored, columns, narrow = cells.words, cells.columns, epilogue.narrow
    parts, middle, start = cells.parts, cells.middle, cells.starts[g]
    step, size = READS * TILE_BYTES, words * WIDTH
    bits, sign = cells.bits, cells.sign
    extent = (cells.starts[g + 1] - start) // max(slices * blocks, 1)
    # Where fields are narrower than bytes, those of a block and of the next are unpacked in turn.
    unpacked = extent * (8 // bits)
    held, of, apart = stored, start, extent
    if bits < 8:
        held, of, apart = (
            zero_bytes(4 * (2 * unpacked + TILE_ROWS * WIDTH)).view(np.int32),
            0,
            unpacked,
        )
    p = zero_bytes(4 * parts * READS * WIDTH).view(np.int32)
    block, tile, s, b, made = 0, 0, 0, 0, 0
    if tiles > 0:
        if bits < 8:
            unpack(stored, start, extent, bits, sign, held, 0)
        load_operands(driven, 0, held, of)
    for n in range(slices * blocks * tiles + min(tiles, 1)):
        more, first = block < slices * blocks, made * READS
        at = tile * steps * step
        r = turns[first] if references > 1 else 0
        column = ((g * slices + s) * blocks + b) * WIDTH
        addend = (((g * slices + s) * references + r) * blocks + b) * WIDTH
        one, two, three, four, five, table = converters(adc, tables, s, r)
        if n > 0 and (parts > 1 or middle != 0):
            _complete(p, parts, middle, row_sums, first)
        if more:
            clear()
        # In turns, for a processor looks ahead by less than all that is done for a tile; operands
        # are loaded ahead of the stores that their loads would wait for.
        for k in range(max(steps, READS // STORED_ROWS)):
            if more and k < steps:
                multiply()
                if k < steps - 1:
                    to = of + (k + 1) * TILE_ROWS * WIDTH
                    load_operands(driven, at + (k + 1) * step, held, to)
            i = first + k * STORED_ROWS
            if n > 0 and k < READS // STORED_ROWS and rows[i] >= 0:
                value, to = s * cycles + turns[i], (b * lines + rows[i]) * WIDTH
                convert_stored(p, k * STORED_ROWS * WIDTH, one, two, three, four, five,
                               addends, addend, entries, table,
                               columns, column, values, value, together, narrow,
                               signs, flat, to)  # fmt: skip
        if n > 0:
            made += 1
            if made == tiles:
                made, s = 0, s + 1
                if s == slices:
                    s, b = 0, b + 1
        if more:
            for q in range(1, parts):
                store_products(p, (q - 1) * READS * WIDTH)
                clear()
                for k in range(steps):
                    to = of + q * size + k * TILE_ROWS * WIDTH
                    load_operands(driven, at + k * step, held, to)
                    multiply()
            tile += 1
            if tile == tiles:
                tile, block = 0, block + 1
                of = of + apart if bits == 8 else unpacked - of
                if bits < 8 and block < slices * blocks:
                    unpack(stored, start + block * extent, extent, bits, sign, held, of)
            if block < slices * blocks:
                load_operands(driven, tile * steps * step, held, of)
            store_products(p, (parts - 1) * READS * WIDTH)


@jit
def _complete(p, parts, middle, row_sums, first):  # type: ignore[no-untyped-def]
    """Make the column sums of 32 reads from `first` on of the products of their cells' bytes."""
    size = READS * WIDTH
    for i in range(READS):
        line, added = p[i * WIDTH : (i + 1) * WIDTH], np.int32(row_sums[first + i] * middle)
        for j in range(WIDTH):
            line[j] += added
        if parts > 1:
            high = p[size + i * WIDTH : size + (i + 1) * WIDTH]
            for j in range(WIDTH):
                line[j] += high[j] << 8


def _operation(builder: Any, name: str, *arguments: Any) -> None:
    call(builder, f"llvm.x86.{name}", ir.VoidType(), *arguments)


def _register(number: int) -> Any:
    return ir.Constant(ir.IntType(8), number)


@intrinsic
def configure(typing):  # type: ignore[no-untyped-def]
    """Give all eight tile registers 16 rows of 64 bytes, in this thread."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        palette, widths = [1, *[0] * 15], [TILE_BYTES, 0] * 8 + [0] * 16
        values = bytearray(palette + widths + [TILE_ROWS] * 8 + [0] * 8)
        kind = ir.ArrayType(ir.IntType(8), len(values))
        constant = ir.Constant(kind, values)
        place = cgutils.global_constant(builder.module, "tile_registers", constant)
        _operation(builder, "ldtilecfg", builder.bitcast(place, ir.IntType(8).as_pointer()))
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def release(typing):  # type: ignore[no-untyped-def]
    """Give the tile registers back: Linux need not save them any more."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        _operation(builder, "tilerelease")
        return context.get_dummy_value()

    return types.void(), emit


QUARTERS = [(m, n) for m in range(2) for n in range(2)]
"""The tile registers of sums: those of 16 reads m and 16 columns n."""


def _move(arrays: VectorPlaces, name: str, register: int, place: Any, stride: int) -> None:
    apart = ir.Constant(ir.IntType(64), stride)
    _operation(arrays.builder, name, _register(register), place, apart)


@intrinsic
def clear(typing):  # type: ignore[no-untyped-def]
    """Set the sums of the tile registers to zero."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        for m, n in QUARTERS:
            _operation(builder, "tilezero", _register(2 * m + n))
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def load_operands(typing, driven, at, cells, of):  # type: ignore[no-untyped-def]
    """Fill tile registers with 64 digits of 32 reads and cells of 32 columns.

    Unsigned bytes `driven` [32, 64] begin at `at`; signed ones at word `of` of `cells`, 16 words of
    32 columns.
    """

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = VectorPlaces(context, builder, signature.args)

        def load(register: int, argument: int, after: int, stride: int) -> None:
            index = arrays.after(args[argument + 1], after)
            place = arrays.pointer(args, argument, index, ir.IntType(8))
            _move(arrays, "tileloadd64", register, place, stride)

        for m in range(2):
            load(4 + m, 0, m * TILE_ROWS * TILE_BYTES, TILE_BYTES)
        for n in range(2):
            load(6 + n, 2, n * LANES, 4 * WIDTH)
        return context.get_dummy_value()

    return types.void(driven, types.int64, cells, types.int64), emit


@intrinsic
def multiply(typing):  # type: ignore[no-untyped-def]
    """Add the products of the operands to the sums in the tile registers."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        for m, n in QUARTERS:
            _operation(builder, "tdpbusd", *map(_register, (2 * m + n, 4 + m, 6 + n)))
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def store_products(typing, out, to):  # type: ignore[no-untyped-def]
    """Write the sums of the tile registers to out[to + 32 r + j], int32."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = VectorPlaces(context, builder, signature.args)
        for m, n in QUARTERS:
            index = arrays.after(args[1], m * TILE_ROWS * WIDTH + n * LANES)
            place = arrays.pointer(args, 0, index, ir.IntType(8))
            _move(arrays, "tilestored64", 2 * m + n, place, 4 * WIDTH)
        return context.get_dummy_value()

    return types.void(out, types.int64), emit
