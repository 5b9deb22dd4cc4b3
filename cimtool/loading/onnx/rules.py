"""Rules by which ONNX operators become operations; each is found by its name in `RULES`.

The operators' definitions: https://onnx.ai/onnx/operators/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Clip, plus, scalar
from cimtool.ir.program import Graph
from cimtool.ir.source import BatchNorm, Gate, Reciprocal
from cimtool.loading.onnx.activations import ACTIVATIONS
from cimtool.loading.onnx.constants import FOLDS, ConstantFolder, constant_inputs
from cimtool.loading.onnx.fixed import FixedBuilder
from cimtool.loading.onnx.graph import Branch, OnnxGraph, OnnxNode
from cimtool.loading.onnx.masks import MASKS, summed
from cimtool.loading.onnx.norms import (
    NORM_RULES,
    divided,
    is_number,
    limited,
    past_norms,
    raised,
    scaled,
    shifted,
    with_numbers_of_norms,
)
from cimtool.loading.onnx.products import PRODUCTS
from cimtool.loading.onnx.quantized import (
    COMPUTING,
    DOMAINS,
    QUANTIZERS,
    REFUSALS,
    constant_numbers,
    limited_codes,
    require_one_quantizer,
    turned,
)
from cimtool.loading.onnx.shapes import SHAPES
from cimtool.loading.onnx.spreads import (
    SPREADS,
    alike_for_items,
    for_items,
    over_items,
)
from cimtool.loading.onnx.translation import (
    KINDS,
    CentredRows,
    Codes,
    Masked,
    Norms,
    RowMeans,
    Squares,
    Translated,
    Translation,
    as_rows,
)
from cimtool.loading.onnx.unsupported import unsupported
from cimtool.loading.onnx.views import ITEMS, Rows, in_rows

REAL_TYPES = (1, 11)
"""FLOAT and DOUBLE, as `Cast` names them (TensorProto.DataType)."""

OF_TWO_VALUES = ("Add", "Div", "Mul", "Sub")

TranslationRule = Callable[[Translation], Translated | tuple[Translated, ...]]


def translate(graph: OnnxGraph) -> Graph:
    """The tower of an ONNX graph.

    Raises CimError naming the first node that is not supported, and where mu and logvar differ in
    extent.
    """
    builder = FixedBuilder(graph.width)
    folder = ConstantFolder(
        sum(array.size for array in graph.constants.values()), graph.opset, graph.counts
    )
    values: dict[str, Translated] = {**graph.constants, graph.x: Rows.plain("x", graph.width)}
    _translate_nodes(graph, graph.nodes, values, builder, folder)
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


def _translate_nodes(
    graph: OnnxGraph,
    nodes: Sequence[OnnxNode],
    values: dict[str, Translated],
    builder: FixedBuilder,
    folder: ConstantFolder,
) -> None:
    """Add what nodes make to the values."""
    for node in nodes:
        t = Translation(graph, node, values, builder)
        if node.kind == "If" and not node.domain:
            branch = _chosen_branch(t)
            inner = {**values, **branch.constants}
            _translate_nodes(graph, branch.nodes, inner, builder, folder)
            pairs = dict(zip(node.outputs, branch.outputs, strict=False))
            values.update({own: inner[made] for own, made in pairs.items() if made in inner})
            continue
        given = [values[name] for name in node.inputs if name in values]
        constants = constant_inputs(node, values)
        foldable = not node.domain and node.kind in FOLDS
        if foldable and constants is not None and not over_items(t):
            folded = folder.fold(node, constants, t.where)
            values.update(zip(node.outputs, folded, strict=False))
            continue
        if (arrays := alike_for_items(t)) is not None:
            (array,) = folder.fold(node, arrays, t.where)
            values[node.outputs[0]] = for_items(t, array)
            continue
        if node.kind in (*OF_TWO_VALUES, "Max", "Min"):
            t = replace(t, values=with_constants(t))
        rule = (DOMAINS.get(node.domain, {}) if node.domain else RULES).get(node.kind)
        if rule is None:
            supported = (kind for kind, one in RULES.items() if one not in REFUSALS)
            t.fail(unsupported(node.kind, node.domain, supported))
        if node.kind in COMPUTING:
            folder.take(sum(map(constant_numbers, given)), t.where)
        made = _past_a_mask(past_norms(t), rule)
        made = made if isinstance(made, tuple) else (made,)
        values.update(zip(node.outputs, made, strict=False))
        t.require_work()


def _chosen_branch(t: Translation) -> Branch:
    """The way that a condition which is known takes, as one of extents is."""
    condition = t.value(0)
    if not isinstance(condition, np.ndarray) or condition.size != 1 or condition.dtype != bool:
        t.fail(unsupported(t.node.kind, "", ()))
    way = "then_branch" if condition.item() else "else_branch"
    chosen: Branch = t.node.attributes[way]
    return chosen


def _past_a_mask(t: Translation, rule: TranslationRule) -> Translated | tuple[Translated, ...]:
    """The value of a node, some of whose inputs may have a mask of attention."""
    masks = None if t.node.domain else MASKS.get(t.node.kind)
    made = None if masks is None else masks(t, rule)
    if made is not None:
        last = t.node.outputs[0] in t.graph.outputs.values()
        return summed(t, made) if last and isinstance(made, Masked) else made
    if masks is None:
        masked = {name: t.values.get(name) for name in t.node.inputs}
        sums = {name: summed(t, one) for name, one in masked.items() if isinstance(one, Masked)}
        t = replace(t, values={**t.values, **sums}) if sums else t
    return rule(t)


def _output(graph: OnnxGraph, value: Translated | None, name: str, builder: FixedBuilder) -> str:
    """The program's name of an output of the file."""
    value = as_rows(value)
    if value is not None and type(value) in KINDS:
        raise CimError(f"{graph.file}: {name} is {KINDS[type(value)]}; expected rows of numbers")
    if not isinstance(value, Rows) or value.name in builder.fixed:
        raise CimError(f"{graph.file}: {name} does not depend on the input; expected rows")
    if len(value.axes) != 2 or value.axes[0] != (ITEMS,):
        raise CimError(f"{graph.file}: {name} has axes {value.text}; expected [n, d]")
    return in_rows(builder, value).name


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
    parameters = [_of_channels(t, i, view) for i in (1, 2, 3, 4)]
    for i, array in enumerate(parameters, start=1):
        if array.shape != (width,):
            t.fail(f"{t.input(i)} has shape {list(array.shape)}; expected [{width}]")
    var = parameters[-1]
    if var.min() < 0:
        t.fail(f"{t.input(4)} holds {var.min()}; expected variances of at least 0")
    eps = t.number("epsilon", 1e-5, least=0.0)
    if not var.min() + eps > 0:
        t.fail(f"{t.input(4)} holds 0 and epsilon is 0; expected a sum above 0 to divide by")
    apart = _items_apart(view)
    x, spread = t.spread(apart, *(array.reshape(-1, *[1] * behind) for array in parameters))
    gamma, beta, mean, var = (np.array(np.broadcast_to(array, t.width(x))) for array in spread)
    op = BatchNorm(gamma, beta, mean, var, eps)
    t.require_storable("gamma / sqrt(variance + epsilon)", op.factor)
    t.require_storable("its offset", op.beta - op.mean * op.factor)
    made = t.add(op, x)
    if apart is view:
        return made
    return replace(made, axes=(made.axes[0], made.axes[1] + made.axes[2], *made.axes[3:]))


