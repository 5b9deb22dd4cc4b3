"""Rules of quantizers with the model's scales, zero points and bits: QDQ, QCDQ and QONNX.

A dequantized constant is the weight of a layer; its integers are kept. A value that is quantized
and dequantized is stored in that format. The definitions:
https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html, and for QONNX
https://github.com/fastmachinelearning/qonnx/blob/main/docs/qonnx-custom-ops/quant_op.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray, single
from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.format import quantize
from cimtool.ir.program import Graph
from cimtool.ir.quantized import QuantizedMvm, QuantizedStore
from cimtool.loading.onnx.builder import Rows
from cimtool.loading.onnx.graph import type_name
from cimtool.loading.onnx.translation import (
    DOMAINS,
    RULES,
    KeptConstant,
    Rule,
    Translated,
    Translation,
    Unread,
    rule,
)

INTEGERS = {
    f"{sign}int{bits}": (bits, sign == "")
    for bits in (2, 4, 8, 16)
    for sign in ("", "u")
}  # fmt: skip
"""Types of codes: bits, and True if signed."""

BIAS_TYPE = "int32"
"""The type of codes of biases; only biases have it."""

MOST_BITS = 16
"""Bits at most of a weight or an activation."""

MOST_BIAS_BITS = 32
"""Bits at most of a bias, which is a real number in a program."""

EVEN = (b"ROUND", b"HALF_EVEN")
"""The rounding modes of QONNX that round as QuantizeLinear does: halves to even."""


def _limited(t: Translation) -> Translated:
    """Codes clipped to fewer bits (QCDQ)."""
    codes = t.value(0)
    assert isinstance(codes, Codes)
    lo, hi = _within(t, codes.lo, codes.hi)
    return replace(codes, lo=lo, hi=hi)


@dataclass(frozen=True, eq=False)
class Codes(Unread):
    """Integer codes, `lo` to `hi`, of a value, from a quantizer with this step and zero point."""

    text = "codes of a quantizer"
    expected = (
        "rows of numbers: DequantizeLinear right behind the quantizer, as a graph is exported, "
        "before a runtime optimises it"
    )
    rules: ClassVar = {"Clip": _limited}
    of: Rows
    lo: int
    hi: int
    step: float
    zero: int


def _turned(t: Translation) -> Translated:
    """The transpose of dequantized weights."""
    weights = t.value(0)
    assert isinstance(weights, IntegerWeights)
    axes = range(weights.codes.ndim)
    order = list(t.node.attributes.get("perm", axes[::-1]))
    if sorted(order) != list(axes):
        t.fail(f"perm is {order}; expected each of {weights.codes.ndim} axes once")
    axis = None if weights.axis is None else order.index(weights.axis)
    return replace(weights, codes=weights.codes.transpose(order), axis=axis)


@dataclass(frozen=True, eq=False)
class IntegerWeights(KeptConstant):
    """Integer weights minus zero points, with one scale or a scale per index of an axis.

    `bits` are the quantizer's; `axis` is None for one `scale` [1].
    """

    rules: ClassVar = {"Transpose": _turned}
    codes: IntArray
    scale: FloatArray
    axis: int | None
    bits: int

    @property
    def real(self) -> FloatArray:  # type: ignore[override]
        """The real numbers that they stand for, rounded to float32."""
        along = [-1 if place == self.axis else 1 for place in range(self.codes.ndim)]
        with np.errstate(over="ignore"):  # callers refuse infinite weights
            return np.asarray(single(self.codes * self.scale.reshape(along)))

    def layer(self, t: Translation, weight: FloatArray, bias: FloatArray, axis: int) -> Mvm:
        """The layer with the file's integer weights."""
        weight, factor = np.ascontiguousarray(weight), abs(t.number("alpha", 1.0))
        if not factor:
            return Mvm(weight, bias)
        if self.axis not in (None, axis):
            t.fail("its weights have a scale for each input; expected one, or one for each output")
        if self.bits > MOST_BITS:
            t.fail(f"its weights are of {self.bits} bits; expected at most {MOST_BITS}")
        scale = np.array(np.broadcast_to(self.scale * factor, bias.shape))
        return QuantizedMvm(weight, bias, weight_scale=scale, weight_bits=self.bits)


@rule("QuantizeLinear")
def quantize_linear(t: Translation) -> Translated:
    """The codes `clip(rint(x / scale) + zero point)` of a value or of a constant."""
    _require_one_scale(t)
    kind = _code_type(t)
    lo, hi = _limits(*INTEGERS[kind])
    value = t.value(0)
    if isinstance(value, np.ndarray):
        t.folder.take(value.size, t.where)
        scale, zero, _ = _spread(t, value)
        with np.errstate(over="ignore"):
            steps = quantize(t.weights(0), scale, lo - hi, hi - lo) + zero
        codes: Array = np.clip(steps, lo, hi).astype(np.dtype(kind))
        return codes
    return Codes(t.view(), lo, hi, _step(t), _zero(t))


