"""Rules by which ONNX operators become operations; each is found by its name in `RULES`.

The operators' definitions: https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Add, Clip, plus, scalar
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.ir.source import BatchNorm, Gate, Reciprocal
from cimtool.loading.onnx_activations import ACTIVATIONS
from cimtool.loading.onnx_constants import FOLDS, ConstantFolder
from cimtool.loading.onnx_graph import OnnxGraph
from cimtool.loading.onnx_norms import NORM_RULES, divided, limited, raised, scaled, shifted
from cimtool.loading.onnx_quantized import (
    COMPUTING,
    DOMAINS,
    QUANTIZERS,
    constant_numbers,
    layer_of,
    limited_codes,
    require_one_quantizer,
    turned,
)
from cimtool.loading.onnx_shapes import SHAPES
from cimtool.loading.onnx_translation import (
    CentredRows,
    Codes,
    Norms,
    RowMeans,
    Rows,
    Squares,
    Translated,
    Translation,
)

REAL_TYPES = (1, 11)
"""FLOAT and DOUBLE, as `Cast` names them (TensorProto.DataType)."""

LARGEST_NUMBER = float(np.finfo(np.float32).max)

TranslationRule = Callable[[Translation], Translated | tuple[Translated, ...]]


def translate(graph: OnnxGraph) -> Graph:
    """The tower of an ONNX graph.

    Raises CimError naming the first node that is not supported, and where mu and logvar differ in
    extent.
    """
    builder = TowerBuilder(graph.width)
    folder = ConstantFolder(sum(array.size for array in graph.constants.values()))
    values: dict[str, Translated] = {**graph.constants, graph.x: Rows("x")}
    for node in graph.nodes:
        t = Translation(graph, node, values, builder)
        given = [values[name] for name in node.inputs if name in values]
        constants = [value for value in given if isinstance(value, np.ndarray)]
        if not node.domain and node.kind in FOLDS and given and len(constants) == len(given):
            values[node.outputs[0]] = folder.fold(node, constants, t.where)
            continue
        rule = (DOMAINS.get(node.domain, {}) if node.domain else RULES).get(node.kind)
        if rule is None:
            domain = f" (domain {node.domain})" if node.domain else ""
            t.fail(f"is not supported{domain}; expected {', '.join(sorted(RULES))}")
        if node.kind in COMPUTING:
            folder.take(sum(map(constant_numbers, given)), t.where)
        made = rule(t)
        values.update(zip(node.outputs, made if isinstance(made, tuple) else (made,), strict=False))
    outputs = []
    for name in graph.outputs.values():
        value = values.get(name)
        if not isinstance(value, Rows):
            raise CimError(f"{graph.file}: {name} does not depend on the input; expected rows")
        if value.shape and value.shape != (builder.types[value.name].shape[1],):
            extents = ", ".join(map(str, value.shape))
            raise CimError(f"{graph.file}: {name} has axes [n, {extents}]; expected [n, d]")
        outputs.append(value.name)
    widths = [int(builder.types[name].shape[1]) for name in outputs]
    if len(set(widths)) > 1:
        raise CimError(
            f"{graph.file}: mu has {widths[0]} dimensions and logvar {widths[1]}; "
            "expected the same for both"
        )
    tower = builder.tower(*outputs)
    require_one_quantizer(tower, graph.file)
    return tower


def gemm(t: Translation) -> Translated:
    """`alpha x W + beta b`, W transposed with transB."""
    attributes = t.node.attributes
    if attributes.get("transA", 0):
        t.fail("transA = 1 is not supported; expected rows of inputs first")
    alpha, beta = t.number("alpha", 1.0), t.number("beta", 1.0)
    weight = t.weights(1) * alpha
    bias = t.weights(2) * beta if t.input(2) else scalar(0.0)
    turned = bool(attributes.get("transB", 0))
    return _layer(t, weight.T if turned else weight, bias, 0 if turned else 1)


def matmul(t: Translation) -> Translated:
    """`x W`."""
    return _layer(t, t.weights(1), scalar(0.0), 1)


def _layer(t: Translation, weight: FloatArray, bias: FloatArray, axis: int) -> Rows:
    """A layer of `weight` [in, out]; its outputs are along `axis` of the node's second input."""
    x = t.rows()
    width = t.width(x)
    if t.node.kind != "Conv":
        t.flat_rows()
    if weight.ndim != 2 or weight.shape[0] != width or not weight.size:
        t.fail(f"its weights have shape {list(weight.shape)}; expected [{width}, any] (in, out)")
    _require_storable(t, "one of its weights", weight)
    _require_storable(t, "one of its biases", bias)
    named = t.input(1)
    name = named.removesuffix(".weight") if named.endswith(".weight") else ""
    op = layer_of(t, weight, t.channels(bias, weight.shape[1]), axis)
    lead = t.shape()[:-1]
    made = t.add(op, x, name=name)
    return Rows(made.name, (*lead, weight.shape[1]) if lead else ())


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