def _items_apart(view: Rows) -> Rows:
    """A view whose items are joined with the channels behind them, with these in two axes."""
    axis = view.axes[1]
    return view if axis[:1] != (ITEMS,) else view.with_axis(1, (ITEMS,), axis[1:])


def _of_channels(t: Translation, index: int, view: Rows) -> FloatArray:
    """A constant of a batch norm, one number a channel.

    Where items are channels, as exporters write an instance norm with running statistics, those of
    each item, which are the same.
    """
    value = t.value(index)
    numbers = t.builder.numbers(value) if isinstance(value, Rows) else None
    if numbers is not None:
        return numbers
    array = t.weights(index)
    over = array.reshape(1, -1, *[1] * (len(view.axes) - 2))
    return t.of_items(over, view).reshape(-1) if array.ndim == 1 else array


def clip(t: Translation) -> Translated:
    """Limits, as inputs or (before operator set 11) attributes."""
    lo, hi = _limit(t, 1, "min", -np.inf), _limit(t, 2, "max", np.inf)
    value = t.value(0)
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return np.asarray(np.clip(value, lo, hi))
    if isinstance(value, Codes | np.ndarray):
        return limited_codes(t, lo, hi)
    if isinstance(value, Norms):
        return limited(t, value, lo, hi)
    if not lo <= hi:
        t.fail(f"its limits are {lo:g} and {hi:g}; expected min below max")
    return t.add(Clip(scalar(lo), scalar(hi)), t.rows())


