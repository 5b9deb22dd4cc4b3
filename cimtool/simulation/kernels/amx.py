"""Digits times cells of up to 8 bits in the tile registers of AMX, on Linux.

The bytes are those of `dot`. Two tile registers of 16 reads and 64 digits each times two of 64
cells of 16 columns give the sums of 32 reads and 32 columns. Sums go through the first cache to
the vector registers, where they are converted.
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

from cimtool.base.compiled import CACHE_LINE, aligned, jit, jit_inlined
from cimtool.simulation.kernels.dot import DEPTH, Bytes, in_bytes
from cimtool.simulation.kernels.dot import pack as pack_bytes
from cimtool.simulation.kernels.fused import Layer, converters, cut, finish, ordered_reads
from cimtool.simulation.kernels.tiles import (
    LANES,
    STORED_ROWS,
    WIDTH,
    VectorPlaces,
    accumulate,
    add_outer,
    add_scaled,
    call,
    convert,
    cpu_has,
    load_tile,
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


def pack(layer: Layer) -> Bytes:
    """The bytes of `dot`, and what the last tile reads behind them: it is multiplied by zeros."""
    cells = pack_bytes(layer)
    behind = np.zeros(TILE_ROWS * WIDTH, np.int32)
    return cells._replace(words=aligned(np.concatenate([cells.words, behind])))


@jit
def run(x, bounds, drive, epilogue, cells, out):  # type: ignore[no-untyped-def]
    """The layer's outputs [rows, N] of inputs `x` [rows, K], into `out`."""
    rows, cycles = x.shape[0], len(drive.factors)
    reads = ordered_reads(rows, epilogue, READS)
    total = np.zeros((len(epilogue.start) // WIDTH, max(rows, 1), WIDTH), np.int32)
    row_sums = np.zeros(reads.size, np.int32)
    sums = np.zeros((rows, len(bounds)), np.int32)
    configure()
    for g in range(len(bounds)):
        first, last = bounds[g]
        steps = -(-(last - first) // TILE_BYTES)
        digits = np.zeros(steps * TILE_BYTES, np.int32)
        driven = _lines(reads.size * steps * TILE_BYTES)
        for i in range(rows):
            for c in range(cycles):
                at = i * reads.by_row + c * reads.by_cycle
                row_sums[at] = cut(x[i], first, last, drive, c, digits)
                sums[i, g] += row_sums[at] * drive.factors[c]
                for k in range(last - first):
                    digits[k] -= np.int32(cells.lowest)
                _drive(digits, driven, at)
        words = -(-(last - first) // DEPTH)
        _group(driven, steps, words, cells, g, row_sums, reads, rows * cycles, epilogue, total)
    release()
    finish(total, sums, epilogue, out)


@jit
def _lines(size):  # type: ignore[no-untyped-def]
    """Zero bytes from the beginning of a cache line: tile registers are filled by lines."""
    room = np.zeros(size + CACHE_LINE, np.uint8)
    start = -room.ctypes.data % CACHE_LINE
    return room[start : start + size]


@jit
def _drive(digits, driven, at):  # type: ignore[no-untyped-def]
    """Write digits of bytes as read `at` of `driven`, bytes [reads / 32][steps][32][64]."""
    steps = len(digits) // TILE_BYTES
    for k in range(steps):
        line = ((at // READS * steps + k) * READS + at % READS) * TILE_BYTES
        for j in range(TILE_BYTES):
            driven[line + j] = digits[k * TILE_BYTES + j]


@jit
def _group(driven, steps, words, cells, g, row_sums, reads, count, epilogue, total):  # type: ignore[no-untyped-def]
    """Add to `total` what a row group makes of `count` reads of inputs."""
    blocks, stride = len(total), reads.stride
    slices, references = epilogue.adc.shape[:2]
    p, flat = _lines(4 * cells.parts * READS * WIDTH).view(np.int32), total.reshape(-1)
    for s in range(slices):
        for b in range(blocks):
            of = cells.starts[g] + (s * blocks + b) * cells.parts * words * WIDTH
            column = ((g * slices + s) * blocks + b) * WIDTH
            for c in range(references):
                one, two, three, four, five, table = converters(epilogue, s, c)
                addend = (((g * slices + s) * references + c) * blocks + b) * WIDTH
                last = c * stride + count // references
                for start in range(c * stride, last, READS):
                    for q in range(cells.parts):
                        byte_products(driven, start * steps * TILE_BYTES, steps, cells.words,
                                      of + q * words * WIDTH, p, q * READS * WIDTH)  # fmt: skip
                    for i in range(start, min(start + READS, last), STORED_ROWS):
                        v = _column_sums(p, i - start, cells, row_sums, i, column)
                        v = convert(v, one, two, three, four, five,
                                    epilogue.addends, addend, epilogue.entries, table)  # fmt: skip
                        at, to = s * reads.size + i, b * total.shape[1] * WIDTH
                        accumulate(v, reads.values, at, reads.owners, i,
                                   epilogue.signs, column, flat, to)  # fmt: skip


@jit_inlined
def _column_sums(p, r, cells, row_sums, i, column):  # type: ignore[no-untyped-def]
    """The sums of 8 reads from read `i` on, of 32 columns; `p` has products from its row r on."""
    v = load_tile(p, r * WIDTH)
    for q in range(1, cells.parts):
        v = add_scaled(v, load_tile(p, (q * READS + r) * WIDTH), np.int32(1 << 8 * q))
    return add_outer(v, row_sums, i, np.int32(cells.middle), cells.columns, column)


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


@intrinsic
def byte_products(typing, driven, at, steps, cells, of, out, to):  # type: ignore[no-untyped-def]
    """Write the sums of 32 reads and 32 columns to out[to + 32 r + j], int32.

    Unsigned bytes `driven` [steps, 32, 64] begin at `at`; signed ones at word `of` of `cells`, 16
    words of 32 columns a step.
    """

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = VectorPlaces(context, builder, signature.args)
        quarters = [(m, n) for m in range(2) for n in range(2)]

        def move(name: str, register: int, argument: int, index: Any, stride: int) -> None:
            place = arrays.pointer(args, argument, index, ir.IntType(8))
            apart = ir.Constant(ir.IntType(64), stride)
            _operation(builder, name, _register(register), place, apart)

        for m, n in quarters:
            _operation(builder, "tilezero", _register(2 * m + n))
        with cgutils.for_range(builder, args[2]) as loop:

            def at_step(start: Any, size: int) -> Any:
                return builder.add(start, builder.mul(loop.index, ir.Constant(start.type, size)))

            for m in range(2):
                first = at_step(args[1], READS * TILE_BYTES)
                index = arrays.after(first, m * TILE_ROWS * TILE_BYTES)
                move("tileloadd64", 4 + m, 0, index, TILE_BYTES)
            for n in range(2):
                first = at_step(args[4], TILE_ROWS * WIDTH)
                move("tileloadd64", 6 + n, 3, arrays.after(first, n * LANES), 4 * WIDTH)
            for m, n in quarters:
                _operation(builder, "tdpbusd", *map(_register, (2 * m + n, 4 + m, 6 + n)))
        for m, n in quarters:
            index = arrays.after(args[6], m * TILE_ROWS * WIDTH + n * LANES)
            move("tilestored64", 2 * m + n, 5, index, 4 * WIDTH)
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(driven, i64, i64, cells, i64, out, i64), emit
