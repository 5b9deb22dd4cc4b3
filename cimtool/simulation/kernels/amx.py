"""Digits times cells of up to 8 bits in the tile registers of AMX, on Linux.

Cells and digits are cut into bytes as in `dot`. Two tile registers hold 16 reads of 64 digits each,
two others 64 cells of 16 columns each. Their products are the sums of 32 reads and 32 columns. The
sums pass through the L1 cache into the vector registers. These convert them while the tile
registers compute the next sums.
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
"""Rows of a tile register, and bytes per row."""

READS = 2 * TILE_ROWS
"""Reads whose sums are computed together."""

ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18
"""Linux's numbers for the system call, the request for registers, and the tile registers."""


def allowed() -> bool:
    """Ask Linux to let this process use the tile registers; False if there are none."""
    if platform.system() != "Linux" or not (cpu_has("amx-tile") and cpu_has("amx-int8")):
        return False
    asked = map(ctypes.c_long, (ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA))
    return bool(ctypes.CDLL(None).syscall(*asked) == 0)


ALLOWED = allowed()


def fits(layer: Layer) -> bool:
    """True if the CPU has tile registers and digits and cells fit bytes."""
    return ALLOWED and in_bytes(layer)


def pack(layer: Layer) -> PackedCells:
    """Pack cells as `dot` does, but with the slices of a block of columns side by side."""
    cells = in_fields(dot.pack_bytes(layer), layer, blocks_first=True)
    # The last tile reads beyond the cells. It multiplies what it finds there by zeros.
    behind = np.zeros(TILE_ROWS * WIDTH, np.int32)
    return cells._replace(words=aligned(np.concatenate([cells.words, behind])))


@jit
def run(x, bounds, drive, epilogue, cells, out):  # type: ignore[no-untyped-def]
    """Compute the layer's outputs from inputs `x` [rows, K] into `out` [rows, N]."""
    rows, cycles = x.shape[0], len(drive.factors)
    # If the cycles of a row share a reference and fill whole groups of STORED_ROWS reads, they lie
    # side by side. Otherwise each cycle has separate tiles.
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
    """Cut `width` inputs from x[start] on into digits and write them as read `at` of `driven`.

    `driven` has bytes [reads / 32][steps][32][64]: digits minus the lowest digit. Returns the sum
    of the digits.
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
    """Convert the column sums of a row group and add the codes to `total`.

    The vector registers convert the sums of one tile while the tile registers compute the next.
    `owners` holds row * cycles + cycle for each read, or -1 if the read is padding.
    """
    blocks, (slices, references) = len(total), epilogue.adc.shape[:2]
    cycles, lines = epilogue.values.shape[1], total.shape[1]
    tiles, flat = len(owners) // READS, total.reshape(-1)
    rows, turns = owners // cycles, owners % cycles
    # Taking an array from a tuple costs more than a conversion, so do it before the loop.
    adc, tables, addends = epilogue.adc, epilogue.tables, epilogue.addends
    values, signs, entries = epilogue.values.reshape(-1), epilogue.signs, epilogue.entries
    stored, columns, narrow = cells.words, cells.columns, epilogue.narrow
    parts, middle, start = cells.parts, cells.middle, cells.starts[g]
    step, size = READS * TILE_BYTES, words * WIDTH
    bits, sign = cells.bits, cells.sign
    extent = (cells.starts[g + 1] - start) // max(slices * blocks, 1)
    # Fields narrower than a byte are unpacked into two rooms in turn: this block and the next.
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
        # Products and conversions alternate, because the CPU looks ahead by less than a whole tile.
        # Operands are loaded before the stores that would delay them.
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
    """Combine the products of cell bytes into the column sums of 32 reads from `first` on."""
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
    """Configure all eight tile registers of this thread as 16 rows of 64 bytes."""

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
    """Release the tile registers, so that Linux need not save them."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        _operation(builder, "tilerelease")
        return context.get_dummy_value()

    return types.void(), emit


QUARTERS = [(m, n) for m in range(2) for n in range(2)]
"""Tile registers of sums: half m of the reads and half n of the columns."""


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
    """Load 64 digits of 32 reads, and the cells of 32 columns that they drive.

    Digits are unsigned bytes `driven` [32, 64] from `at` on. Cells are signed bytes, 16 words of 32
    columns, from word `of` of `cells` on.
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