@rule("DequantizeLinear")
def dequantize_linear(t: Translation) -> Translated:
    """`(codes - zero point) * scale`: a store for rows, weights for a matrix, else real numbers."""
    _require_one_scale(t)
    codes = t.value(0)
    if isinstance(codes, Codes):
        if (codes.step, codes.zero) != (_step(t), _zero(t)):
            t.fail(
                "has another scale or zero point than the quantizer of its input; expected the same"
            )
        return _stored(t, codes.of, codes.step, (codes.lo - codes.zero, codes.hi - codes.zero))
    if not isinstance(codes, np.ndarray):
        t.fail(f"its input {t.input(0)} is not a quantizer's; expected codes")
    t.folder.take(codes.size, t.where)
    if t.input(2) and _constant(t, 2).dtype != codes.dtype:
        t.fail(f"{t.input(2)} is of another type than {t.input(0)}; expected the same")
    bits = 32 if codes.dtype.name == BIAS_TYPE else _bits_of_constant(t, codes)
    scale, zero, axis = _spread(t, codes)
    return _weights(codes.astype(np.int64) - zero, scale, axis, bits)


def _bits_of_constant(t: Translation, codes: Array) -> int:
    """Bits of constant codes: from their type, or from the limits of a `Clip` before (QCDQ)."""
    if codes.dtype.name not in INTEGERS:
        kind = codes.dtype.name
        t.fail(f"{t.input(0)} is of type {kind}; expected integers of 2, 4, 8 or 16 bits")
    bits, signed = INTEGERS[codes.dtype.name]
    lo, hi = _limits(bits, signed)
    clip = t.graph.makers.get(t.input(0))
    if clip is None or clip.kind != "Clip":
        return bits
    lo, hi = _within(replace(t, node=clip), lo, hi)
    return (hi - lo).bit_length()


def _within(t: Translation, lo: int, hi: int) -> tuple[int, int]:
    """The limits of codes after a `Clip`."""
    least, most = t.limits()
    if not max(least, lo) < min(most, hi):
        t.fail(f"limits codes to {least:g} .. {most:g}; expected two codes at least")
    return int(max(least, lo)), int(min(most, hi))


def quant(t: Translation) -> Translated:
    """QONNX: the input rounded to a number of bits, as real numbers."""
    signed, narrow = (bool(_integer(t, name, 1)) for name in ("signed", "narrow"))
    mode = t.node.attributes.get("rounding_mode", b"ROUND")
    if not isinstance(mode, bytes) or mode.upper() not in EVEN:
        said = mode.decode("utf-8", "replace") if isinstance(mode, bytes) else mode
        t.fail(f"rounding_mode is {said}; expected ROUND, halves to even")
    bits, value = _whole(t, 3, "its bit width"), t.value(0)
    bias = isinstance(value, np.ndarray) and value.size == max(value.shape, default=1)
    most = MOST_BIAS_BITS if bias else MOST_BITS
    if not 1 <= bits <= most:
        t.fail(f"its bit width is {bits}; expected 1 to {most}")
    lo, hi = _limits(bits, signed)
    lo, hi = (lo + (narrow and signed), hi - (narrow and not signed))
    if not lo < hi:
        t.fail("leaves one code; expected two at least")
    if not isinstance(value, np.ndarray):
        view, zero = t.view(), _whole(t, 2, "its zero point")
        if zero and view.name == "x":
            t.fail(
                f"its zero point is {zero}, which QONNX adds before it rounds; expected 0 for "
                "the input, or QuantizeLinear"
            )
        if not lo <= zero <= hi:
            t.fail(f"its zero point is {zero}; expected {lo} to {hi}")
        if bits == 1 and signed:
            t.fail("makes signs of what depends on the input; expected 2 bits at least")
        return _stored(t, view, _step(t), (lo - zero, hi - zero))
    return _constant_quant(t, bits, signed, (lo, hi))


