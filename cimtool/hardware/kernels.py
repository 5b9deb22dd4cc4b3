"""The same integers as the readable operations, fast: what the simulator runs.

Integer products run in the floating-point BLAS, which is exact while every partial sum stays
below 2^24 (float32) or 2^53 (float64); the bound is proved from the formats. Conversions run in
one fused pass over the column sums of a row group, blocks of rows side by side in threads, each
with a BLAS of one thread: two pools that wait for each other would stall.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, cast

import numba
import numpy as np
from threadpoolctl import threadpool_limits

from cimtool.arrays import Array, IntArray
from cimtool.hardware.crossbar import (
    Crossbar,
    Slice,
    column_bounds,
    correction,
    encode_inputs,
    encode_weights,
    input_cycles,
)
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import MatMul, Mvm
from cimtool.ir.format import ROUNDINGS
from cimtool.ir.op import Op
from cimtool.ir.types import Type, combine, exact

Kernel = Callable[..., Array]

_ROUNDING_CODE = {name: code for code, name in enumerate(ROUNDINGS)}


def product_kind(bound: int) -> type[np.float32] | type[np.float64] | type[np.int64]:
    """The fastest number in which sums of so large magnitude are exact."""
    if bound < 1 << 24:
        return np.float32
    return np.float64 if bound < 1 << 53 else np.int64


def absolute_bound(a: Type, b: tuple[Array, Array], width: int) -> int:
    """Largest sum of |a_i * b_i| over `width` terms: no partial sum in any order exceeds it."""
    lo, hi = combine(np.multiply, (a.lo, a.hi), b)
    terms = np.broadcast_to(exact(np.asarray(np.maximum(-lo, hi))), (width,))
    return int(terms.sum())


def prepare(op: Op, types: tuple[Type, ...]) -> Kernel:
    """The fastest form of an operation on inputs of these types; constants are packed once."""
    if types and all(known.is_integer for known in types):
        if isinstance(op, MatMul):
            return _matmul(types)
        if isinstance(op, Mvm):
            return _product(op.weight, op.bias, types[0])
        if isinstance(op, CrossbarMvm):
            if op.exact:
                return _product(op.weight, op.bias, types[0])
            return _converted(op)
    return op.run


def _matmul(types: tuple[Type, ...]) -> Kernel:
    a, b = types
    kind = product_kind(absolute_bound(a, (b.lo, b.hi), int(a.shape[-1])))

    def run(x: Array, y: Array) -> Array:
        product: Array = np.matmul(x.astype(kind), y.T.astype(kind))
        return product.astype(np.int64)

    return run


def _product(weight: Array, bias: Array, x: Type) -> Kernel:
    """One integer product; in float32 where that is exact, if need be in a few parts."""
    largest = np.abs(weight).max(axis=1)
    kind = product_kind(absolute_bound(x, (largest, largest), weight.shape[0]))
    parts = [slice(None)]
    if kind is np.float64:
        reach = np.abs(weight) * np.broadcast_to(np.maximum(-x.lo, x.hi), len(weight))[:, None]
        kind, parts = _exact_parts(reach)
    packed = [weight[part].astype(kind) for part in parts]

    def run(rows: Array) -> Array:
        driven = rows.astype(kind)
        total = np.full((len(rows), bias.size), bias)
        for part, matrix in zip(parts, packed, strict=True):
            _add(np.matmul(driven[:, part], matrix), total)
        return total

    return run


MOST_PARTS = 4
"""With more parts than this, products in float32 take as long as one in float64."""


def _exact_parts(reach: IntArray) -> tuple[type[np.float32] | type[np.float64], list[slice]]:
    """The fewest equal parts of the rows that float32 adds exactly, else all rows in float64.

    `reach` [K, N] are the largest products |x_i * w_ij|.
    """
    height = len(reach)
    for count in range(1, min(MOST_PARTS, height) + 1):
        edges = [height * i // count for i in range(count + 1)]
        parts = [slice(start, end) for start, end in pairwise(edges)]
        if all(reach[part].sum(axis=0).max() < 1 << 24 for part in parts):
            return np.float32, parts
    return np.float64, [slice(None)]


def _converted(op: CrossbarMvm) -> Kernel:
    """Column sums of a row group by one product (slices along N, cycles along M), then one pass."""
    crossbar = op.crossbar
    slices = encode_weights(op.weight, crossbar)
    groups = crossbar.groups(op.weight.shape[0])
    bound = max(int(np.abs(edge).max()) for s in slices for edge in column_bounds(s, crossbar))
    kind = product_kind(bound)
    packed = [np.hstack([s.digits[group] for s in slices]).astype(kind) for group in groups]
    conversion = Conversion(op, slices, bound)
    base = op.bias - correction(op.weight, crossbar)
    height = max(1, SUMS_IN_CACHE // (len(input_cycles(crossbar)) * packed[0].shape[1]))

    def run(x: Array) -> Array:
        total = np.full((len(x), base.size), base)
        step = min(height, -(-len(x) // thread_count()))
        blocks = [slice(start, start + step) for start in range(0, len(x), step)]
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(thread_count()) as pool:
            for _ in pool.map(lambda block: add(x[block], total[block]), blocks):
                pass
        return total

    def add(x: Array, total: Array) -> None:
        cycles = tuple(encode_inputs(x, crossbar))
        digits = np.stack([cycle.digits for cycle in cycles]).astype(kind)
        count, rows, _ = digits.shape
        for r, group in enumerate(groups):
            driven = np.ascontiguousarray(digits[:, :, group])
            sums = np.matmul(driven.reshape(count * rows, -1), packed[r])
            row_sums = driven.sum(axis=2).astype(np.int64)
            conversion(sums.reshape(count, rows, len(slices), -1), row_sums, r, total)
        if crossbar.encoding in ("offset", "offset-flip"):
            weighted = sum(
                cycle.sign * cycle.digits.sum(axis=1, keepdims=True) << cycle.shift
                for cycle in cycles
            )
            total -= weighted << (crossbar.weight_bits - 1)

    return run


SUMS_IN_CACHE = 1 << 19
"""So many column sums are made before they are converted: they stay in a core's cache."""


