"""Rules by which ONNX operators become operations; each is found by its name in `RULES`.

The operators' definitions: https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import BatchMatMul, Clip, plus, scalar
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Builder, Graph
from cimtool.ir.source import BatchNorm, Gate, Reciprocal
from cimtool.loading.onnx_activations import ACTIVATIONS
from cimtool.loading.onnx_constants import FOLDS, ConstantFolder
from cimtool.loading.onnx_graph import OnnxGraph
from cimtool.loading.onnx_norms import NORM_RULES, divided, limited, raised, scaled, shifted
from cimtool.loading.onnx_quantized import (
    COMPUTING,
    DOMAINS,
    QUANTIZERS,
    REFUSALS,
    constant_numbers,
    layer_of,
    limited_codes,
    require_one_quantizer,
    turned,
)
from cimtool.loading.onnx_shapes import SHAPES
from cimtool.loading.onnx_translation import (
    LARGEST_ITEM,
    CentredRows,
    Codes,
    Norms,
    RowMeans,
    Squares,
    Translated,
    Translation,
)
from cimtool.loading.onnx_views import ITEMS, Rows, in_rows

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
    values: dict[str, Translated] = {**graph.constants, graph.x: Rows.plain("x", graph.width)}
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
            supported = sorted(kind for kind, one in RULES.items() if one not in REFUSALS)
            t.fail(f"is not supported{domain}; expected {', '.join(supported)}")
        if node.kind in COMPUTING:
            folder.take(sum(map(constant_numbers, given)), t.where)
        made = rule(t)
        values.update(zip(node.outputs, made if isinstance(made, tuple) else (made,), strict=False))
    outputs = [_output(graph, values.get(name), name, builder) for name in graph.outputs.values()]
    widths = [builder.extent(name) for name in outputs]
    if len(set(widths)) > 1:
        raise CimError(
            f"{graph.file}: mu has {widths[0]} dimensions and logvar {widths[1]}; "
            "expected the same for both"
        )
    tower = builder.tower(*outputs)
    require_one_quantizer(tower, graph.file)
    return tower


def _output(graph: OnnxGraph, value: Translated | None, name: str, builder: Builder) -> str:
    """The program's name of an output of the file."""
    if not isinstance(value, Rows):
        raise CimError(f"{graph.file}: {name} does not depend on the input; expected rows")
    if len(value.axes) != 2 or value.axes[0] != (ITEMS,):
        raise CimError(f"{graph.file}: {name} has axes {value.text}; expected [n, d]")
    return in_rows(builder, value).name


def gemm(t: Translation) -> Translated:
    """`alpha x W + beta b`, W transposed with transB."""
    attributes = t.node.attributes
    if attributes.get("transA", 0):
        t.fail("transA = 1 is not supported; expected rows of inputs first")
    alpha, beta = t.number("alpha", 1.0), t.number("beta", 1.0)
    weight = t.weights(1) * alpha
    bias = t.weights(2) * beta if t.input(2) else scalar(0.0)
    turned = bool(attributes.get("transB", 0))
    return _layer(t, t.view(), weight.T if turned else weight, bias, 0 if turned else 1)


def matmul(t: Translation) -> Translated:
    """`x W`, or the product of two values, as attention has it."""
    if t.is_rows(0) and t.is_rows(1):
        return _product(t)
    return _layer(t, t.view(), t.weights(1), scalar(0.0), 1)


def _product(t: Translation) -> Translated:
    """`a [..., R, K] b [..., K, C]` for each of the axes before, the items among them."""
    a, b = t.view(0), t.view(1)
    batch, places = len(a.axes) - 2, {a.items_place, b.items_place}
    if (
        len(b.axes) != len(a.axes)
        or len(places) > 1
        or a.items_axis >= batch
        or a.extents[:batch] != b.extents[:batch]
        or a.extents[-1] != b.extents[-2]
    ):
        t.fail(f"multiplies {a.text} by {b.text}; expected [..., r, k] by [..., k, c] of each item")
    made = math.prod(a.extents[:-1]) * b.extents[-1]
    if made > LARGEST_ITEM:
        t.fail(f"makes {made:,} numbers of an item; expected at most {LARGEST_ITEM:,}")
    rows = t.in_order(a)
    columns = t.in_order(b.reordered([*range(batch), batch + 1, batch]))
    op = BatchMatMul(a.extents[-2], b.extents[-1])
    return replace(t.narrowed(rows, op.columns), name=t.add(op, rows.name, columns.name).name)


