"""What each ONNX operator becomes; one function an operator, found by its name in `RULES`.

The operators' definitions: https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Add, Clip, Mvm, scalar
from cimtool.ir.heads import plus
from cimtool.ir.program import Builder
from cimtool.ir.source import BatchNorm, L2Normalize, LayerNorm, LeakyRelu, Sigmoid, Tanh
from cimtool.loading.linear import relu as rectifier
from cimtool.loading.onnx_graph import OnnxGraph, OnnxNode
from cimtool.loading.onnx_translation import Norms, Rows, Translation, Value

REAL_TYPES = (1, 11)
"""FLOAT and DOUBLE, as `Cast` names them (TensorProto.DataType)."""

LARGEST_EPSILON = 1e-6
"""A lower limit of row norms up to here only guards against a division by zero."""

LARGEST_NUMBER = float(np.finfo(np.float32).max)

Rule = Callable[[Translation, OnnxNode], Value]


def translate(graph: OnnxGraph, builder: Builder, x: str) -> dict[str, str]:
    """Add the nodes of a projector; return the names of `mu` and, unless it is points, `logvar`.

    Raises CimError naming the first node that is not supported, and where both differ in extent.
    """
    found = Translation(graph, builder, x)
    for node in graph.nodes:
        if node.domain or node.kind not in RULES:
            domain = f" (domain {node.domain})" if node.domain else ""
            graph.fail(node, f"is not supported{domain}; expected {', '.join(sorted(RULES))}")
        found.values[node.outputs[0]] = RULES[node.kind](found, node)
    outputs = {role: _output(found, name) for role, name in graph.outputs.items()}
    widths = {role: found.width(name) for role, name in outputs.items()}
    if len(set(widths.values())) > 1:
        raise CimError(
            f"{graph.file}: mu has {widths['mu']} dimensions and logvar {widths['logvar']}; "
            "expected the same for both"
        )
    return outputs


def _output(found: Translation, name: str) -> str:
    value = found.values.get(name)
    if not isinstance(value, Rows):
        raise CimError(f"{found.graph.file}: {name} does not depend on the input; expected rows")
    return value.name


def gemm(t: Translation, node: OnnxNode) -> Value:
    """`alpha x W + beta b`, W transposed with transB."""
    if node.attributes.get("transA", 0):
        t.graph.fail(node, "transA = 1 is not supported; expected rows of inputs first")
    alpha, beta = _attribute(t, node, "alpha", 1.0), _attribute(t, node, "beta", 1.0)
    weight = t.weights(node, 1) * alpha
    bias = t.weights(node, 2) * beta if node.input(2) else scalar(0.0)
    return _layer(t, node, weight.T if node.attributes.get("transB", 0) else weight, bias)


def matmul(t: Translation, node: OnnxNode) -> Value:
    """`x W`."""
    return _layer(t, node, t.weights(node, 1), scalar(0.0))


def _layer(t: Translation, node: OnnxNode, weight: FloatArray, bias: FloatArray) -> Rows:
    x = t.rows(node)
    width = t.width(x)
    if weight.ndim != 2 or weight.shape[0] != width or not weight.size:
        t.graph.fail(
            node, f"its weights have shape {list(weight.shape)}; expected [{width}, any] (in, out)"
        )
    outputs = weight.shape[1]
    _storable(t, node, "one of its weights", weight)
    _storable(t, node, "one of its biases", bias)
    named = node.input(1)
    name = named.removesuffix(".weight") if named.endswith(".weight") else ""
    op = Mvm(np.ascontiguousarray(weight), _channels(t, node, bias, outputs))
    return t.add(node, op, x, name=name)


def _channels(t: Translation, node: OnnxNode, array: FloatArray, width: int) -> FloatArray:
    """One number a channel, from any shape that spreads over rows [n, width] and no further."""
    if array.ndim > 2 or (array.ndim == 2 and len(array) != 1) or array.size not in (1, width):
        t.graph.fail(
            node,
            f"a constant has shape {list(array.shape)}; expected [{width}] or one number, of at "
            "most two axes",
        )
    return np.array(np.broadcast_to(array.reshape(-1), (width,)))


def _attribute(
    t: Translation, node: OnnxNode, name: str, absent: float, least: float = -np.inf
) -> float:
    """A number among the node's attributes; CimError where it is not finite or below `least`."""
    value = float(node.attributes.get(name, absent))
    if not (np.isfinite(value) and value >= least):
        expected = "finite number" if least == -np.inf else f"number of at least {least:g}"
        t.graph.fail(node, f"{name} is {value}; expected a {expected}")
    return value


