"""Operations as ONNX nodes: a rule for each operation of the float and of the final program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from cimtool.emit.integers import byte_planes, emit_limits, emit_requant
from cimtool.emit.row_group import emit_mvm
from cimtool.emit.search import emit_search
from cimtool.emit.writer import GraphWriter
from cimtool.hardware.cell_distance import CellDistance
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import (
    Add,
    Arrange,
    Axis,
    BatchMatMul,
    Clip,
    MatMul,
    Mul,
    Mvm,
    Store,
    Sum,
    SumOfMaxima,
)
from cimtool.ir.backends import ONNX
from cimtool.ir.integer import Dequantize, Quantize, Requant
from cimtool.ir.op import Op
from cimtool.ir.program import Graph, Node
from cimtool.ir.quantized import QuantizedStore
from cimtool.ir.source import (
    Abs,
    CosineScore,
    DistanceScore,
    Elu,
    Erf,
    Exp,
    Gate,
    Inclusion,
    InverseRoot,
    L2Normalize,
    LayerNorm,
    LeakyRelu,
    LinearScore,
    Log,
    LogGamma,
    PolynomialScore,
    Power,
    ProbitScore,
    Reciprocal,
    RmsNorm,
    Sigmoid,
    Softmax,
    Softplus,
    Sorted,
    Sqrt,
    Tanh,
)
from cimtool.ir.types import INT_LIMIT, Type, Types, integer


def append(writer: GraphWriter, graph: Graph, node: Node, values: Mapping[str, str]) -> str:
    """Append one operation of a graph, on the `values` so far; return the name of its value."""
    types = tuple(graph.types[i] for i in node.inputs)
    return ONNX.of(node.op)(writer, node.op, types, *(values[i] for i in node.inputs))


@ONNX.rule(Mvm)
def _mvm(writer: GraphWriter, op: Mvm, types: Types, x: str) -> str:
    return writer.node("Gemm", x, writer.constant(op.weight), writer.constant(op.bias))


@ONNX.rule(CrossbarMvm)
def _crossbar_mvm(writer: GraphWriter, op: CrossbarMvm, types: Types, x: str) -> str:
    return emit_mvm(writer, op, types[0], x)


@ONNX.rule(CellDistance)
def _cell_distance(writer: GraphWriter, op: CellDistance, types: Types, x: str) -> str:
    return emit_search(writer, op, x)


@ONNX.rule(MatMul)
def _matmul(writer: GraphWriter, op: MatMul, types: Types, a: str, b: str) -> str:
    if not types[0].is_integer:
        return writer.node("MatMul", a, writer.node("Transpose", b))
    rows = byte_planes(writer, types[0], a)
    columns = [
        (writer.node("Transpose", plane), zero, shift)
        for plane, zero, shift in byte_planes(writer, types[1], b)
    ]
    total = ""
    for row, row_zero, row_shift in rows:
        for column, column_zero, column_shift in columns:
            product = writer.node("MatMulInteger", row, column, row_zero, column_zero)
            product = writer.cast(product, "INT64")
            if shift := row_shift + column_shift:
                factor = writer.constant(np.int64(1) << np.int64(shift))
                product = writer.node("Mul", product, factor)
            total = writer.node("Add", total, product) if total else product
    return total


@ONNX.rule(BatchMatMul)
def _batch_matmul(writer: GraphWriter, op: BatchMatMul, types: Types, a: str, b: str) -> str:
    width = int(types[0].shape[-1])
    batches, columns = (
        writer.node("Reshape", value, writer.constant(np.array([-1, rows, width])))
        for value, rows in ((a, op.rows), (b, op.columns))
    )
    product = writer.node("MatMul", batches, writer.node("Transpose", columns, perm=[0, 2, 1]))
    return writer.node("Reshape", product, writer.constant(np.array([-1, op.columns])))


@ONNX.rule(Arrange)
def _arrange(writer: GraphWriter, op: Arrange, types: Types, x: str) -> str:
    width = int(types[0].shape[-1])
    if not op.in_order(width):
        if op.rows > 1:
            x = writer.node("Reshape", x, writer.constant(np.array([-1, op.rows * width])))
        x = writer.node("Gather", x, writer.constant(op.places.reshape(-1)), axis=1)
        if len(op.places) == 1:
            return x
    return writer.node("Reshape", x, writer.constant(np.array([-1, op.places.shape[1]])))


@ONNX.rule(Softmax)
def _softmax(writer: GraphWriter, op: Softmax, types: Types, x: str) -> str:
    if op.mask is None:
        return writer.node("Softmax", x, axis=-1)
    items = writer.node("Reshape", x, writer.constant(np.array([-1, *op.mask.shape])))
    powers = writer.node("Softmax", writer.node("Add", items, writer.constant(op.mask)), axis=-1)
    return writer.node("Reshape", powers, writer.constant(np.array([-1, op.mask.shape[1]])))


@ONNX.rule(Sorted)
def _sorted(writer: GraphWriter, op: Sorted, types: Types, x: str) -> str:
    count = writer.constant(np.array([int(types[0].shape[-1])]))
    return writer.node("TopK", x, count, unread=1, axis=-1)


@ONNX.rule(Mul, Exp, Tanh, Sigmoid, Softplus, Log, Reciprocal, Abs, Sqrt)
def _same_operator(writer: GraphWriter, op: Op, types: Types, *inputs: str) -> str:
    """The operator of ONNX that has the operation's name."""
    return writer.node(type(op).__name__, *inputs)