def limit(t: Translation, lower: bool) -> Translated:
    """The largest, or the smallest, of a value and constants."""
    values = [t.value(i) for i in range(len(t.node.inputs))]
    if len(values) == 1:
        return values[0]
    computed = [i for i, value in enumerate(values) if not isinstance(value, np.ndarray)]
    if len(computed) > 1:
        parts = "max(a, b) is a + Relu(b - a)" if lower else "min(a, b) is a - Relu(a - b)"
        t.fail(f"compares {len(computed)} values; expected one and constants ({parts})")
    (index,) = computed
    constants = [t.weights(i) for i in range(len(values)) if i != index]
    bound = reduce(np.maximum if lower else np.minimum, constants)
    value, none = values[index], scalar(np.inf)
    if isinstance(value, Norms):
        if np.ptp(bound):
            t.fail(f"limits row norms by {bound.size} numbers; expected one")
        lo, hi = (bound.max(), np.inf) if lower else (-np.inf, bound.max())
        return limited(t, value, lo, hi)
    x, (bound,) = t.spread(t.view(index), bound)
    return t.add(Clip(bound, none) if lower else Clip(-none, bound), x)


def _limit(t: Translation, index: int, name: str, absent: float) -> float:
    given = t.constant(index)
    if given is None:
        return float(t.node.attributes.get(name, absent))
    if given.size != 1:
        t.fail(f"{name} has shape {list(given.shape)}; expected one number")
    return float(given.item())


def with_constants(t: Translation) -> Mapping[str, Translated]:
    """The values of a node's inputs, numbers in the place of one that is the same for all items."""
    pair = {name: t.values[name] for name in t.node.inputs if name in t.values}
    views = {name: value for name, value in pair.items() if isinstance(value, Rows)}
    known = {name: t.builder.numbers(view) for name, view in views.items()}
    known |= {name: None for name, value in pair.items() if isinstance(value, Norms)}
    if len(known) != 2 or all(numbers is not None for numbers in known.values()):
        return t.values
    apart = {name for name, view in views.items() if view.axes[view.items_axis] == (ITEMS,)}
    fixed = {name: array for name, array in known.items() if array is not None and name in apart}
    return {**t.values, **fixed}


def add(t: Translation, sign: float = 1.0) -> Translated:
    """`a + sign b` of two values (a residual), or of a value and a constant, in either order."""
    signs = (1.0, sign)
    a, b = t.value(0), t.value(1)
    if isinstance(b, RowMeans) and isinstance(a, Rows) and sign < 0 and _are_of(t, b, a):
        centred = t.add(plus(*signs), *t.aligned("adds"), name=t.called("centred"))
        return CentredRows(b.of, centred)
    if t.is_rows(0) and t.is_rows(1):
        return t.add(plus(*signs), *t.aligned("adds"))
    index = 1 if isinstance(a, np.ndarray) else 0
    value, constant = t.value(index), t.weights(1 - index) * signs[1 - index]
    if isinstance(value, Norms) and is_number(value, constant) and signs[index] > 0:
        return shifted(t, value, float(constant.item()))
    return t.affine(t.view(index), scalar(signs[index]), constant)


def _are_of(t: Translation, means: RowMeans, view: Rows) -> bool:
    """True where means are of the rows of a view, and stand beside each, in one column or all."""
    beside = t.beside(means.means, means.of, len(means.of.axes) - 1)
    return beside and len(view.axes) == len(means.of.axes) and t.in_rows(view) == means.of


