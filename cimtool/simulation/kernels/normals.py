"""Normal numbers from counters, in vector registers, bit for bit as `fresh.normal`.

A plain loop over `fresh.normal` uses only half of each register, because its keys have 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from cimtool.hardware.noise.fresh import (
    GOLDEN,
    LOGARITHM,
    MIDDLE,
    MIX_1,
    MIX_2,
    TAIL,
    TAILS,
)
from cimtool.simulation.kernels.tiles import LANES, VECTORS, WIDTH, VectorPlaces, call, splat

_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_WORDS, _KEYS, _REALS = (ir.VectorType(kind, WIDTH) for kind in (_I32, _I64, _F32))


def _all(kind: Any, value: Any) -> Any:
    """A constant in every lane. A real number is rounded to float32."""
    number = float(np.float32(value)) if kind is _REALS else int(value)
    return ir.Constant(kind, [number] * WIDTH)


def _polynomial(b: Any, x: Any, coefficients: Sequence[np.float32]) -> Any:
    """Evaluate a polynomial by Horner's scheme; the highest power comes first."""
    value = _all(_REALS, coefficients[0])
    for coefficient in coefficients[1:]:
        value = b.fadd(b.fmul(value, x), _all(_REALS, coefficient))
    return value


def _mixed(b: Any, z: Any) -> Any:
    """As `fresh.mix`."""
    for shift, factor in ((30, MIX_1), (27, MIX_2)):
        z = b.mul(b.xor(z, b.lshr(z, _all(_KEYS, shift))), _all(_KEYS, factor))
    return b.xor(z, b.lshr(z, _all(_KEYS, 31)))


def _logarithm(b: Any, t: Any) -> Any:
    """As the logarithm in `fresh`."""
    bits = b.bitcast(t, _WORDS)
    exponent = b.ashr(b.sub(bits, _all(_WORDS, 0x3F3504F3)), _all(_WORDS, 23))
    mantissa = b.bitcast(b.sub(bits, b.shl(exponent, _all(_WORDS, 23))), _REALS)
    m = b.fsub(mantissa, _all(_REALS, 1.0))
    y = _polynomial(b, m, LOGARITHM)
    squared = b.fmul(m, m)
    total = b.fsub(b.fmul(b.fmul(y, m), squared), b.fmul(_all(_REALS, 0.5), squared))
    total = b.fadd(total, m)
    return b.fadd(total, b.fmul(b.sitofp(exponent, _REALS), _all(_REALS, 0.69314718056)))


def _normal(b: Any, keys: Any) -> Any:
    """As `fresh.normal`, for 32 keys."""
    bits = b.trunc(b.lshr(_mixed(b, keys), _all(_KEYS, 32)), _WORDS)
    low = b.sitofp(b.and_(bits, _all(_WORDS, 0x7FFFFFFF)), _REALS)
    p = b.fmul(b.fadd(low, _all(_REALS, 0.5)), _all(_REALS, 2.0**-31))
    w = b.fneg(_logarithm(b, b.fmul(p, b.fsub(_all(_REALS, 2.0), p))))
    near = b.fcmp_ordered("<", w, _all(_REALS, TAIL))
    value = _polynomial(b, b.fsub(w, _all(_REALS, 2.5)), MIDDLE)
    before = b.block
    every = ir.Constant(ir.IntType(WIDTH), (1 << WIDTH) - 1)
    with b.if_then(b.icmp_unsigned("!=", b.bitcast(near, every.type), every), likely=False):
        root = call(b, "llvm.sqrt.v32f32", _REALS, b.select(near, _all(_REALS, TAIL), w))
        outer = _polynomial(b, b.fsub(root, _all(_REALS, 3.0)), TAILS)
        mended, behind = b.select(near, value, outer), b.block
    both = b.phi(_REALS)
    both.add_incoming(value, before)
    both.add_incoming(mended, behind)
    z = b.fmul(b.fmul(both, b.fsub(_all(_REALS, 1.0), p)), _all(_REALS, 1.4142135623730951))
    negative = b.icmp_signed("<", bits, _all(_WORDS, 0))
    return b.select(negative, b.fneg(z), z)


class Line(types.Type):  # type: ignore[misc]
    """The type of 32 float32 numbers in compiled code: one for each column of a tile."""

    def __init__(self) -> None:
        super().__init__(name=f"line{WIDTH}")


