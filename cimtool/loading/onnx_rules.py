"""Rules by which ONNX operators become operations; each is found by its name in `RULES`.

The operators' definitions: https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Add, Clip, Mvm, plus, scalar
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.ir.source import BatchNorm, Gate, L2Normalize, LayerNorm, Reciprocal
from cimtool.loading.onnx_activations import ACTIVATIONS
from cimtool.loading.onnx_graph import OnnxGraph
from cimtool.loading.onnx_translation import Norms, Rows, Translated, Translation

REAL_TYPES = (1, 11)
"""FLOAT and DOUBLE, as `Cast` names them (TensorProto.DataType)."""

LARGEST_EPSILON = 1e-6
"""A lower limit of row norms up to here only guards against a division by zero."""

LARGEST_NUMBER = float(np.finfo(np.float32).max)

TranslationRule = Callable[[Translation], Translated]


def translate(graph: OnnxGraph) -> Graph:
    """The tower of an ONNX graph.

    Raises CimError naming the first node that is not supported, and where mu and logvar differ in
    extent.
    """
    builder = TowerBuilder(graph.width)
    values: dict[str, Translated] = {**graph.constants, graph.x: Rows("x")}
    for node in graph.nodes:
        t = Translation(graph, node, values, builder)
        if node.domain or node.kind not in RULES:
            domain = f" (domain {node.domain})" if node.domain else ""
            t.fail(f"is not supported{domain}; expected {', '.join(sorted(RULES))}")
        values[node.outputs[0]] = RULES[node.kind](t)
    outputs = []
    for name in graph.outputs.values():
        value = values.get(name)
        if not isinstance(value, Rows):
            raise CimError(f"{graph.file}: {name} does not depend on the input; expected rows")
        outputs.append(value.name)
    widths = [int(builder.types[name].shape[1]) for name in outputs]
    if len(set(widths)) > 1:
        raise CimError(
            f"{graph.file}: mu has {widths[0]} dimensions and logvar {widths[1]}; "
            "expected the same for both"
        )
    return builder.tower(*outputs)


def gemm(t: Translation) -> Translated:
    """`alpha x W + beta b`, W transposed with transB."""
    attributes = t.node.attributes
    if attributes.get("transA", 0):
        t.fail("transA = 1 is not supported; expected rows of inputs first")
    alpha, beta = t.number("alpha", 1.0), t.number("beta", 1.0)
    weight = t.weights(1) * alpha
    bias = t.weights(2) * beta if t.input(2) else scalar(0.0)
    return _layer(t, weight.T if attributes.get("transB", 0) else weight, bias)


def matmul(t: Translation) -> Translated:
    """`x W`."""
    return _layer(t, t.weights(1), scalar(0.0))


def _layer(t: Translation, weight: FloatArray, bias: FloatArray) -> Rows:
    x = t.rows()
    width = t.width(x)
    if weight.ndim != 2 or weight.shape[0] != width or not weight.size:
        t.fail(f"its weights have shape {list(weight.shape)}; expected [{width}, any] (in, out)")
    _require_storable(t, "one of its weights", weight)
    _require_storable(t, "one of its biases", bias)
    named = t.input(1)
    name = named.removesuffix(".weight") if named.endswith(".weight") else ""
    op = Mvm(np.ascontiguousarray(weight), t.channels(bias, weight.shape[1]))
    return t.add(op, x, name=name)


def _require_storable(t: Translation, what: str, array: FloatArray) -> None:
    """Raise CimError where float32, in which the float graph is emitted, cannot hold an array."""
    beyond = ~(np.abs(array) <= LARGEST_NUMBER)
    if beyond.any():
        t.fail(f"{what} comes to {array[beyond].flat[0]:.3g}, beyond float32")


def batch_normalization(t: Translation) -> Translated:
    """Inference with running statistics.

    Before operator set 14, which has `training_mode`, outputs beside the first say training.
    """
    if t.node.attributes.get("training_mode", 0):
        t.fail("training_mode = 1; expected a model exported for inference")
    count = sum(map(bool, t.node.outputs))
    if count > 1:
        t.fail(f"has {count} outputs, as in training; expected a model exported for inference")
    x = t.rows()
    width = t.width(x)
    parameters = [t.weights(i) for i in (1, 2, 3, 4)]
    for i, array in enumerate(parameters, start=1):
        if array.shape != (width,):
            t.fail(f"{t.input(i)} has shape {list(array.shape)}; expected [{width}]")
    gamma, beta, mean, var = parameters
    if var.min() < 0:
        t.fail(f"{t.input(4)} holds {var.min()}; expected variances of at least 0")
    eps = t.number("epsilon", 1e-5, least=0.0)
    if not var.min() + eps > 0:
        t.fail(f"{t.input(4)} holds 0 and epsilon is 0; expected a sum above 0 to divide by")
    op = BatchNorm(gamma, beta, mean, var, eps)
    _require_storable(t, "gamma / sqrt(variance + epsilon)", op.factor)
    _require_storable(t, "its offset", beta - mean * op.factor)
    return t.add(op, x)


def layer_normalization(t: Translation) -> Translated:
    """Rows to mean 0 and variance 1, then a gain and an offset a channel."""
    x = t.rows()
    width, eps = t.width(x), t.number("epsilon", 1e-5, least=0.0)
    t.require("axis", (-1, 1), "the last one")
    gamma = t.channels(t.weights(1), width)
    beta = t.weights(2) if t.input(2) else scalar(0.0)
    return t.add(LayerNorm(gamma, t.channels(beta, width), eps), x)


def clip(t: Translation) -> Translated:
    """Limits, as inputs or (before operator set 11) attributes."""
    lo, hi = _limit(t, 1, "min", -np.inf), _limit(t, 2, "max", np.inf)
    value = t.value(0)
    if isinstance(value, Norms):
        if not (lo <= LARGEST_EPSILON and hi == np.inf):
            t.fail(f"limits row norms to [{lo:g}, {hi:g}]; expected an epsilon only")
        return value
    if not lo <= hi:
        t.fail(f"its limits are {lo:g} and {hi:g}; expected min below max")
    return t.add(Clip(scalar(lo), scalar(hi)), t.rows())


def _limit(t: Translation, index: int, name: str, absent: float) -> float:
    given = t.constant(index)
    if given is None:
        return float(t.node.attributes.get(name, absent))
    if given.size != 1:
        t.fail(f"{name} has shape {list(given.shape)}; expected one number")
    return float(given.item())


def add(t: Translation, sign: float = 1.0) -> Translated:
    """`a + sign b` of two values (a residual), or of a value and a constant, in either order."""
    signs = (1.0, sign)
    if t.is_rows(0) and t.is_rows(1):
        a, b = t.rows(0), t.rows(1)
        if t.width(a) != t.width(b):
            t.fail(f"adds rows of {t.width(a)} and of {t.width(b)} numbers")
        return t.add(plus(*signs), a, b)
    index = 0 if t.is_rows(0) else 1
    return _affine(t, index, scalar(signs[index]), t.weights(1 - index) * signs[1 - index])


def multiply(t: Translation) -> Translated:
    """A value times a constant, or the product of two values, as gates have it."""
    if t.is_rows(0) and t.is_rows(1):
        return _product(t, t.rows(0), t.rows(1))
    index = 0 if t.is_rows(0) else 1
    return _affine(t, index, t.weights(1 - index), scalar(0.0))


def _product(t: Translation, a: str, b: str) -> Rows:
    if t.width(a) != t.width(b):
        t.fail(f"multiplies rows of {t.width(a)} and of {t.width(b)} numbers")
    return t.add(Gate(), a, b)


def divide(t: Translation) -> Translated:
    """A value by a constant, by another value, or by its own row norms (torch's `normalize`)."""
    divisor = t.value(1)
    if isinstance(divisor, Rows):
        inverse = t.part("inverse", Reciprocal(), divisor.name)
        if t.is_rows(0):
            return _product(t, t.rows(), inverse)
        return _scaled(t, inverse, t.weights(0), scalar(0.0))
    if isinstance(divisor, Norms):
        if divisor.of != t.rows():
            t.fail("divides by the row norms of another value; expected its own")
        return t.add(L2Normalize(), divisor.of)
    constant = t.weights(1)
    if not constant.all():
        t.fail(f"{t.input(1)} holds 0; expected what can be divided by")
    with np.errstate(over="ignore"):
        factor = 1 / constant
    _require_storable(t, f"1 / {t.input(1)}", factor)
    return _affine(t, 0, factor, scalar(0.0))


def _affine(t: Translation, index: int, factor: FloatArray, offset: FloatArray) -> Rows:
    return _scaled(t, t.rows(index), factor, offset)


def _scaled(t: Translation, x: str, factor: FloatArray, offset: FloatArray) -> Rows:
    """A value times a factor, plus an offset, one a channel each or one for all."""
    for array in (factor, offset):
        t.channels(array, t.width(x))
    factor, offset = (a.reshape(()) if a.size == 1 else a.reshape(-1) for a in (factor, offset))
    return t.add(Add((factor,), offset), x)


def lp_normalization(t: Translation) -> Translated:
    """Rows divided by their Euclidean norm."""
    t.require("p", (2,), "2")
    t.require("axis", (-1, 1), "the last one")
    return t.add(L2Normalize(), t.rows())


def reduce_l2(t: Translation) -> Translated:
    """Norms of rows; axes as input or (before operator set 18) attribute."""
    given = t.constant(1)
    axes = t.node.attributes.get("axes", ()) if given is None else given.reshape(-1).tolist()
    if list(axes) not in ([-1], [1]) or not t.node.attributes.get("keepdims", 1):
        t.fail("does not reduce rows to [n, 1]; expected axes = [-1], keepdims = 1")
    return Norms(t.rows())


def expand(t: Translation) -> Translated:
    """Row norms spread over the rows that they divide."""
    value = t.value(0)
    if not isinstance(value, Norms):
        t.fail("is supported for row norms alone")
    return value


def dropout(t: Translation) -> Translated:
    """The same value, as at inference."""
    training = t.constant(2)
    if training is not None and training.any():
        t.fail("training_mode is set; expected a model exported for inference")
    return Rows(t.rows())


def cast(t: Translation) -> Translated:
    """The same value: programs of real numbers are float64."""
    if t.node.attributes["to"] not in REAL_TYPES:
        t.fail("casts to another type than float or double")
    return t.value(0)


def transpose(t: Translation) -> Translated:
    """A constant matrix transposed."""
    matrix = t.weights(0)
    if matrix.ndim != 2 or list(t.node.attributes.get("perm", (1, 0))) != [1, 0]:
        t.fail("is supported for matrices alone")
    return matrix.T


def flatten(t: Translation) -> Translated:
    """The same value: rows are flat."""
    t.require("axis", (1, -1), "1")
    return Rows(t.rows())


def reshape(t: Translation) -> Translated:
    """The same value, where the shape is the one that it has."""
    x = t.rows()
    shape = t.weights(1).reshape(-1).tolist()
    width, kept = t.width(x), t.node.attributes.get("allowzero", 0) == 0
    rows = {-1.0, float(t.graph.rows or -1)} | ({0.0} if kept else set())
    columns = {float(width)} | ({0.0} if kept else set())
    known = len(shape) == 2 and (shape[0] in rows and shape[1] in columns | {-1.0})
    if not known or shape == [-1, -1]:
        t.fail(f"to {[int(s) for s in shape]} changes the shape; expected [-1, {width}]")
    return Rows(x)


RULES: dict[str, TranslationRule] = ACTIVATIONS | {
    "Add": add,
    "BatchNormalization": batch_normalization,
    "Cast": cast,
    "Clip": clip,
    "Div": divide,
    "Dropout": dropout,
    "Expand": expand,
    "Flatten": flatten,
    "Gemm": gemm,
    "Identity": lambda t: t.value(0),
    "LayerNormalization": layer_normalization,
    "LpNormalization": lp_normalization,
    "MatMul": matmul,
    "Mul": multiply,
    "ReduceL2": reduce_l2,
    "Reshape": reshape,
    "Sub": partial(add, sign=-1.0),
    "Transpose": transpose,
}
"""The supported operators (beside Constant), and the rule of each."""