def thread_count() -> int:
    """Threads for blocks of rows: the cores that this process may use, or OMP_NUM_THREADS."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores or 1, int(asked) if asked.isdigit() else cores or 1))


class Conversion:
    """Converts and accumulates the column sums of one row group; holds the constants.

    `bound` is the largest column sum. A flipped column stands for `cell_maximum * row_sum - sum`:
    its codes count negative, and what the row sums add is one product a slice, exact and digital.
    """

    def __init__(self, op: CrossbarMvm, slices: tuple[Slice, ...], bound: int):
        crossbar = op.crossbar
        cycles = input_cycles(crossbar)
        self.steps = np.array([-1 if s is None else s for s in op.steps], np.int64)
        self.factors = np.array(
            [[c[2] * s.sign * (1 << c[0] + s.shift) for s in slices] for c in cycles], np.int64
        )
        self.limits = crossbar.adc_limits
        self.rounding = _ROUNDING_CODE[crossbar.rounding]
        flipped = np.stack([s.flipped for s in slices], axis=1)
        self.signs = np.where(flipped, -1, 1).astype(np.int32)
        self.complements = crossbar.cell_maximum * flipped.astype(np.int64)
        # Offsets and complements come later: only the group's own sum must fit 32 bits.
        reach = (bound + (1 << int(self.steps.max()))) * int(np.abs(self.factors).sum())
        narrow = reach < 1 << 31
        self.kind = np.int32 if narrow else np.int64

    def __call__(self, sums: Array, row_sums: IntArray, group: int, total: Array) -> None:
        """Add the converted `sums` [cycles, rows, slices, N] to `total` [rows, N] in place."""
        if self.complements[group].any():
            total += row_sums.T @ self.factors @ self.complements[group]
        part = np.empty(total.shape[1], self.kind)
        signs = self.signs[group]
        _convert(sums, signs, self.steps, self.factors, *self.limits, self.rounding, part, total)


def _jit(function: Callable[..., Any]) -> Callable[..., Any]:
    try:
        compiled = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # neither the package's folder nor a home can hold numba's cache
        compiled = numba.njit(nogil=True)(function)
    return cast(Callable[..., Any], compiled)


@_jit
def _add(sums, total):  # type: ignore[no-untyped-def]
    rows, width = sums.shape
    for i in range(rows):
        for j in range(width):
            total[i, j] += np.int64(sums[i, j])


@_jit
def _convert(  # type: ignore[no-untyped-def]
    sums, signs, steps, factors, lo, hi, rounding, out, total
):
    """Add to `total`, a row at a time by way of `out` [N], whose integers may be narrower."""
    cycles, rows, slices, width = sums.shape
    integer = out.dtype.type
    lo, hi = integer(lo), integer(hi)
    for i in range(rows):
        out[:] = 0
        for c in range(cycles):
            for k in range(slices):
                column = sums[c, i, k]
                sign = signs[k]
                if steps[k] < 0:
                    factor = integer(factors[c, k])
                    for j in range(width):
                        out[j] += integer(integer(column[j]) * sign[j]) * factor
                    continue
                step = integer(steps[k])
                half = integer((1 << steps[k]) >> 1) if rounding < 2 else integer(0)
                factor = integer(factors[c, k] << steps[k])
                if rounding == 1 and step > 0:
                    for j in range(width):
                        p = integer(integer(column[j]) + half)
                        code = integer(p >> step)
                        if integer(code << step) == p:
                            code = integer(code & integer(-2))
                        code = min(max(code, lo), hi)
                        out[j] += integer(code * sign[j]) * factor
                else:
                    for j in range(width):
                        code = integer(integer(integer(column[j]) + half) >> step)
                        code = min(max(code, lo), hi)
                        out[j] += integer(code * sign[j]) * factor
        for j in range(width):
            total[i, j] += out[j]


def step_errors(sums: Array, steps: int, crossbar: Crossbar, weights: IntArray) -> Array:
    """Squared error that each step exponent 0..steps-1 makes at the output of one slice.

    `sums` [cycles, rows, N] are exact column sums of a row group and `weights` [cycles] the factors
    with which cycles add up; returns the total over rows and columns [steps].
    """
    lo, hi = crossbar.adc_limits
    rounding = _ROUNDING_CODE[crossbar.rounding]
    rows = sums.shape[1]
    threads = min(thread_count(), rows)
    parts = np.array_split(np.arange(rows), threads)
    kind = np.int32 if np.abs(sums).max() * np.abs(weights).sum() < 1 << 30 else np.int64

    def part(index: IntArray) -> Array:
        block = sums[:, index[0] : index[-1] + 1]
        energy = np.zeros((block.shape[1], steps))
        error = np.zeros(sums.shape[2], kind)
        _step_errors(block, weights, lo, hi, rounding, error, energy)
        return energy

    with ThreadPoolExecutor(threads) as pool:
        # Row by row in one order: the same sum for every number of threads.
        return cast(Array, np.concatenate(list(pool.map(part, parts))).sum(axis=0))


@_jit
def _step_errors(sums, weights, lo, hi, rounding, error, energy):  # type: ignore[no-untyped-def]
    cycles, rows, width = sums.shape
    integer = error.dtype.type
    lo, hi = integer(lo), integer(hi)
    for i in range(rows):
        for shift in range(energy.shape[1]):
            step = integer(shift)
            half = integer((1 << shift) >> 1) if rounding < 2 else integer(0)
            error[:] = 0
            for c in range(cycles):
                column = sums[c, i]
                weight = integer(weights[c])
                if rounding == 1 and step > 0:
                    for j in range(width):
                        p = integer(column[j])
                        code = integer(integer(p + half) >> step)
                        if integer(code << step) == integer(p + half):
                            code = integer(code & integer(-2))
                        code = min(max(code, lo), hi)
                        error[j] += integer(integer(code << step) - p) * weight
                else:
                    for j in range(width):
                        p = integer(column[j])
                        code = integer(integer(p + half) >> step)
                        code = min(max(code, lo), hi)
                        error[j] += integer(integer(code << step) - p) * weight
            total = 0.0
            for j in range(width):
                total += float(error[j]) * float(error[j])
            energy[i, shift] = total