LINE = Line()


@register_model(Line)
class _LineModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Line):
        super().__init__(manager, kind, _REALS)


@intrinsic
def normal_line(typing, key, first):  # type: ignore[no-untyped-def]
    """Normal numbers for the keys key + (first + j) GOLDEN, j < 32."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        start = builder.add(args[0], builder.mul(args[1], ir.Constant(_I64, int(GOLDEN))))
        lanes = [int(GOLDEN) * j % (1 << 64) for j in range(WIDTH)]
        keys = builder.add(splat(builder, start, WIDTH), ir.Constant(_KEYS, lanes))
        return _normal(builder, keys)

    return LINE(types.uint64, types.int64), emit


@intrinsic
def load_reals(typing, values, at):  # type: ignore[no-untyped-def]
    """Load the float32 elements at..at+31 of `values`."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        place = VectorPlaces(context, builder, signature.args).pointer(args, 0, args[1], _REALS)
        return builder.load(place, align=4)

    return LINE(values, types.int64), emit


@intrinsic
def store_reals(typing, line, out, at):  # type: ignore[no-untyped-def]
    """Write a line to out[at + j], float32."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        place = VectorPlaces(context, builder, signature.args).pointer(args, 1, args[2], _REALS)
        builder.store(args[0], place, align=4)
        return context.get_dummy_value()

    return types.void(LINE, out, types.int64), emit


def _lanewise(count: int, operation: Callable[..., Any]) -> Any:
    """Make an operation on `count` lines from one on their vectors."""

    def emit(context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> Any:
        return operation(builder, *args)

    if count == 1:
        return intrinsic(lambda typing, a: (LINE(LINE), emit))
    if count == 2:
        return intrinsic(lambda typing, a, b: (LINE(LINE, LINE), emit))
    return intrinsic(lambda typing, a, b, c: (LINE(LINE, LINE, LINE), emit))


def _root(b: Any, x: Any) -> Any:
    zero = _all(_REALS, 0.0)
    above = b.select(b.fcmp_ordered(">", x, zero), x, zero)
    return call(b, "llvm.sqrt.v32f32", _REALS, above)


def _share(b: Any, x: Any, pivot: Any) -> Any:
    zero = _all(_REALS, 0.0)
    return b.select(b.fcmp_ordered(">", pivot, zero), b.fdiv(x, pivot), zero)


times = _lanewise(2, lambda b, x, y: b.fmul(x, y))
"""x y."""

plus_product = _lanewise(3, lambda b, total, x, y: b.fadd(total, b.fmul(x, y)))
"""total + x y."""

less_product = _lanewise(3, lambda b, total, x, y: b.fsub(total, b.fmul(x, y)))
"""total - x y."""

root = _lanewise(1, _root)
"""The square root of x; 0 if x is negative."""

share = _lanewise(2, _share)
"""x / pivot; 0 if the pivot is not positive."""


@intrinsic
def as_reals(typing, tile):  # type: ignore[no-untyped-def]
    """Convert the integers of a one-row tile to a line, rounded to float32."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.sitofp(_words(builder, args[0]), _REALS)

    return LINE(tile), emit


@intrinsic
def add_rounded(typing, tile, line, scale):  # type: ignore[no-untyped-def]
    """Add floor(line * scale + 1/2) to a tile of one row."""

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        scaled = builder.fmul(args[1], splat(builder, args[2], WIDTH))
        whole = builder.fadd(scaled, _all(_REALS, 0.5))
        whole = call(builder, "llvm.floor.v32f32", _REALS, whole)
        words = builder.add(_words(builder, args[0]), builder.fptosi(whole, _WORDS))
        found, halves = args[0], range(VECTORS)
        for v in halves:
            lanes = list(range(v * LANES, (v + 1) * LANES))
            mask = ir.Constant(ir.VectorType(_I32, LANES), lanes)
            part = builder.shuffle_vector(words, words, mask)
            found = builder.insert_value(found, part, v)
        return found

    return tile(tile, LINE, types.float32), emit


def _words(builder: Any, tile: Any) -> Any:
    """Join the integers of a one-row tile into one vector."""
    halves = [builder.extract_value(tile, v) for v in range(VECTORS)]
    every = ir.Constant(ir.VectorType(_I32, WIDTH), list(range(WIDTH)))
    return builder.shuffle_vector(*halves, every)
