"""Few-bit digits times few-bit cells by counting bits. A word holds one bit of 32 rows.

x_a and w_b are the bit planes of digits and cells, two's complement if signed:

    column sum = sum over a, b of s_a s_b 2^(a+b) popcount(x_a & w_b)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.compiled import cpu_has, jit
from cimtool.simulation.kernels.fused import (
    Layer,
    converters,
    cut,
    finish,
    ordered_reads,
    packed_groups,
    padded,
)
from cimtool.simulation.kernels.tiles import (
    BIT_ROWS,
    DOT_BITS,
    WIDTH,
    accumulate,
    add_scaled,
    bit_tile,
    bits,
    convert,
    popcount_step,
)

WORD = 32


def most_planes() -> int:
    """The most pairs of planes for which counting bits is faster than byte products (measured).

    It depends on whether the CPU has byte products, and an instruction that counts bits in vectors.
    """
    if not DOT_BITS:
        return 8
    return 4 if cpu_has("avx512vpopcntdq") else 1


MOST_PLANES = most_planes()


class Planes(NamedTuple):
    """Packed cells: words [group][slice][block][plane][word][32 columns], and group starts.

    `factors` [digit planes, cell planes] are s_a s_b 2^(a+b).
    """

    words: Array
    starts: Array
    factors: Array


def plane_factors(limits: tuple[int, int]) -> IntArray:
    """The weight of each bit of integers within the limits. The last is negative if signed."""
    lo, hi = limits
    if lo >= 0:
        return 1 << np.arange(max(1, hi.bit_length()))
    width = max((-lo - 1).bit_length(), hi.bit_length()) + 1
    factors = 1 << np.arange(width)
    factors[-1] *= -1
    return factors


def plane_pairs(layer: Layer) -> int:
    """Pairs of planes in one column sum."""
    return plane_factors(layer.digit_limits).size * plane_factors(layer.cell_limits).size


def fits(layer: Layer) -> bool:
    """True if counting bits is faster than byte products."""
    return plane_pairs(layer) <= MOST_PLANES


def pack(layer: Layer) -> Planes:
    """Cut the cells into bit planes."""
    cell_factors = plane_factors(layer.cell_limits)

    def words(cells: Array) -> Array:
        if cell_factors.size <= 8:
            cells = cells.astype(np.uint8)  # which has all these bits
        planes = np.stack([cells >> b & 1 for b in range(cell_factors.size)], axis=1)
        packed = _words(planes.astype(np.uint8, copy=False))  # [slices, planes, words, N]
        return padded(packed).reshape(*packed.shape[:3], -1, WIDTH).transpose(0, 3, 1, 2, 4)

    factors = np.outer(plane_factors(layer.digit_limits), cell_factors).astype(np.int32)
    slices = [s.digits for s in layer.slices]
    return Planes(*packed_groups(slices, layer.group_ends, words), factors)


def _words(planes: Array) -> Array:
    """Pack bits [.., rows, N] into int32 words [.., words, N]; the first row is the lowest bit."""
    *others, rows, width = planes.shape
    count = -(-rows // WORD)
    room = np.zeros((*others, count * WORD, width), np.uint8)
    room[..., :rows, :] = planes
    octets = room.reshape(*others, count, WORD // 8, 8, width)
    packed = octets[..., 0, :].copy()
    for place in range(1, 8):  # np.packbits takes several times as long along rows
        packed |= octets[..., place, :] << place
    return np.ascontiguousarray(np.moveaxis(packed, -2, -1)).view(np.int32)[..., 0]


@jit
def run(x, bounds, drive, epilogue, planes, out):  # type: ignore[no-untyped-def]
    """Compute the layer's outputs from inputs `x` [rows, K] into `out` [rows, N]."""
    rows, cycles = x.shape[0], len(drive.factors)
    reads = ordered_reads(rows, epilogue, BIT_ROWS)
    total = np.zeros((len(epilogue.start) // WIDTH, max(rows, 1), WIDTH), np.int32)
    sums = np.zeros((rows, len(bounds)), np.int32)
    for g in range(len(bounds)):
        first, last = bounds[g]
        words = -(-(last - first) // WORD)
        digits = np.zeros(words * WORD, np.int32)
        packed = np.zeros((reads.size, len(planes.factors), words), np.int32)
        for i in range(rows):
            for c in range(cycles):
                sums[i, g] += cut(x[i], first, last, drive, c, digits) * drive.factors[c]
                at = i * reads.by_row + c * reads.by_cycle
                for a in range(packed.shape[1]):
                    for k in range(words):
                        packed[at, a, k] = bits(digits, k * WORD, np.int32(a))
        _group(packed, planes, g, reads, epilogue, total)
    finish(total, sums, epilogue, out)


@jit
def _group(packed, planes, g, reads, epilogue, total):  # type: ignore[no-untyped-def]
    digit_planes, words = packed.shape[1:]
    cell_planes, across = planes.factors.shape[1], digit_planes * words
    driven, flat = packed.reshape(-1), total.reshape(-1)
    blocks, stride = len(total), reads.stride
    slices, references = epilogue.adc.shape[:2]
    for s in range(slices):
        for b in range(blocks):
            cells = planes.starts[g] + (s * blocks + b) * cell_planes * words * WIDTH
            column = ((g * slices + s) * blocks + b) * WIDTH
            for c in range(references):
                one, two, three, four, five, table = converters(epilogue.adc, epilogue.tables, s, c)
                addend = (((g * slices + s) * references + c) * blocks + b) * WIDTH
                for i in range(c * stride, (c + 1) * stride, BIT_ROWS):
                    p = bit_tile()
                    for a in range(digit_planes):
                        for q in range(cell_planes):
                            at, of = i * across + a * words, cells + q * words * WIDTH
                            ones = bit_tile()
                            for k in range(words):
                                ones = popcount_step(
                                    ones, driven, at + k, across, planes.words, of + k * WIDTH
                                )
                            p = add_scaled(p, ones, planes.factors[a, q])
                    p = convert(p, one, two, three, four, five,
                                epilogue.addends, addend, epilogue.entries, table)  # fmt: skip
                    at, to = s * reads.size + i, b * total.shape[1] * WIDTH
                    accumulate(p, reads.values, at, reads.owners, i,
                               epilogue.signs, column, flat, to)  # fmt: skip
