"""Fast forms of the operations for the simulator, with the integers of the readable ones.

A layer with converters gets the first kernel that can take it: bit counting (few-bit digits and
cells), byte products (AMX, VNNI, AVX2), or floating-point BLAS, which runs on every CPU. A kernel
that does not give the readable reference's integers on this CPU is skipped, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cimtool.base.arrays import SINGLE_BITS, Array, IntArray
from cimtool.base.compiled import jit
from cimtool.hardware.cell_distance import CellDistance, rising_planes
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.mvm import NoisyMvm
from cimtool.ir.arithmetic import MatMul, Mul, Mvm, SumOfMaxima
from cimtool.ir.backends import KERNELS
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.op import Op
from cimtool.ir.types import INT_LIMIT, Type, Types
from cimtool.simulation.kernels.choice import Kernel, Kind, fused_cells
from cimtool.simulation.kernels.conversions import ConversionKernel
from cimtool.simulation.kernels.fused import INT32
from cimtool.simulation.kernels.noisy import noisy_cells
from cimtool.simulation.kernels.products import Factor, PairProduct, weight_product

KINDS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64)
LIMITS = {kind: (int(np.iinfo(kind).min), int(np.iinfo(kind).max)) for kind in KINDS}
"""The least and largest number of each type."""


def element_kind(known: Type) -> type[np.signedinteger] | type[np.unsignedinteger]:
    """The narrowest integer type that holds the values."""
    lo, hi = int(known.lo.min()), int(known.hi.max())
    return next(kind for kind, (least, most) in LIMITS.items() if least <= lo and hi <= most)


def in_int64(run: Kernel) -> Kernel:
    """Let a readable operation, which computes in int64, take integers of any width."""

    def call(*inputs: Array) -> Array:
        return run(*(x.astype(np.int64) if x.dtype.kind in "iu" else x for x in inputs))

    return call


def fast_kernel(op: Op, types: Types, known: Type | None = None) -> Kernel:
    """The fastest form of an operation for inputs of these types. It packs constants once.

    Integers are int64. If the result's type `known` is given, inputs and results have the narrowest
    types that their proved ranges allow.
    """
    return KERNELS.of(op)(op, types, known)


@KERNELS.rule(Op)
def _readable(op: Op, types: Types, known: Type | None) -> Kernel:
    return op.run if known is None else in_int64(op.run)


@KERNELS.rule(MatMul)
def _matmul(op: MatMul, types: Types, known: Type | None) -> Kernel:
    if not all(one.is_integer for one in types):
        return op.run
    return PairProduct(types, _kind(known))


@KERNELS.rule(Mvm)
def _mvm(op: Mvm, types: Types, known: Type | None) -> Kernel:
    return _product(op, types, known) if types[0].is_integer else op.run


def _product(op: Mvm | CrossbarMvm, types: Types, known: Type | None) -> Kernel:
    return weight_product(op.weight, op.bias, Factor.of(types[0]), _kind(known))


@KERNELS.rule(CrossbarMvm)
def _crossbar_mvm(op: CrossbarMvm, types: Types, known: Type | None) -> Kernel:
    kernel = _product(op, types, known) if op.exact else _converted(op, types, known)
    op.stored.release()  # the kernel has packed them
    return kernel


def _converted(op: CrossbarMvm, types: Types, known: Type | None) -> Kernel:
    layer, reached = op.layer, op.infer(types[0])
    kernel = fused_cells(layer, (reached.lo, reached.hi), _kind(known))
    if kernel is not None:
        return kernel
    return ConversionKernel(NoisyMvm(op, layer, np.array(-INT_LIMIT), np.array(INT_LIMIT)))


@KERNELS.rule(CellDistance)
def _cell_distance(op: CellDistance, types: Types, known: Type | None) -> Kernel:
    return WordSearch(op)


class WordSearch:
    """A search of a content-addressable memory by a matrix product of marks per word.

    Words are packed once. If words are sensed without loss, one product does for all. The products
    run in floating point and are exact, because word distances are small enough.
    """

    def __init__(self, op: CellDistance):
        width = op.stored.shape[1]
        words = (slice(0, width),) if op.plain_sum else op.words
        largest = max(word.stop - word.start for word in words) * int(op.table.max())
        self.kind = np.float32 if largest < 1 << SINGLE_BITS - 1 else np.float64
        self.values, self.step, self.items = 1 << op.bits, op.step, len(op.stored)
        unlimited = op.plain_sum or op.top is None
        self.top = np.iinfo(np.int64).max if unlimited else op.top
        self.planes = [
            (one.word, one.steps.astype(self.kind), one.least.astype(self.kind))
            for one in rising_planes(op, words)
        ]

    def __call__(self, query: Array) -> IntArray:
        """Distances [n, M] of query codes [n, d] to the stored items."""
        total = np.zeros((len(query), self.items), np.int64)
        for word, steps, least in self.planes:
            cells = query[:, word]
            marks = np.hstack([cells >= k for k in range(1, self.values)])
            partial = np.matmul(marks.astype(self.kind), steps)
            _add_codes(partial, least, self.step, self.top, total)
        return total


@jit
def _add_codes(partial, least, step, top, total):  # type: ignore[no-untyped-def]
    for i in range(partial.shape[0]):
        for j in range(partial.shape[1]):
            total[i, j] += min(np.int64(partial[i, j] + least[j]) // step, top)


@KERNELS.rule(NoisyMvm)
def _noisy_mvm(op: NoisyMvm, types: Types, known: Type | None) -> Kernel:
    """Frozen noise is part of the cells, so any kernel does; fresh noise needs `noisy_cells`."""
    if op.measured is not None:
        return _readable(op, types, known)
    sums = fused_cells(op.layer) if op.frozen else noisy_cells(op)
    kernel = ConversionKernel(op) if sums is None else _clipped(sums, op.lo, op.hi)
    return kernel if known is None else in_int64(kernel)


def _clipped(kernel: Kernel, lo: IntArray, hi: IntArray) -> Kernel:
    return lambda x: np.clip(kernel(x), lo, hi)


def _kind(known: Type | None) -> Kind:
    """The type of a product's results."""
    if known is None or not known.is_integer:
        return np.int64
    fits = int(known.lo.min()) >= INT32.min and int(known.hi.max()) <= INT32.max
    return np.int32 if fits else np.int64