def clip(t: Translation) -> Translated:
    """Limits, as inputs or (before operator set 11) attributes."""
    lo, hi = _limit(t, 1, "min", -np.inf), _limit(t, 2, "max", np.inf)
    value = t.value(0)
    if isinstance(value, Codes | np.ndarray):
        return limited_codes(t, lo, hi)
    if isinstance(value, Norms):
        return limited(t, value, lo, hi)
    if not lo <= hi:
        t.fail(f"its limits are {lo:g} and {hi:g}; expected min below max")
    return t.add(Clip(scalar(lo), scalar(hi)), t.rows())


def limit(t: Translation, lower: bool) -> Translated:
    """The larger, or the smaller, of a value and a constant."""
    index = 0 if not isinstance(t.value(0), np.ndarray) else 1
    value, bound, none = t.value(index), t.weights(1 - index), scalar(np.inf)
    if isinstance(value, Norms):
        return limited(t, value, bound.max() if lower else -np.inf, np.inf)
    x = t.rows(index)
    bound = _constant(t, bound, x, index)
    return t.add(Clip(bound, none) if lower else Clip(-none, bound), x)


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
    a, b = t.value(0), t.value(1)
    if isinstance(b, RowMeans) and sign < 0:
        if not isinstance(a, Rows) or a.name != b.of:
            t.fail("takes off the means of another value; expected its own")
        return CentredRows(b.of)
    if t.is_rows(0) and t.is_rows(1):
        return t.add(plus(*signs), *_of_one_shape(t, "adds"))
    index = 1 if isinstance(a, np.ndarray) else 0
    value, constant = t.value(index), t.weights(1 - index) * signs[1 - index]
    if isinstance(value, Norms) and constant.size == 1 and signs[index] > 0:
        return shifted(t, value, float(constant.item()))
    return _affine(t, index, scalar(signs[index]), constant)


def _of_one_shape(t: Translation, doing: str) -> tuple[str, str]:
    """Both inputs, which have the same axes."""
    a, b = t.rows(0), t.rows(1)
    if t.width(a) != t.width(b):
        t.fail(f"{doing} rows of {t.width(a)} and of {t.width(b)} numbers")
    if t.shape(0) != t.shape(1):
        shapes = [f"[n, {', '.join(map(str, t.shape(i)))}]" for i in (0, 1)]
        t.fail(f"{doing} {shapes[0]} and {shapes[1]}; expected the same axes")
    return a, b


def multiply(t: Translation) -> Translated:
    """A value times a constant, the product of two values, as gates have it, or a norm's."""
    if t.is_rows(0) and t.is_rows(1):
        return t.add(Gate(), *_of_one_shape(t, "multiplies"))
    a, b = t.value(0), t.value(1)
    if isinstance(a, CentredRows) and a == b:
        return Squares(a.of)
    for value, other in ((a, b), (b, a)):
        if isinstance(other, Norms) and isinstance(value, Rows | CentredRows):
            if other.power != -0.5:
                t.fail("multiplies rows by their norms; expected reciprocals of these")
            return divided(t, value, other)
    index = 1 if isinstance(a, np.ndarray) else 0
    value, constant = t.value(index), t.weights(1 - index)
    if isinstance(value, Norms) and constant.size == 1 and constant.item() > 0:
        return scaled(value, float(constant.item()))
    return _affine(t, index, constant, scalar(0.0))