def _constant_quant(
    t: Translation, bits: int, signed: bool, limits: tuple[int, int]
) -> IntegerWeights | Array:
    """A constant of QONNX, with one scale and zero point, or with one each per channel."""
    value, (lo, hi) = t.weights(0), limits
    t.folder.take(value.size, t.where)
    scale, axis = _along_an_axis(t, value, _scale(t, 1), "scales")
    zero, _ = _along_an_axis(t, value, _constant(t, 2).astype(np.float64), "zero points")
    for wrong, expected in (
        (zero != np.rint(zero), "a whole number"),
        (~((lo <= zero) & (zero <= hi)), f"{lo} to {hi}"),
    ):
        if wrong.any():
            t.fail(f"its zero point is {zero[wrong][0]:g}; expected {expected}")
    if bits == 1 and signed:
        if zero.any():
            t.fail(
                f"its zero point is {zero[zero != 0][0]:g}, which QONNX adds before it takes "
                "signs; expected 0 for 1 bit"
            )
        return _weights(_signs(value), scale, axis, bits)
    with np.errstate(over="ignore"):
        steps = value.astype(np.float32) / scale.astype(np.float32) + zero.astype(np.float32)
    codes = np.rint(np.clip(steps, np.float32(lo), np.float32(hi))).astype(np.int64)
    return _weights(codes - zero.astype(np.int64), scale, axis, bits)


def bipolar_quant(t: Translation) -> Translated:
    """QONNX: the signs of weights, times a scale."""
    if not isinstance(t.value(0), np.ndarray):
        t.fail("makes signs of what depends on the input; expected weights, or 2 bits at least")
    value = t.weights(0)
    t.folder.take(value.size, t.where)
    return _weights(_signs(value), *_along_an_axis(t, value, _scale(t, 1), "scales"), 1)


def _signs(value: Array) -> IntArray:
    return np.where(value >= 0, 1, -1)


def require_one_quantizer(tower: Graph, file: str) -> None:
    """Raise CimError if a quantizer and another operation both read the input of a projector.

    A program takes its input in one form.
    """
    readers = [node for node in tower.nodes if "x" in node.inputs]
    if len(readers) > 1 and any(isinstance(node.op, QuantizedStore) for node in readers):
        names = " and ".join(node.name for node in readers)
        raise CimError(
            f"{file}: the input is read through different quantizers, or sometimes without one "
            f"({names}); expected one quantizer for all its readers"
        )


def refused(complaint: str) -> Rule:
    """A rule that refuses an operator with this complaint."""
    return lambda t: t.fail(complaint)


def _stored(t: Translation, view: Rows, step: float, limits: tuple[int, int]) -> Rows:
    """The store of a program's value; equal quantizers of the value share one store."""
    x, (lo, hi) = t.whole(view), limits
    role = "input" if x.name == "x" else "activation"
    op = QuantizedStore(role, (hi - lo).bit_length(), scale=step, lo=lo, hi=hi)
    name = f"{x.name}_stored"
    made = t.builder.by_name.get(name)
    if made is None or (made.inputs, made.op) != ((x.name,), op):
        name = t.builder.add(name, op, x.name)
    return replace(x, name=name)


def _weights(
    codes: IntArray, scale: FloatArray, axis: int | None, bits: int
) -> IntegerWeights | Array:
    """Dequantized constants: weights for a matrix or kernels, plain numbers for a vector."""
    weights = IntegerWeights(codes, scale.reshape(-1), axis, bits)
    return weights if codes.ndim > 1 else weights.real


def _limits(bits: int, signed: bool) -> tuple[int, int]:
    """The lowest and highest code: two's complement if signed, else from 0."""
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _require_one_scale(t: Translation) -> None:
    """Raise CimError for a scale per block of numbers, and for division in another precision."""
    from onnx import TensorProto

    if block := _integer(t, "block_size", 0):
        t.fail(
            f"has a scale for each {block} numbers (block_size); expected one for all, or one for "
            "each output of a layer"
        )
    if _integer(t, "precision", 0) not in (0, TensorProto.FLOAT):
        t.fail("divides in another precision than float; expected float")


def _code_type(t: Translation) -> str:
    """The type of a quantizer's codes: its zero point's, else its `output_dtype`, else uint8."""
    kind, said = "uint8", _integer(t, "output_dtype", 0)
    if t.input(2):
        kind = _constant(t, 2).dtype.name
    elif said:
        kind = type_name(said)
    if kind not in INTEGERS:
        t.fail(f"its codes are of type {kind}; expected integers of 2, 4, 8 or 16 bits")
    return kind


def _constant(t: Translation, index: int) -> Array:
    """An input that is a constant of the file, in its own type."""
    value = t.value(index)
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OSUc":
        t.fail(f"its input {t.input(index)} is computed; expected a constant of numbers")
    return value


def _integer(t: Translation, name: str, absent: int) -> int:
    """An attribute that is a whole number; in other domains nothing else checks its type."""
    value = t.node.attributes.get(name, absent)
    if not isinstance(value, int):
        t.fail(f"{name} is {value!r}; expected a whole number")
    return value