def _narrow(form: Callable[..., Kernel]) -> Callable[..., Kernel]:
    """Make a rule of a form that is only for narrow integers; else the readable operation runs."""

    def rule(op: Op, types: Types, known: Type | None) -> Kernel:
        if known is None or not known.is_integer:
            return _readable(op, types, known)
        return form(op, known)

    return rule


@KERNELS.rule(Quantize)
@_narrow
def _quantized(op: Quantize, known: Type) -> Kernel:
    kind, scale = element_kind(known), np.asarray(op.scale, np.float32)

    def quantize(x: Array) -> Array:
        steps = np.rint(np.asarray(x, np.float32) / scale)
        codes: Array = np.clip(steps, op.lo, op.hi, out=steps).astype(kind)
        return codes

    return quantize


@KERNELS.rule(Requant)
@_narrow
def _requantized(op: Requant, known: Type) -> Kernel:
    kind = element_kind(known)
    multiplier, shift = np.ravel(op.multiplier), np.ravel(op.shift)

    def requant(x: Array) -> Array:
        rows = np.ascontiguousarray(x.reshape(-1, x.shape[-1]))
        factors, shifts = (
            np.array(np.broadcast_to(part, rows.shape[1]), np.int64) for part in (multiplier, shift)
        )
        out = np.empty(rows.shape, kind)
        _requant(rows, factors, shifts, op.lo, op.hi, out)
        return out.reshape(x.shape)

    return requant


@KERNELS.rule(Mul)
@_narrow
def _multiplied(op: Mul, known: Type) -> Kernel:
    kind, wide = element_kind(known), in_int64(op.run)

    def multiply(x: Array, y: Array) -> Array:
        if x.shape != y.shape:
            return wide(x, y)
        out = np.empty(x.shape, kind)
        _multiply(np.ravel(x), np.ravel(y), np.ravel(out))
        return out

    return multiply


@KERNELS.rule(SumOfMaxima)
@_narrow
def _summed_maxima(op: SumOfMaxima, known: Type) -> Kernel:
    kind = element_kind(known)

    def summed(x: Array) -> Array:
        out = np.empty((len(x) // op.rows, x.shape[1] // op.columns), kind)
        _sum_of_maxima(x, op.rows, op.columns, out)
        return out

    return summed


@jit
def _sum_of_maxima(x, rows, columns, out):  # type: ignore[no-untyped-def]
    for n in range(out.shape[0]):
        for m in range(out.shape[1]):
            total = np.int64(0)
            for i in range(n * rows, n * rows + rows):
                largest = x[i, m * columns]
                for j in range(m * columns + 1, m * columns + columns):
                    largest = max(largest, x[i, j])
                total += largest
            out[n, m] = total


@jit
def _multiply(x, y, out):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        out[i] = np.int64(x[i]) * np.int64(y[i])


@jit
def _requant(x, factors, shifts, lo, hi, out):  # type: ignore[no-untyped-def]
    rows, width = x.shape
    for i in range(rows):
        for j in range(width):
            half = np.int64(1) << (shifts[j] - 1)
            value = (np.int64(x[i, j]) * factors[j] + half) >> shifts[j]
            out[i, j] = min(max(value, lo), hi)