def _layer(t: Translation, view: Rows, weight: FloatArray, bias: FloatArray, axis: int) -> Rows:
    """A layer over the last axis of a view: the same weights [in, out] for each of its rows.

    Its outputs are along `axis` of the node's second input.
    """
    x = t.in_rows(view)
    width = t.width(x.name)
    if weight.ndim != 2 or weight.shape[0] != width or not weight.size:
        t.fail(f"its weights have shape {list(weight.shape)}; expected [{width}, any] (in, out)")
    _require_storable(t, "one of its weights", weight)
    _require_storable(t, "one of its biases", bias)
    named = t.input(1)
    name = named.removesuffix(".weight") if named.endswith(".weight") else ""
    op = layer_of(t, weight, t.channels(bias, weight.shape[1]), axis)
    made = t.add(op, x.name, name=name)
    return replace(t.narrowed(x, weight.shape[1]), name=made.name)


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
    view = t.view()
    width, behind = view.extents[1] if len(view.axes) > 1 else 0, len(view.axes) - 2
    parameters = [t.weights(i) for i in (1, 2, 3, 4)]
    for i, array in enumerate(parameters, start=1):
        if array.shape != (width,):
            t.fail(f"{t.input(i)} has shape {list(array.shape)}; expected [{width}]")
    var = parameters[-1]
    if var.min() < 0:
        t.fail(f"{t.input(4)} holds {var.min()}; expected variances of at least 0")
    eps = t.number("epsilon", 1e-5, least=0.0)
    if not var.min() + eps > 0:
        t.fail(f"{t.input(4)} holds 0 and epsilon is 0; expected a sum above 0 to divide by")
    x, spread = t.spread(view, *(array.reshape(-1, *[1] * behind) for array in parameters))
    gamma, beta, mean, var = (np.array(np.broadcast_to(array, t.width(x))) for array in spread)
    op = BatchNorm(gamma, beta, mean, var, eps)
    _require_storable(t, "gamma / sqrt(variance + epsilon)", op.factor)
    _require_storable(t, "its offset", op.beta - op.mean * op.factor)
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
    x, (bound,) = t.spread(t.view(index), bound)
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
    if isinstance(b, RowMeans) and isinstance(a, Rows) and sign < 0 and t.in_rows(a) == b.of:
        return CentredRows(b.of)
    if t.is_rows(0) and t.is_rows(1):
        return t.add(plus(*signs), *t.aligned("adds"))
    index = 1 if isinstance(a, np.ndarray) else 0
    value, constant = t.value(index), t.weights(1 - index) * signs[1 - index]
    if isinstance(value, Norms) and constant.size == 1 and signs[index] > 0:
        return shifted(t, value, float(constant.item()))
    return t.affine(t.view(index), scalar(signs[index]), constant)


def multiply(t: Translation) -> Translated:
    """A value times a constant, the product of two values, as gates have it, or a norm's."""
    if t.is_rows(0) and t.is_rows(1):
        return t.add(Gate(), *t.aligned("multiplies"))
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
    return t.affine(t.view(index), constant, scalar(0.0))


def divide(t: Translation) -> Translated:
    """A value by a constant, by another value, or by its own row norms (torch's `normalize`)."""
    dividend, divisor = t.value(0), t.value(1)
    if t.is_rows(1):
        if not t.is_rows(0):
            return t.affine(_inverse(t, t.rows(1)), t.weights(0), scalar(0.0))
        x, by = t.aligned("divides")
        return t.add(Gate(), x, _inverse(t, by).name)
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
    return t.affine(t.view(), factor, scalar(0.0))


def _inverse(t: Translation, name: str) -> Rows:
    return t.views[t.part("inverse", Reciprocal(), name)]


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
    """A layer, of a convolution of width 1: the same for each place."""
    view, weight = t.view(), t.weights(1)
    attributes, behind = t.node.attributes, len(view.axes) - 2
    if (
        weight.ndim != len(view.axes)
        or set(weight.shape[2:]) != {1}
        or {attributes.get("group", 1), *attributes.get("strides", ())} != {1}
    ):
        t.fail(
            f"has weights {list(weight.shape)} for inputs {view.text}; expected width 1, without "
            "groups or strides"
        )
    if any(attributes.get("pads", ())):
        t.fail("pads its inputs; expected width 1 without")
    bias = t.weights(2) if t.input(2) else scalar(0.0)
    channels_last = view.reordered([0, *range(2, 2 + behind), 1])
    made = _layer(t, channels_last, weight.reshape(weight.shape[:2]).T, bias, 0)
    return made.reordered([0, 1 + behind, *range(1, 1 + behind)])


def dropout(t: Translation) -> Translated:
    """The same value, as at inference."""
    training = t.constant(2)
    if training is not None and training.any():
        t.fail("training_mode is set; expected a model exported for inference")
    return t.view()


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
