"""Operations on single integers, in the narrowest type that holds their proved range."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.compiled import jit
from cimtool.ir.arithmetic import Mul
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.types import Type

KINDS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64)


def element_kind(known: Type) -> type[np.signedinteger] | type[np.unsignedinteger]:
    """The narrowest integer type for values within the bounds."""
    lo, hi = int(known.lo.min()), int(known.hi.max())
    fitting = (k for k in KINDS if np.iinfo(k).min <= lo and hi <= np.iinfo(k).max)
    return next(fitting)


def widened(run: Callable[..., Array]) -> Callable[..., Array]:
    """A readable operation, which computes in int64, on integers of any width."""

    def call(*inputs: Array) -> Array:
        return run(*(x.astype(np.int64) if x.dtype.kind in "iu" else x for x in inputs))

    return call


def quantized(op: Quantize, known: Type) -> Callable[..., Array]:
    """Rounding to codes `known`."""
    kind, scale = element_kind(known), np.asarray(op.scale, np.float32)

    def quantize(x: Array) -> Array:
        steps = np.rint(np.asarray(x, np.float32) / scale)
        codes: Array = np.clip(steps, op.lo, op.hi, out=steps).astype(kind)
        return codes

    return quantize


def requantized(op: Requant, known: Type) -> Callable[..., Array]:
    """Requantisation of integers of any width to results `known`."""
    kind = element_kind(known)
    multiplier, shift = np.ravel(op.multiplier), np.ravel(op.shift)

    def requant(x: Array) -> Array:
        rows = x.reshape(-1, x.shape[-1])
        width = rows.shape[1]
        factors = np.ascontiguousarray(np.broadcast_to(multiplier, width), np.int64)
        shifts = np.ascontiguousarray(np.broadcast_to(shift, width), np.int64)
        out = np.empty(rows.shape, kind)
        _requant(np.ascontiguousarray(rows), factors, shifts, op.lo, op.hi, out)
        return out.reshape(x.shape)

    return requant


def multiplied(op: Mul, known: Type) -> Callable[..., Array]:
    """Products of integers of any width, with results `known`."""
    kind, wide = element_kind(known), widened(op.run)

    def multiply(x: Array, y: Array) -> Array:
        if x.shape != y.shape:
            return wide(x, y)
        out = np.empty(x.shape, kind)
        _multiply(np.ravel(x), np.ravel(y), np.ravel(out))
        return out

    return multiply


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