@ONNX.rule(Power)
def _power(writer: GraphWriter, op: Power, types: Types, x: str) -> str:
    return writer.node("Pow", x, writer.constant(np.float64(op.exponent)))


@ONNX.rule(Gate)
def _gate(writer: GraphWriter, op: Gate, types: Types, a: str, b: str) -> str:
    return writer.node("Mul", a, b)


@ONNX.rule(Erf)
def _erf(writer: GraphWriter, op: Erf, types: Types, x: str) -> str:
    # ONNX Runtime has no Erf of double.
    return writer.cast(writer.node("Erf", writer.cast(x, "FLOAT")), writer.real)


@ONNX.rule(LogGamma)
def _log_gamma(writer: GraphWriter, op: LogGamma, types: Types, x: str) -> str:
    """Stirling's series at y = x + 8, less the logarithm of x (x + 1) ... (x + 7).

    ONNX has no such operator. For x above 0 the first term that is left out is below 1e-11.
    """

    def constant(value: float) -> str:
        return writer.constant(np.float64(value), "DOUBLE")

    x = writer.cast(x, "DOUBLE")
    product = x
    for step in range(1, STIRLING_STEPS):
        product = writer.node("Mul", product, writer.node("Add", x, constant(step)))
    y = writer.node("Add", x, constant(STIRLING_STEPS))
    inverse = writer.node("Reciprocal", y)
    square = writer.node("Mul", inverse, inverse)
    series = constant(STIRLING[-1])
    for coefficient in reversed(STIRLING[:-1]):
        series = writer.node("Add", writer.node("Mul", series, square), constant(coefficient))
    series = writer.node("Mul", series, inverse)
    powers = writer.node("Mul", writer.node("Sub", y, constant(0.5)), writer.node("Log", y))
    leading = writer.node("Add", writer.node("Sub", powers, y), constant(np.log(2 * np.pi) / 2))
    whole = writer.node("Add", leading, series)
    return writer.cast(writer.node("Sub", whole, writer.node("Log", product)), writer.real)


STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)
"""B_2k / (2k (2k - 1)), the coefficients of y^(1 - 2k) (https://dlmf.nist.gov/5.11.E1)."""

STIRLING_STEPS = 8
"""Steps of `gamma(x + 1) = x gamma(x)` by which the argument of the series is moved up."""


@ONNX.rule(Elu)
def _elu(writer: GraphWriter, op: Elu, types: Types, x: str) -> str:
    return writer.node("Elu", x, alpha=op.alpha)


@ONNX.rule(Add)
def _add(writer: GraphWriter, op: Add, types: Types, *inputs: str) -> str:
    total = ""
    for factor, x in zip(op.factors, inputs, strict=True):
        if total and np.ndim(factor) == 0 and factor == -1:
            total = writer.node("Sub", total, x)
            continue
        if np.ndim(factor) or factor != 1:
            x = writer.node("Mul", x, writer.constant(factor))
        total = writer.node("Add", total, x) if total else x
    if np.any(op.offset):
        total = writer.node("Add", total, writer.constant(op.offset))
    return total


@ONNX.rule(Sum)
def _sum(writer: GraphWriter, op: Sum, types: Types, x: str) -> str:
    return _total(writer, x, int(types[0].shape[-1]), types[0])


def _total(writer: GraphWriter, x: str, width: int, known: Type) -> str:
    """The sum over the last axis, of `width` numbers of this type."""
    # ReduceSum loses bits of int64 above 2^53; a product with ones does not.
    ones = np.ones(width, np.int64 if known.is_integer else np.float64)
    return writer.node("MatMul", x, writer.constant(ones))


@ONNX.rule(SumOfMaxima)
def _sum_of_maxima(writer: GraphWriter, op: SumOfMaxima, types: Types, x: str) -> str:
    parts = writer.node("Reshape", x, writer.constant(np.array([0, -1, op.columns])))
    largest = writer.node("ReduceMax", parts, writer.constant(np.array([2])), keepdims=0)
    # Reshape derives one extent alone: the items of the rows, with those of the columns first.
    by_column = writer.node("Transpose", largest, perm=[1, 0])
    of_pairs = writer.node("Reshape", by_column, writer.constant(np.array([0, -1, op.rows])))
    total = _total(writer, of_pairs, op.rows, types[0])
    return writer.node("Transpose", total, perm=[1, 0])


