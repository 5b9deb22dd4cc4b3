"""Cells packed in fields of few bits. Kernels unpack one block at a time into bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from cimtool.base.arrays import Array
from cimtool.base.compiled import CACHE_LINE, aligned, jit, jit_inlined
from cimtool.simulation.kernels.fused import Layer
from cimtool.simulation.kernels.tiles import LANES, WIDTH, VectorPlaces, splat

EVERY_BYTE = 0x01010101
"""A one in every byte of a word."""


class PackedCells(NamedTuple):
    """Packed cells: signed bytes in fields of `bits` bits. Group g starts at word `starts[g]`.

    A group has one region per slice and block of 32 columns: [part][word][32 columns]. A word holds
    four rows. A cell is `middle` plus `parts` bytes; byte q has the weight 256^q. `lowest` is the
    least digit, and `columns` [groups * slices * N] is its share of each column sum. A kernel that
    adds products in 16 bits takes `short` words at a time.

    If fields are narrower than a byte, zeros fill a region up to whole vectors of every field. The
    first fields of a region's bytes are its first bytes, then the second fields follow. `sign` is
    the sign bit of a field, or 0 if fields are unsigned.
    """

    words: Array
    starts: Array
    bits: int
    sign: int
    parts: int
    lowest: int
    middle: int
    columns: Array
    short: int


FIELDS = 1, 2, 4
"""Field widths in bits below a byte."""


def in_fields(cells: PackedCells, layer: Layer, blocks_first: bool = False) -> PackedCells:
    """Repack cells of whole bytes [group][slice][block] in the narrowest fields that hold them.

    If `blocks_first`, regions are ordered [group][block][slice]. If cells are repacked, `starts`
    has one more entry: the end of the last group.
    """
    lo, hi = (edge - cells.middle for edge in layer.cell_limits)
    bits, sign = _field((lo, hi)) if cells.parts == 1 else (8, 0)
    if bits == 8 and not blocks_first:
        return cells
    slices, blocks = len(layer.slices), -(-layer.columns // WIDTH)
    words = []
    for part in np.split(cells.words, cells.starts[1:]):
        regions = part.reshape(slices, blocks, -1)
        regions = regions.swapaxes(0, 1) if blocks_first else regions
        words.append(_in_fields(regions.reshape(slices * blocks, -1), bits))
    return cells._replace(
        words=aligned(np.concatenate(words)),
        starts=np.cumsum([0, *(part.size for part in words)], dtype=np.int64),
        bits=bits,
        sign=sign,
    )


def _field(limits: tuple[int, int]) -> tuple[int, int]:
    """Bits and sign bit of the narrowest field that holds cells within the limits."""
    lo, hi = limits
    for bits in FIELDS:
        for sign in (0, 1 << bits - 1):
            if -sign <= lo and hi < (1 << bits) - sign:
                return bits, sign
    return 8, 0


def _in_fields(words: Array, bits: int) -> Array:
    """Pack the bytes of each region of `words` [regions, size] into fields of `bits` bits."""
    count, (regions, size) = 8 // bits, words.shape
    room = np.zeros((regions, -(-size // (LANES * count)) * LANES * count), np.int32)
    room[:, :size] = words
    fields = room.view(np.uint8).reshape(regions, count, -1)
    packed = np.zeros((regions, fields.shape[2]), np.uint8)
    for q in range(count):
        packed |= (fields[:, q] & (1 << bits) - 1) << q * bits
    return packed.reshape(-1).view(np.int32)


@jit
def zero_bytes(size):  # type: ignore[no-untyped-def]
    """Zero bytes that start on a cache line, because registers load whole lines."""
    room = np.zeros(size + CACHE_LINE, np.uint8)
    start = -room.ctypes.data % CACHE_LINE
    return room[start : start + size]


@jit
def unpack(words, at, extent, bits, sign, out, to):  # type: ignore[no-untyped-def]
    """Unpack the fields of `extent` words into bytes, from word `to` of `out` on."""
    mask, signs = np.int32(((1 << bits) - 1) * EVERY_BYTE), np.int32(sign * EVERY_BYTE)
    for q in range(8 // bits):
        for i in range(0, extent, LANES):
            unpack_fields(words, at + i, np.int32(q * bits), mask, signs, out, to + q * extent + i)


@jit_inlined
def room_of(cells, size):  # type: ignore[no-untyped-def]
    """An array for a region of `size` unpacked words; the cells' words if these are whole bytes."""
    if cells.bits == 8:
        return cells.words
    return zero_bytes(4 * _extent(cells.bits, size) * (8 // cells.bits)).view(np.int32)


@jit_inlined
def region(cells, g, number, size, room):  # type: ignore[no-untyped-def]
    """Unpack a region of a group, if needed, and return its first word in `room`."""
    if cells.bits == 8:
        return cells.starts[g] + number * size
    extent = _extent(cells.bits, size)
    unpack(cells.words, cells.starts[g] + number * extent, extent, cells.bits, cells.sign, room, 0)
    return 0


@jit_inlined
def _extent(bits, size):  # type: ignore[no-untyped-def]
    return -(-size * bits // (8 * LANES)) * LANES


@intrinsic
def unpack_fields(typing, words, at, shift, mask, signs, out, to):  # type: ignore[no-untyped-def]
    """Write one field of each byte of 16 words as a byte. `shift` is the field's lowest bit.

    `mask` and `signs` repeat the field's bits and its sign bit (0 if unsigned) in every byte.
    """

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        arrays = VectorPlaces(context, builder, signature.args)
        kind = ir.VectorType(ir.IntType(32), LANES)
        some = ir.VectorType(ir.IntType(8), 4 * LANES)
        value = builder.load(arrays.pointer(args, 0, args[1], kind), align=4)
        shift, mask, signs = (splat(builder, one) for one in args[2:5])
        field = builder.and_(builder.lshr(value, shift), mask)
        signs, field = (builder.bitcast(one, some) for one in (signs, field))
        extended = builder.sub(builder.xor(field, signs), signs)
        place = arrays.pointer(args, 5, args[6], some)
        builder.store(extended, place, align=4)
        return context.get_dummy_value()

    i32, i64 = types.int32, types.int64
    return types.void(words, i64, i32, i32, i32, out, i64), emit