def multiply(t: Translation) -> Translated:
    """A value times a constant, the product of two values, as gates have it, or a norm's."""
    a, b = t.value(0), t.value(1)
    if isinstance(a, CentredRows) and isinstance(b, CentredRows) and a.of == b.of:
        return Squares(a.of)
    if t.is_rows(0) and t.is_rows(1):
        return t.add(Gate(), *t.aligned("multiplies"))
    for value, other in ((a, b), (b, a)):
        if isinstance(other, Norms) and isinstance(value, Rows | CentredRows):
            if other.power != -0.5:
                t.fail("multiplies rows by their norms; expected reciprocals of these")
            return divided(t, value, other)
    index = 1 if isinstance(a, np.ndarray) else 0
    value, constant = t.value(index), t.weights(1 - index)
    if isinstance(value, Norms) and is_number(value, constant) and constant.item() > 0:
        return scaled(value, float(constant.item()))
    if isinstance(value, Norms):
        t.fail(
            f"multiplies row norms by constants {list(constant.shape)}; expected one number above "
            "0, as of rows and weights that are each divided by their norms (F.normalize) before "
            "their product"
        )
    return t.affine(t.view(index), constant, scalar(0.0))


def divide(t: Translation) -> Translated:
    """A value by a constant, by another value, or by its own row norms (torch's `normalize`)."""
    if t.is_rows(1) and isinstance(t.value(0), Norms):
        t = with_numbers_of_norms(t)
    dividend, divisor = t.value(0), t.value(1)
    if t.is_rows(1):
        if not t.is_rows(0):
            return t.affine(_inverse(t, t.rows(1)), t.weights(0), scalar(0.0))
        x, by = t.aligned("divides")
        return t.add(Gate(), x, _inverse(t, by).name)
    if isinstance(divisor, Norms):
        if (
            isinstance(dividend, np.ndarray)
            and is_number(divisor, dividend)
            and dividend.item() > 0
        ):
            return scaled(raised(t, divisor, -1.0), float(dividend.item()))
        if divisor.power < 0:
            t.fail("divides by reciprocals of row norms; expected the norms")
        return divided(t, dividend, divisor)
    constant = t.weights(1)
    if not constant.all():
        t.fail(f"{t.input(1)} holds 0; expected what can be divided by")
    with np.errstate(over="ignore"):
        factor = 1 / constant
    t.require_storable(f"1 / {t.input(1)}", factor)
    if isinstance(dividend, Norms) and is_number(dividend, factor) and factor.item() > 0:
        return scaled(dividend, float(factor.item()))
    return t.affine(t.view(), factor, scalar(0.0))


def _inverse(t: Translation, name: str) -> Rows:
    return t.views[t.part("inverse", Reciprocal(), name)]


def power(t: Translation) -> Translated:
    """Squares, cubes, and roots of sums of squares."""
    value, exponent = t.value(0), t.weights(1)
    if isinstance(value, CentredRows) and (exponent == 2.0).all():
        return Squares(value.of)
    if isinstance(value, Norms) and is_number(value, exponent):
        return raised(t, value, float(exponent.item()))
    return ACTIVATIONS["Pow"](t)


def reciprocal(t: Translation) -> Translated:
    """One over a value, or over row norms."""
    value = t.value(0)
    return raised(t, value, -1.0) if isinstance(value, Norms) else ACTIVATIONS["Reciprocal"](t)


def dropout(t: Translation) -> Translated:
    """The same value, as at inference."""
    training = t.constant(2)
    if training is not None and training.any():
        t.fail("training_mode is set; expected a model exported for inference")
    return t.view()


def cast(t: Translation) -> Translated:
    """The same value: programs of real numbers are float64."""
    if t.node.attributes["to"] not in REAL_TYPES:
        t.fail(
            "casts to another type than float or double; expected real numbers of 32 or 64 bits "
            "(module.float() before it is exported), and quantizers for steps"
        )
    return t.value(0)


RULES: dict[str, TranslationRule] = (
    ACTIVATIONS
    | NORM_RULES
    | PRODUCTS
    | QUANTIZERS
    | SHAPES
    | SPREADS
    | {
        "Add": add,
        "BatchNormalization": batch_normalization,
        "Cast": cast,
        "Clip": clip,
        "Div": divide,
        "Dropout": dropout,
        "IsNaN": lambda t: np.array(False),  # no number of a program is none
        "Identity": lambda t: t.value(0),
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
