"""Layers with fresh read noise, by the CPU's byte products: `NoisyMvm.run` in one pass.

Column sums are byte products, and so are the variances and covariances of their noise:

    covariance of cycles a and b = sum of x_a x_b v

v is the variance of a cell. The kernel takes a few rows of inputs and 32 columns at a time, which
stay in the L1 cache while it draws noise, converts the sums and adds the codes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.compiled import jit
from cimtool.hardware.noise.fresh import MIX_1, Fresh, mix, row_keys
from cimtool.hardware.noise.mvm import NoisyMvm
from cimtool.ir.types import INT_LIMIT
from cimtool.simulation.kernels import dot
from cimtool.simulation.kernels.choice import (
    CHECKED_COLUMNS,
    Kernel,
    extreme_rows,
    in_blocks,
    warn_of,
)
from cimtool.simulation.kernels.fields import PackedCells
from cimtool.simulation.kernels.fused import (
    BYTE,
    INT32,
    Layer,
    converters,
    cut,
    finish,
    fused_layer,
    modulo_int32,
    padded,
)
from cimtool.simulation.kernels.normals import (
    add_rounded,
    as_reals,
    less_product,
    load_reals,
    normal_line,
    plus_product,
    root,
    share,
    store_reals,
    times,
)
from cimtool.simulation.kernels.tiles import (
    BYTE_ROWS,
    WIDTH,
    accumulate,
    add_scaled,
    convert,
    load_line,
    store_tile,
)

LONGEST_NORMAL = 6.5
"""A bound above the largest normal number that a key gives."""


class DrivenBytes(NamedTuple):
    """Reads of a row group: bytes [tiles * words * rows], their sums, and the cells they drive."""

    bytes: Array
    sums: Array
    cells: PackedCells


class DrawnNoise(NamedTuple):
    """The noise of a layer, as compiled code takes it.

    `cells` holds the variances. The products of digits in the cycles `first` and `second` [pairs]
    drive them. `lowest` is the least product; a product minus `lowest` has `planes` bytes. `lifts`
    [groups * slices * N] is the share of `lowest` in each column. `scale` is the unit of noise. The
    kernel takes `chunk` rows of inputs at a time.
    """

    cells: PackedCells
    first: Array
    second: Array
    planes: int
    lowest: int
    lifts: Array
    scale: np.float32
    chunk: int


def noisy_cells(op: NoisyMvm) -> Kernel | None:
    """The fused kernel for `op.run` without final clipping; None if it cannot take the layer."""
    made = _made(op)
    if made is None:
        return None
    fresh, rows, code = op.fresh, op.cells.groups[0], op.crossbar.inputs
    assert fresh is not None
    # Check a corner of the layer, without clipping, with the layer's noise.
    variance = tuple(v[rows, :CHECKED_COLUMNS] for v in fresh.variance)
    few = replace(
        op,
        layer=op.layer.corner(CHECKED_COLUMNS),
        fresh=replace(fresh, variance=variance),
        lo=np.array(-INT_LIMIT),
        hi=np.array(INT_LIMIT),
    )
    small = _made(few)
    x = extreme_rows(code.limits(code.bits), rows.stop)
    if small is not None and np.array_equal(few.run(x), small(x)):
        return made
    warn_of("noisy dot product")
    return None


def _made(op: NoisyMvm) -> Kernel | None:
    """The kernel of a layer, not checked; None if it cannot take the layer."""
    fresh = op.fresh
    beside = (op.errors, op.factors, op.measured)
    if fresh is None or any(one is not None for one in beside) or None in op.layer.references:
        return None
    sums = _variances(op, fresh)
    layer = fused_layer(op.layer, None, _longest(fresh, sums, op))
    if layer is None or not dot.fits(layer) or layer.epilogue.adc.shape[1] > 1:
        return None
    drawn = _drawn(op, fresh, layer, sums)
    if drawn is None:
        return None
    bounds, drive, epilogue, columns = layer.group_ends, layer.drive, layer.epilogue, layer.columns
    # `fill` must not hold the noise: its cells as integers would double the memory.
    cells, key = dot.pack_bytes(layer), fresh.key

    def fill(x: Array, out: Array) -> None:
        _run(x, row_keys(x, key), bounds, drive, epilogue, cells, drawn, out)

    return in_blocks(fill, columns, np.int64)


def _variances(op: NoisyMvm, fresh: Fresh) -> IntArray:
    """Sums [groups, slices, N] of the cells' variances."""
    of_groups = [
        [v[g].sum(axis=0, dtype=np.int64) for v in fresh.variance] for g in op.cells.groups
    ]
    return np.array(of_groups)