def _storable(t: Translation, node: OnnxNode, what: str, array: FloatArray) -> FloatArray:
    """The array; CimError where float32, in which the float graph is emitted, cannot hold it."""
    beyond = ~(np.abs(array) <= LARGEST_NUMBER)
    if beyond.any():
        t.graph.fail(node, f"{what} comes to {array[beyond].flat[0]:.3g}, beyond float32")
    return array


def batch_normalization(t: Translation, node: OnnxNode) -> Value:
    """Inference with running statistics.

    Before operator set 14, which has `training_mode`, outputs beside the first say training.
    """
    if node.attributes.get("training_mode", 0):
        t.graph.fail(node, "training_mode = 1; expected a model exported for inference")
    count = sum(map(bool, node.outputs))
    if count > 1:
        t.graph.fail(
            node, f"has {count} outputs, as in training; expected a model exported for inference"
        )
    x = t.rows(node)
    width = t.width(x)
    parameters = [t.weights(node, i) for i in (1, 2, 3, 4)]
    for i, array in enumerate(parameters, start=1):
        if array.shape != (width,):
            t.graph.fail(node, f"{node.input(i)} has shape {list(array.shape)}; expected [{width}]")
    gamma, beta, mean, var = parameters
    if var.min() < 0:
        t.graph.fail(node, f"{node.input(4)} holds {var.min()}; expected variances of at least 0")
    eps = _attribute(t, node, "epsilon", 1e-5, least=0.0)
    if not var.min() + eps > 0:
        t.graph.fail(
            node, f"{node.input(4)} holds 0 and epsilon is 0; expected a sum above 0 to divide by"
        )
    op = BatchNorm(gamma, beta, mean, var, eps)
    factor = _storable(t, node, "gamma / sqrt(variance + epsilon)", op.factor)
    _storable(t, node, "its offset", beta - mean * factor)
    return t.add(node, op, x)


def layer_normalization(t: Translation, node: OnnxNode) -> Value:
    """Rows to mean 0 and variance 1, then a gain and an offset a channel."""
    x = t.rows(node)
    width, eps = t.width(x), _attribute(t, node, "epsilon", 1e-5, least=0.0)
    if node.attributes.get("axis", -1) not in (-1, 1):
        t.graph.fail(node, f"axis is {node.attributes['axis']}; expected the last one")
    gamma = _channels(t, node, t.weights(node, 1), width)
    beta = t.weights(node, 2) if node.input(2) else scalar(0.0)
    return t.add(node, LayerNorm(gamma, _channels(t, node, beta, width), eps), x)


def relu(t: Translation, node: OnnxNode) -> Value:
    """`max(x, 0)`."""
    return t.add(node, rectifier(), t.rows(node))


def leaky_relu(t: Translation, node: OnnxNode) -> Value:
    """`x` above 0, `alpha x` below."""
    alpha = _attribute(t, node, "alpha", 0.01, least=0.0)
    return t.add(node, LeakyRelu(alpha) if alpha else rectifier(), t.rows(node))


def tanh(t: Translation, node: OnnxNode) -> Value:
    """The hyperbolic tangent."""
    return t.add(node, Tanh(), t.rows(node))