@ONNX.rule(Clip)
def _clip(writer: GraphWriter, op: Clip, types: Types, x: str) -> str:
    if types[0].is_integer:
        return emit_limits(writer, x, types[0], op.lo, op.hi)
    for kind, bound, absent in (("Max", op.lo, -np.inf), ("Min", op.hi, np.inf)):
        if np.any(bound != absent):
            x = writer.node(kind, x, writer.constant(bound))
    return x


@ONNX.rule(Axis)
def _axis(writer: GraphWriter, op: Axis, types: Types, x: str) -> str:
    return writer.node("Unsqueeze", x, writer.constant(np.array([op.axis])))


@ONNX.rule(Store)
def _identity(writer: GraphWriter, op: Op, types: Types, x: str) -> str:
    return x


@ONNX.rule(QuantizedStore)
def _quantized_store(writer: GraphWriter, op: QuantizedStore, types: Types, x: str) -> str:
    # In parts: ONNX Runtime moves QuantizeLinear and DequantizeLinear about, and rounds otherwise.
    scale = writer.constant(np.asarray(op.scale), "FLOAT")
    steps = writer.node("Round", writer.node("Div", writer.cast(x, "FLOAT"), scale))
    for kind, limit in (("Max", op.lo), ("Min", op.hi)):
        steps = writer.node(kind, steps, writer.constant(np.asarray(limit), "FLOAT"))
    return writer.cast(writer.node("Mul", steps, scale), writer.real)


@ONNX.rule(Quantize)
def _quantize(writer: GraphWriter, op: Quantize, types: Types, x: str) -> str:
    # QuantizeLinear gives the narrowest type that holds the codes, limited to that type's range.
    bits = 8 if (op.lo >= -128 and op.hi <= 127) or (op.lo >= 0 and op.hi <= 255) else 16
    kind = f"{'INT' if op.lo < 0 else 'UINT'}{bits}"
    scale = writer.constant(op.scale, "FLOAT")
    zero = writer.constant(np.zeros(np.shape(op.scale), np.int64), kind)
    codes = writer.node("QuantizeLinear", x, scale, zero, axis=1)
    known = np.iinfo(kind.lower())
    reached = integer(types[0].shape, known.min, known.max, op.scale)
    wide = writer.cast(codes, "INT64")
    return emit_limits(writer, wide, reached, np.asarray(op.lo), np.asarray(op.hi))


@ONNX.rule(Requant)
def _requant(writer: GraphWriter, op: Requant, types: Types, x: str) -> str:
    shifted_down = emit_requant(writer, x, op.multiplier, op.shift)
    unlimited = replace(op, lo=-INT_LIMIT, hi=INT_LIMIT).infer(types[0])
    return emit_limits(writer, shifted_down, unlimited, np.asarray(op.lo), np.asarray(op.hi))


@ONNX.rule(Dequantize)
def _dequantize(writer: GraphWriter, op: Dequantize, types: Types, x: str) -> str:
    scale = writer.constant(op.scale, "FLOAT")
    return writer.node("Mul", writer.cast(x, "FLOAT"), scale)


@ONNX.rule(LeakyRelu)
def _leaky_relu(writer: GraphWriter, op: LeakyRelu, types: Types, x: str) -> str:
    return writer.node("LeakyRelu", x, alpha=op.slope)


@ONNX.rule(L2Normalize)
def _l2_normalize(writer: GraphWriter, op: L2Normalize, types: Types, x: str) -> str:
    if not op.least:
        return writer.node("LpNormalization", x, axis=-1, p=2)
    norms = writer.node("ReduceL2", x, writer.constant(np.array([-1])), keepdims=1)
    return writer.node("Div", x, writer.node("Max", norms, writer.constant(np.float64(op.least))))


@ONNX.rule(LayerNorm)
def _layer_norm(writer: GraphWriter, op: LayerNorm, types: Types, x: str) -> str:
    gain, offset = writer.constant(op.gamma), writer.constant(op.beta)
    return writer.node("LayerNormalization", x, gain, offset, axis=-1, epsilon=op.eps)


@ONNX.rule(RmsNorm)
def _rms_norm(writer: GraphWriter, op: RmsNorm, types: Types, x: str) -> str:
    squares = writer.node("Mul", x, x)
    mean = writer.node("ReduceMean", squares, writer.constant(np.array([-1])), keepdims=1)
    root = writer.node("Sqrt", writer.node("Add", mean, writer.constant(np.float64(op.eps))))
    return writer.node("Mul", writer.node("Div", x, root), writer.constant(op.gamma))