def _scale(t: Translation, index: int) -> FloatArray:
    """A scale, or the scales of channels: constants of float32 above 0."""
    scale = _constant(t, index)
    if scale.dtype != np.float32:
        t.fail(f"{t.input(index)} is of type {scale.dtype.name}; expected a scale of float")
    least = np.finfo(np.float32).smallest_normal
    wrong = ~((scale >= least) & np.isfinite(scale))
    if wrong.any() or not scale.size:
        held = f"holds {scale[wrong].flat[0]}" if scale.size else "is empty"
        t.fail(f"{t.input(index)} {held}; expected scales of at least {least:.3g}")
    return scale.astype(np.float64)


def _step(t: Translation) -> float:
    """The scale of a value that depends on the input."""
    scale = _scale(t, 1)
    if scale.size != 1:
        t.fail(
            f"has a scale for each of {scale.size} channels of what depends on the input; "
            "expected one for all"
        )
    return float(scale.item())


def _zero(t: Translation) -> int:
    """The zero point of a value that depends on the input, 0 if it is left out."""
    return _whole(t, 2, "its zero point") if t.input(2) else 0


def _whole(t: Translation, index: int, what: str) -> int:
    """A whole number that is a constant of the file."""
    value = _constant(t, index)
    if value.size != 1:
        t.fail(f"{what} has shape {list(value.shape)}; expected one number")
    number = float(value.astype(np.float64).item())
    if not number.is_integer():
        t.fail(f"{what} is {number:g}; expected a whole number")
    return int(number)


def _spread(t: Translation, value: Array) -> tuple[FloatArray, IntArray, int | None]:
    """Scale and zero point, shaped to broadcast over a constant, and the axis of their numbers.

    The axis is None if there is a single scale.
    """
    scale = _scale(t, 1)
    zero = _constant(t, 2).astype(np.int64) if t.input(2) else np.zeros(scale.shape, np.int64)
    if zero.size != scale.size:
        t.fail(f"has {scale.size} scales and {zero.size} zero points; expected equal numbers")
    if scale.size == 1:
        return scale.reshape(()), zero.reshape(()), None
    axis = _integer(t, "axis", 1)
    axis += value.ndim if axis < 0 else 0
    if scale.ndim != 1 or not 0 <= axis < value.ndim or value.shape[axis] != scale.size:
        t.fail(
            f"has scales {list(scale.shape)} along axis {axis} of {list(value.shape)}; expected "
            "one in all, or one for each place along its axis"
        )
    along = [-1 if place == axis else 1 for place in range(value.ndim)]
    return scale.reshape(along), zero.reshape(along), axis


def _along_an_axis(
    t: Translation, value: Array, numbers: FloatArray, what: str
) -> tuple[FloatArray, int | None]:
    """Numbers of QONNX, shaped to broadcast over a constant, and their axis (None for one)."""
    ends = (1,) * (value.ndim - numbers.ndim) + numbers.shape
    long = [axis for axis, extent in enumerate(ends) if extent > 1]
    if len(ends) != value.ndim or len(long) > 1 or any(ends[a] != value.shape[a] for a in long):
        t.fail(
            f"has {what} {list(numbers.shape)} for {list(value.shape)}; expected one in all, or "
            "one along an axis"
        )
    return numbers.reshape(ends), long[0] if long else None


OF_INTEGERS = refused("uses integer operators; expected QuantizeLinear and DequantizeLinear (QDQ)")
DYNAMIC = refused(
    "computes its scale from each row; expected constant scales (static quantization)"
)

RULES |= dict.fromkeys(("MatMulInteger", "QLinearConv", "QLinearMatMul"), OF_INTEGERS)
RULES["DynamicQuantizeLinear"] = DYNAMIC
QUANTIZERS = (
    *("DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv"),
    *("QLinearMatMul", "QuantizeLinear"),
)
"""The operators of ONNX that quantize."""

DOMAINS["com.microsoft"] = {
    **{kind: RULES[kind] for kind in QUANTIZERS},
    **dict.fromkeys(("DynamicQuantizeMatMul", "MatMulIntegerToFloat"), DYNAMIC),
    **dict.fromkeys(("QGemm", "QLinearAdd", "QLinearSigmoid"), OF_INTEGERS),
}
for domain in ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general"):
    DOMAINS[domain] = {
        "BipolarQuant": bipolar_quant,
        "IntQuant": quant,
        "Quant": quant,
        "Trunc": refused("truncates bits; expected Quant"),
    }