def sigmoid(t: Translation, node: OnnxNode) -> Value:
    """`1 / (1 + exp(-x))`."""
    return t.add(node, Sigmoid(), t.rows(node))


def clip(t: Translation, node: OnnxNode) -> Value:
    """Limits, as inputs or (before operator set 11) attributes."""
    lo, hi = _limit(t, node, 1, "min", -np.inf), _limit(t, node, 2, "max", np.inf)
    value = t.value(node, 0)
    if isinstance(value, Norms):
        if not (lo <= LARGEST_EPSILON and hi == np.inf):
            t.graph.fail(node, f"limits row norms to [{lo:g}, {hi:g}]; expected an epsilon only")
        return value
    if not lo <= hi:
        t.graph.fail(node, f"its limits are {lo:g} and {hi:g}; expected min below max")
    return t.add(node, Clip(scalar(lo), scalar(hi)), t.rows(node))


def _limit(t: Translation, node: OnnxNode, index: int, name: str, absent: float) -> float:
    given = t.constant(node, index)
    if given is None:
        return float(node.attributes.get(name, absent))
    if given.size != 1:
        t.graph.fail(node, f"{name} has shape {list(given.shape)}; expected one number")
    return float(given.item())


def add(t: Translation, node: OnnxNode) -> Value:
    """Two values (a residual), or a value and a constant."""
    if all(isinstance(t.value(node, i), Rows) for i in (0, 1)):
        return _sum(t, node, 1.0)
    index = 0 if isinstance(t.value(node, 0), Rows) else 1
    return _affine(t, node, index, scalar(1.0), t.weights(node, 1 - index))


def subtract(t: Translation, node: OnnxNode) -> Value:
    """Two values, or a value and a constant, in either order."""
    if all(isinstance(t.value(node, i), Rows) for i in (0, 1)):
        return _sum(t, node, -1.0)
    if isinstance(t.value(node, 0), Rows):
        return _affine(t, node, 0, scalar(1.0), -t.weights(node, 1))
    return _affine(t, node, 1, scalar(-1.0), t.weights(node, 0))


def multiply(t: Translation, node: OnnxNode) -> Value:
    """A value times a constant."""
    index = 0 if isinstance(t.value(node, 0), Rows) else 1
    return _affine(t, node, index, t.weights(node, 1 - index), scalar(0.0))


def divide(t: Translation, node: OnnxNode) -> Value:
    """A value by a constant, or by its own row norms (how torch exports `normalize`)."""
    divisor = t.value(node, 1)
    if isinstance(divisor, Norms):
        if divisor.of != t.rows(node):
            t.graph.fail(node, "divides by the row norms of another value; expected its own")
        return t.add(node, L2Normalize(), divisor.of)
    constant = t.weights(node, 1)
    if not constant.all():
        t.graph.fail(node, f"{node.input(1)} holds 0; expected what can be divided by")
    with np.errstate(over="ignore"):
        factor = _storable(t, node, f"1 / {node.input(1)}", 1 / constant)
    return _affine(t, node, 0, factor, scalar(0.0))


def _sum(t: Translation, node: OnnxNode, sign: float) -> Rows:
    a, b = t.rows(node, 0), t.rows(node, 1)
    if t.width(a) != t.width(b):
        t.graph.fail(node, f"adds rows of {t.width(a)} and of {t.width(b)} numbers")
    return t.add(node, plus(1.0, sign), a, b)


def _affine(
    t: Translation, node: OnnxNode, index: int, factor: FloatArray, offset: FloatArray
) -> Rows:
    x = t.rows(node, index)
    width = t.width(x)
    for array in (factor, offset):
        _channels(t, node, array, width)
    factor, offset = (a.reshape(()) if a.size == 1 else a.reshape(-1) for a in (factor, offset))
    return t.add(node, Add((factor,), offset), x)