@ONNX.rule(CosineScore, DistanceScore)
def _linear_score(writer: GraphWriter, op: LinearScore, types: Types, x: str) -> str:
    if (op.factor, op.offset) == (1.0, 0.0):
        return x
    scaled = writer.node("Mul", x, writer.constant(np.float64(op.factor)))
    return writer.node("Add", scaled, writer.constant(np.float64(op.offset)))


@ONNX.rule(InverseRoot)
def _inverse_root(writer: GraphWriter, op: InverseRoot, types: Types, x: str) -> str:
    return writer.node("Reciprocal", writer.node("Sqrt", x))


@ONNX.rule(Inclusion)
def _inclusion(
    writer: GraphWriter, op: Inclusion, types: Types, mu_t: str, l_t: str, mu_v: str, l_v: str
) -> str:
    rows, columns, last = (writer.constant(np.array([axis])) for axis in (1, 0, -1))
    mu_t, l_t = (writer.node("Unsqueeze", x, rows) for x in (mu_t, l_t))
    mu_v, l_v = (writer.node("Unsqueeze", x, columns) for x in (mu_v, l_v))
    s_t, s_v = (writer.node("Exp", x) for x in (l_t, l_v))
    two, half = (writer.constant(np.float64(x)) for x in (2.0, 0.5))
    above = writer.node("Add", writer.node("Mul", two, s_v), s_t)
    below = writer.node("Add", s_v, writer.node("Mul", two, s_t))
    ratio = writer.node("Mul", half, writer.node("Log", writer.node("Div", above, below)))
    prior = writer.node("Sub", ratio, writer.node("Sub", l_v, l_t))
    weight = writer.node("Div", writer.node("Sub", s_v, s_t), writer.node("Mul", above, below))
    delta = writer.node("Sub", mu_t, mu_v)
    moved = writer.node("Mul", writer.node("Mul", delta, delta), weight)
    return writer.node("ReduceSum", writer.node("Sub", prior, moved), last, keepdims=0)


@ONNX.rule(ProbitScore)
def _probit_score(
    writer: GraphWriter, op: ProbitScore, types: Types, mean: str, variance: str
) -> str:
    scaled = writer.node("Mul", mean, writer.constant(np.float64(op.factor)))
    logit = writer.node("Add", scaled, writer.constant(np.float64(op.offset)))
    spread = writer.node("Mul", variance, writer.constant(np.float64(op.spread)))
    root = writer.node("Sqrt", writer.node("Add", spread, writer.constant(np.float64(1.0))))
    return writer.node("Div", logit, root)


@ONNX.rule(PolynomialScore)
def _polynomial_score(
    writer: GraphWriter, op: PolynomialScore, types: Types, ed: str, vd: str = ""
) -> str:
    # Powers of raw ed cancel: move, exactly, to the middle of the calibrated range first.
    of_ed, of_vd = (*(_middle_and_half(known) for known in types), (0.0, 1.0))[:2]
    try:
        table = _moved(op, of_ed, of_vd)
    except OverflowError:  # bounds that no calibration has narrowed
        of_ed = of_vd = (0.0, 1.0)
        table = _moved(op, of_ed, of_vd)
    u = _centred(writer, ed, *of_ed)
    v = _centred(writer, vd, *of_vd) if vd else ""
    total = ""
    for power in reversed(range(len(table))):
        row = table[power][: len(table) - power if vd else 1]
        inner = _horner(writer, row, v)
        total = writer.node("Add", writer.node("Mul", total, u), inner) if total else inner
    return total


def _moved(
    op: PolynomialScore, of_ed: tuple[float, float], of_vd: tuple[float, float]
) -> list[list[float]]:
    """Coefficients in moved variables, by the powers of ed, then of vd.

    Raises OverflowError for one beyond float64.
    """
    return [[float(c) for c in row] for row in op.polynomial.shifted(*of_ed, *of_vd, op.line)]


def _middle_and_half(known: Type) -> tuple[float, float]:
    """Middle and half the width of a calibrated range; (0, 1) if there is none."""
    lo, hi = float(known.lo.min()), float(known.hi.max())
    if not (np.isfinite(lo) and np.isfinite(hi)):
        return 0.0, 1.0
    return (lo + hi) / 2, (hi - lo) / 2 or 1.0


def _centred(writer: GraphWriter, x: str, middle: float, half: float) -> str:
    centred = writer.node("Sub", x, writer.constant(np.float64(middle)))
    return writer.node("Div", centred, writer.constant(np.float64(half)))


def _horner(writer: GraphWriter, coefficients: list[float], x: str) -> str:
    """Append `sum c[j] x^j`."""
    total = writer.constant(np.float64(coefficients[-1]))
    for c in reversed(coefficients[:-1]):
        total = writer.node("Add", writer.node("Mul", total, x), writer.constant(np.float64(c)))
    return total