def _longest(fresh: Fresh, sums: IntArray, op: NoisyMvm) -> int:
    """An upper bound of the noise of any sum."""
    size = max(map(abs, op.crossbar.digit_limits))
    shares = len(op.crossbar.cycles) if fresh.shared else 1
    spread = math.sqrt(float(sums.max()) * shares) * size * float(fresh.scale)
    return math.ceil(LONGEST_NORMAL * spread) + 1


def _drawn(op: NoisyMvm, fresh: Fresh, layer: Layer, sums: IntArray) -> DrawnNoise | None:
    """The noise of a layer; None if a variance exceeds two bytes or a sum of them 32 bits."""
    lo, hi = layer.digit_limits
    lowest = min(0, lo * hi) if fresh.shared else 0
    reach = max(lo * lo, hi * hi) - lowest
    most = max(int(v.max()) for v in fresh.variance)
    if most >= BYTE * (BYTE - 1) or int(sums.max()) * (reach - lowest) > INT32.max:
        return None
    first, second = np.array(fresh.pairs(op.crossbar), np.int64).T.copy()
    planes = max(1, -(-reach.bit_length() // 8))
    chunk = BYTE_ROWS // math.gcd(BYTE_ROWS, len(layer.drive.factors), first.size * planes)
    cells = dot.pack_cells(fresh.variance, layer.group_ends, (0, most), (0, BYTE - 1))
    lifts = padded(modulo_int32(lowest * sums)).reshape(-1)
    return DrawnNoise(
        cells=cells,
        first=first,
        second=second,
        planes=planes,
        lowest=lowest,
        lifts=lifts,
        scale=fresh.scale,
        chunk=chunk,
    )


@jit
def _run(x, keys, bounds, drive, epilogue, cells, drawn, out):  # type: ignore[no-untyped-def]
    """Compute the layer's outputs from inputs `x` [rows, K] and noise keys into `out` [rows, N]."""
    rows, cycles, reads = len(x), len(drive.factors), len(drawn.first) * drawn.planes
    total = np.zeros((len(epilogue.start) // WIDTH, max(rows, 1), WIDTH), np.int32)
    whole = -(-rows // drawn.chunk) * drawn.chunk
    sums = np.zeros((rows, len(bounds)), np.int32)
    for g in range(len(bounds)):
        first, last = bounds[g]
        words = -(-(last - first) // dot.DEPTH)
        digits = np.zeros((cycles, words * dot.DEPTH), np.int32)
        driven = np.zeros((whole * cycles // BYTE_ROWS, words, BYTE_ROWS), np.int32)
        squares = np.zeros((whole * reads // BYTE_ROWS, words, BYTE_ROWS), np.int32)
        row_sums, square_sums = (
            np.zeros(whole * cycles, np.int32),
            np.zeros(whole * reads, np.int32),
        )
        for i in range(rows):
            for c in range(cycles):
                at = i * cycles + c
                row_sums[at] = cut(x[i], first, last, drive, c, digits[c])
                sums[i, g] += row_sums[at] * drive.factors[c]
            _pack_squares(digits, last - first, drawn, i * reads, square_sums, squares)
            for c in range(cycles):
                for k in range(last - first):
                    digits[c, k] -= np.int32(cells.lowest)
                dot.pack_read(digits[c], driven, i * cycles + c)
        own = DrivenBytes(driven.reshape(-1), row_sums, cells)
        noisy = DrivenBytes(squares.reshape(-1), square_sums, drawn.cells)
        _group(own, noisy, keys, words, drawn, g, cycles, epilogue, total)
    finish(total, sums, epilogue, out)


@jit
def _pack_squares(digits, height, drawn, at, sums, packed):  # type: ignore[no-untyped-def]
    """Write products of digits [cycles, rows], pair by pair, one read per byte, from `at` on."""
    line = np.zeros(digits.shape[1], np.int32)
    for n in range(len(drawn.first)):
        one, other = digits[drawn.first[n]], digits[drawn.second[n]]
        for q in range(drawn.planes):
            for k in range(height):
                product = one[k] * other[k] - np.int32(drawn.lowest)
                line[k] = (product >> np.int32(8 * q)) & np.int32(255)
            sums[at] = line.sum()
            dot.pack_read(line, packed, at)
            at += 1


@jit
def _group(own, noisy, keys, words, drawn, g, cycles, epilogue, total):  # type: ignore[no-untyped-def]
    """Add noise to a row group's sums and add their codes to `total` [blocks, rows, 32]."""
    blocks, rows, slices = len(total), len(keys), epilogue.adc.shape[0]
    pairs, planes, chunk, lifts = len(drawn.first), drawn.planes, drawn.chunk, drawn.lifts
    flat, owners = total.reshape(-1), np.arange(max(rows, 1)).astype(np.int32)
    values, reads = epilogue.values.reshape(-1), pairs * planes
    p, v = np.zeros(chunk * cycles * WIDTH, np.int32), np.zeros(chunk * reads * WIDTH, np.int32)
    factor, z = np.zeros((2, pairs * WIDTH), np.float32)
    for s in range(slices):
        one, two, three, four, five, table = converters(epilogue.adc, epilogue.tables, s, 0)
        for b in range(blocks):
            column, conversion = ((g * slices + s) * blocks + b) * WIDTH, (g * slices + s) * cycles
            for start in range(0, rows, chunk):
                _sums(own, start * cycles, chunk * cycles, words, g, s * blocks + b, column, p)
                _sums(noisy, start * reads, chunk * reads, words, g, s * blocks + b, column, v)
                for i in range(start, min(start + chunk, rows)):
                    of_row = (i - start) * reads * WIDTH
                    if pairs > cycles:
                        _factor(v, of_row, cycles, planes, lifts, column, factor)
                    for c in range(cycles):
                        key = mix(keys[i] + np.uint64(conversion + c + 1) * MIX_1)
                        noise = normal_line(key, b * WIDTH)
                        if pairs > cycles:
                            store_reals(noise, z, c * WIDTH)
                            noise = _correlated(factor, z, c)
                        else:
                            at = of_row + c * planes * WIDTH
                            noise = times(root(_covariance(v, at, planes, lifts, column)), noise)
                        line = load_line(p, ((i - start) * cycles + c) * WIDTH)
                        line = add_rounded(line, noise, drawn.scale)
                        line = convert(line, one, two, three, four, five,
                                       epilogue.addends, column,
                                       epilogue.entries, table)  # fmt: skip
                        accumulate(line, values, s * cycles + c, owners, i,
                                   epilogue.signs, column, flat, b * rows * WIDTH)  # fmt: skip


@jit
def _sums(driven, first, count, words, g, block, column, out):  # type: ignore[no-untyped-def]
    """Write the sums [count * 32] of reads from `first` on and a block of 32 columns."""
    cells = driven.cells
    of = cells.starts[g] + block * cells.parts * words * WIDTH
    for i in range(0, count, BYTE_ROWS):
        tile = dot.column_sums(
            driven.bytes, first + i, words, cells, cells.words, of, driven.sums, column
        )
        store_tile(tile, out, i * WIDTH)


@jit
def _covariance(v, at, planes, lifts, column):  # type: ignore[no-untyped-def]
    """The covariances of 32 columns, from the sums of each byte of the products at v[at]."""
    total = add_scaled(load_line(lifts, column), load_line(v, at), np.int32(1))
    for q in range(1, planes):
        total = add_scaled(total, load_line(v, at + q * WIDTH), np.int32(1 << 8 * q))
    return as_reals(total)


@jit
def _factor(v, at, cycles, planes, lifts, column, factor):  # type: ignore[no-untyped-def]
    """Write the Cholesky factors [pairs * 32] of 32 columns; cycle a starts at pair a(a+1)/2."""
    for a in range(cycles):
        of_a = a * (a + 1) // 2
        for b in range(a + 1):
            of_b = b * (b + 1) // 2
            rest = _covariance(v, at + (of_a + b) * planes * WIDTH, planes, lifts, column)
            for n in range(b):
                left = load_reals(factor, (of_a + n) * WIDTH)
                rest = less_product(rest, left, load_reals(factor, (of_b + n) * WIDTH))
            found = share(rest, load_reals(factor, (of_b + b) * WIDTH)) if b < a else root(rest)
            store_reals(found, factor, (of_a + b) * WIDTH)


@jit
def _correlated(factor, z, cycle):  # type: ignore[no-untyped-def]
    """The noise of a cycle: its row of the Cholesky factor times the normal numbers."""
    of_cycle = cycle * (cycle + 1) // 2
    noise = times(load_reals(factor, of_cycle * WIDTH), load_reals(z, 0))
    for b in range(1, cycle + 1):
        noise = plus_product(
            noise, load_reals(factor, (of_cycle + b) * WIDTH), load_reals(z, b * WIDTH)
        )
    return noise