def lp_normalization(t: Translation, node: OnnxNode) -> Value:
    """Rows divided by their Euclidean norm."""
    if node.attributes.get("p", 2) != 2:
        t.graph.fail(node, f"p is {node.attributes['p']}; expected 2")
    if node.attributes.get("axis", -1) not in (-1, 1):
        t.graph.fail(node, f"axis is {node.attributes['axis']}; expected the last one")
    return t.add(node, L2Normalize(), t.rows(node))


def reduce_l2(t: Translation, node: OnnxNode) -> Value:
    """Norms of rows; axes as input or (before operator set 18) attribute."""
    given = t.constant(node, 1)
    axes = node.attributes.get("axes", ()) if given is None else given.reshape(-1).tolist()
    if list(axes) not in ([-1], [1]) or not node.attributes.get("keepdims", 1):
        t.graph.fail(node, "does not reduce rows to [n, 1]; expected axes = [-1], keepdims = 1")
    return Norms(t.rows(node))


def expand(t: Translation, node: OnnxNode) -> Value:
    """Row norms spread over the rows that they divide."""
    value = t.value(node, 0)
    if not isinstance(value, Norms):
        t.graph.fail(node, "is supported for row norms alone")
    return value


def identity(t: Translation, node: OnnxNode) -> Value:
    """The same value."""
    return t.value(node, 0)


def dropout(t: Translation, node: OnnxNode) -> Value:
    """The same value, as at inference."""
    training = t.constant(node, 2)
    if training is not None and training.any():
        t.graph.fail(node, "training_mode is set; expected a model exported for inference")
    return Rows(t.rows(node))


def cast(t: Translation, node: OnnxNode) -> Value:
    """The same value: programs of real numbers are float64."""
    if node.attributes["to"] not in REAL_TYPES:
        t.graph.fail(node, "casts to another type than float or double")
    return t.value(node, 0)


def transpose(t: Translation, node: OnnxNode) -> Value:
    """A constant matrix transposed."""
    matrix = t.weights(node, 0)
    if matrix.ndim != 2 or list(node.attributes.get("perm", (1, 0))) != [1, 0]:
        t.graph.fail(node, "is supported for matrices alone")
    return matrix.T


def flatten(t: Translation, node: OnnxNode) -> Value:
    """The same value: rows are flat."""
    if node.attributes.get("axis", 1) not in (1, -1):
        t.graph.fail(node, f"axis is {node.attributes['axis']}; expected 1")
    return Rows(t.rows(node))


def reshape(t: Translation, node: OnnxNode) -> Value:
    """The same value, where the shape is the one that it has."""
    x = t.rows(node)
    shape = t.weights(node, 1).reshape(-1).tolist()
    width, kept = t.width(x), node.attributes.get("allowzero", 0) == 0
    rows = {-1.0, float(t.graph.rows or -1)} | ({0.0} if kept else set())
    columns = {float(width)} | ({0.0} if kept else set())
    known = len(shape) == 2 and (shape[0] in rows and shape[1] in columns | {-1.0})
    if not known or shape == [-1, -1]:
        t.graph.fail(
            node, f"to {[int(s) for s in shape]} changes the shape; expected [-1, {width}]"
        )
    return Rows(x)


RULES: dict[str, Rule] = {
    "Add": add,
    "BatchNormalization": batch_normalization,
    "Cast": cast,
    "Clip": clip,
    "Div": divide,
    "Dropout": dropout,
    "Expand": expand,
    "Flatten": flatten,
    "Gemm": gemm,
    "Identity": identity,
    "LayerNormalization": layer_normalization,
    "LeakyRelu": leaky_relu,
    "LpNormalization": lp_normalization,
    "MatMul": matmul,
    "Mul": multiply,
    "ReduceL2": reduce_l2,
    "Relu": relu,
    "Reshape": reshape,
    "Sigmoid": sigmoid,
    "Sub": subtract,
    "Tanh": tanh,
    "Transpose": transpose,
}
"""The supported operators (beside Constant), and what each of them becomes."""