def divide(t: Translation) -> Translated:
    """A value by a constant, by another value, or by its own row norms (torch's `normalize`)."""
    dividend, divisor = t.value(0), t.value(1)
    if isinstance(divisor, Rows):
        inverse = t.part("inverse", Reciprocal(), divisor.name)
        if t.is_rows(0):
            return t.add(Gate(), _of_one_shape(t, "divides")[0], inverse)
        return _scaled(t, inverse, t.weights(0), scalar(0.0), 1)
    if isinstance(divisor, Norms):
        if isinstance(dividend, np.ndarray) and dividend.size == 1 and dividend.item() > 0:
            return scaled(raised(t, divisor, -1.0), float(dividend.item()))
        if divisor.power < 0:
            t.fail("divides by reciprocals of row norms; expected the norms")
        return divided(t, dividend, divisor)
    constant = t.weights(1)
    if not constant.all():
        t.fail(f"{t.input(1)} holds 0; expected what can be divided by")
    with np.errstate(over="ignore"):
        factor = 1 / constant
    _require_storable(t, f"1 / {t.input(1)}", factor)
    if isinstance(dividend, Norms) and factor.size == 1 and factor.item() > 0:
        return scaled(dividend, float(factor.item()))
    return _affine(t, 0, factor, scalar(0.0))


def power(t: Translation) -> Translated:
    """Squares, cubes, and roots of sums of squares."""
    value, exponent = t.value(0), t.weights(1)
    if isinstance(value, CentredRows) and (exponent == 2.0).all():
        return Squares(value.of)
    if isinstance(value, Norms) and exponent.size == 1:
        return raised(t, value, float(exponent.item()))
    return ACTIVATIONS["Pow"](t)


def reciprocal(t: Translation) -> Translated:
    """One over a value, or over row norms."""
    value = t.value(0)
    return raised(t, value, -1.0) if isinstance(value, Norms) else ACTIVATIONS["Reciprocal"](t)


def convolution(t: Translation) -> Translated:
    """A layer, of a convolution of width 1 over one place."""
    shape, weight = t.shape(), t.weights(1)
    attributes = t.node.attributes
    if (
        weight.shape[2:] != shape[1:]
        or set(weight.shape[2:]) != {1}
        or attributes.get("group", 1) != 1
    ):
        t.fail(
            f"has weights {list(weight.shape)} for inputs [n, {', '.join(map(str, shape))}]; "
            "expected width 1 over one place, without groups"
        )
    if any(attributes.get("pads", ())):
        t.fail("pads its inputs; expected width 1 without")
    made = _layer(
        t, weight.reshape(weight.shape[:2]).T, t.weights(2) if t.input(2) else scalar(0.0), 0
    )
    return Rows(made.name, (weight.shape[0], *shape[1:]))


def _affine(t: Translation, index: int, factor: FloatArray, offset: FloatArray) -> Rows:
    return _scaled(t, t.rows(index), factor, offset, index)


def _scaled(t: Translation, x: str, factor: FloatArray, offset: FloatArray, index: int) -> Rows:
    """A value of the axes of an input times a factor, plus an offset, a channel or one for all."""
    factor, offset = (_constant(t, array, x, index) for array in (factor, offset))
    return t.add(Add((factor,), offset), x)


def _constant(t: Translation, array: FloatArray, x: str, index: int) -> FloatArray:
    """A constant as one number for all, or one a channel of a value of the axes of an input."""
    spread = t.channels(array, t.width(x), t.shape(index))
    return array.reshape(()) if array.size == 1 else spread


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


RULES: dict[str, TranslationRule] = (
    ACTIVATIONS
    | NORM_RULES
    | QUANTIZERS
    | SHAPES
    | {
        "Add": add,
        "BatchNormalization": batch_normalization,
        "Cast": cast,
        "Clip": clip,
        "Conv": convolution,
        "Div": divide,
        "Dropout": dropout,
        "Gemm": gemm,
        "Identity": lambda t: t.value(0),
        "MatMul": matmul,
        "Max": partial(limit, lower=True),
        "Min": partial(limit, lower=False),
        "Mul": multiply,
        "Pow": power,
        "Reciprocal": reciprocal,
        "Sub": partial(add, sign=-1.0),
        "Transpose": partial(turned, otherwise=SHAPES["Transpose"]),
    }
)
"""The supported operators (beside Constant), and the rule of each."""
