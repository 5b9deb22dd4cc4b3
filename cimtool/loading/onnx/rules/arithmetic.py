"""Rules of sums, products, limits and choices of values and constants."""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.ir.arithmetic import Clip, Mvm, plus, scalar
from cimtool.ir.source import NO_WEIGHT, BatchNorm, Gate, Reciprocal
from cimtool.loading.onnx.builder import LARGEST_NUMBER
from cimtool.loading.onnx.rules.activations import chosen_softplus
from cimtool.loading.onnx.rules.norms import over_norms
from cimtool.loading.onnx.translation import Translated, Translation, rule
from cimtool.loading.onnx.views import Rows

REAL_TYPES = (1, 11)
"""FLOAT and DOUBLE, as `Cast` names them (TensorProto.DataType)."""


@rule("BatchNormalization")
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
    width, behind = view.extents[1] if view.rank > 1 else 0, view.rank - 2
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
    joined = view.items == 1 and view.before == 1  # the items, with the channels behind them
    apart = replace(view.expanded(1), items=1) if joined else view
    x, spread = t.spread(apart, *(array.reshape(-1, *[1] * behind) for array in parameters))
    gamma, beta, mean, var = (np.array(np.broadcast_to(array, t.width(x))) for array in spread)
    op = BatchNorm(gamma, beta, mean, var, eps)
    t.require_storable("gamma / sqrt(variance + epsilon)", op.factor)
    t.require_storable("its offset", op.beta - op.mean * op.factor)
    made = t.add(op, x)
    return replace(made.squeezed(1), items=1) if joined else made


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
    over = array.reshape(1, -1, *[1] * (view.rank - 2))
    return t.of_items(over, view).reshape(-1) if array.ndim == 1 else array


@rule("Clip")
def clip(t: Translation) -> Translated:
    """A value, or a constant, within limits."""
    (lo, hi), value = t.limits(), t.value(0)
    if isinstance(value, np.ndarray):
        t.folder.take(value.size, t.where)
        return np.asarray(np.clip(value, lo, hi), value.dtype)
    if not lo <= hi:
        t.fail(f"its limits are {lo:g} and {hi:g}; expected min below max")
    return t.add(Clip(scalar(lo), scalar(hi)), t.rows())


def limit(t: Translation, lower: bool) -> Translated:
    """The largest, or the smallest, of a value and constants."""
    values = [t.value(i) for i in range(len(t.node.inputs))]
    if len(values) == 1:
        return values[0]
    computed = [i for i in range(len(values)) if t.is_rows(i)]
    if len(computed) > 1:
        parts = "max(a, b) is a + Relu(b - a)" if lower else "min(a, b) is a - Relu(a - b)"
        t.fail(f"compares {len(computed)} values; expected one and constants ({parts})")
    constants = [t.mask_numbers(i) for i in range(len(values)) if i not in computed]
    bound = reduce(np.maximum if lower else np.minimum, constants)
    view, none = t.grown(t.view(computed[0] if computed else 0), bound), scalar(np.inf)
    x, (bound,) = t.spread(view, np.maximum(bound, -LARGEST_NUMBER))
    return t.add(Clip(bound, none) if lower else Clip(-none, bound), x)


rule("Max")(partial(limit, lower=True))
rule("Min")(partial(limit, lower=False))


def add(t: Translation, sign: float = 1.0) -> Translated:
    """`a + sign b` of two values (a residual), or of a value and a constant, in either order."""
    signs = (1.0, sign)
    if t.is_rows(0) and t.is_rows(1):
        return t.add(plus(*signs), *t.aligned("adds", t.view(0), t.view(1)))
    index = 0 if t.is_rows(0) else 1
    constant, view = t.mask_numbers(1 - index) * signs[1 - index], t.view(index)
    if signs[index] > 0 and (made := _with_bias(t, index, constant)) is not None:
        return made
    return t.affine(view, scalar(signs[index]), constant)


def _with_bias(t: Translation, index: int, constant: FloatArray) -> Rows | None:
    """The layer that an input is, with a constant as its bias; None if it is another value.

    None also if something else reads the layer, and for constants that are masks.
    """
    name, view = t.input(index), t.view(index)
    maker, node = t.graph.makers.get(name), t.builder.by_name.get(view.name)
    if maker is None or maker.kind not in ("Gemm", "MatMul") or t.graph.uses[name] > 1:
        return None
    if node is None or not isinstance(node.op, Mvm) or constant.min() <= NO_WEIGHT:
        return None
    width = t.width(view.name)
    of_channels = constant.size in (1, width) and constant.shape[:-1] in ((), (1,))
    if isinstance(t.values.get(maker.inputs[1]), Rows) or not of_channels:
        return None
    bias = node.op.bias + t.channels(constant, width)
    t.require_storable("one of its biases", bias)
    t.builder.forget(view.name)
    made = t.add(replace(node.op, bias=bias), *node.inputs, name=node.name)
    return replace(view, name=made.name)


rule("Add")(add)
rule("Sub")(partial(add, sign=-1.0))


@rule("Mul")
def multiply(t: Translation) -> Translated:
    """A value times a constant, the product of two values, as gates have it, or a norm."""
    if t.is_rows(0) and t.is_rows(1):
        a, b = t.view(0), t.view(1)
        unit = over_norms(t, a, b, -0.5) or over_norms(t, b, a, -0.5)
        return unit or t.add(Gate(), *t.aligned("multiplies", a, b))
    index = 0 if t.is_rows(0) else 1
    return t.affine(t.view(index), t.weights(1 - index), scalar(0.0))


@rule("Div")
def divide(t: Translation) -> Translated:
    """A value by a constant, by another value, or by its own row norms (torch's `normalize`)."""
    if t.is_rows(1):
        if t.is_rows(0) and (unit := over_norms(t, t.view(0), t.view(1), 0.5)) is not None:
            return unit
        inverse = t.views[t.part("inverse", Reciprocal(), t.rows(1))]
        if t.is_rows(0):
            return t.add(Gate(), *t.aligned("divides", t.view(0), inverse))
        return t.affine(inverse, t.weights(0), scalar(0.0))
    constant = t.weights(1)
    if not constant.all():
        t.fail(f"{t.input(1)} holds 0; expected what can be divided by")
    with np.errstate(over="ignore"):
        factor = 1 / constant
    t.require_storable(f"1 / {t.input(1)}", factor)
    return t.affine(t.view(), factor, scalar(0.0))


@rule("Where")
def choose(t: Translation) -> Translated:
    """One of two values or constants in each place, the same for all items."""
    condition = t.numbers(0)
    if condition is None:
        return chosen_softplus(t)
    numbers = [t.numbers(i) for i in (1, 2)]
    if condition.size == 1:
        index = 1 if condition.item() else 2
        chosen = [t.value(i) for i in (1, 2)]
        views = [one for one in chosen if isinstance(one, Rows)]
        alike = len({(one.extents, one.items, one.before) for one in views}) == 1
        if len(views) == 2 and alike and condition.ndim <= views[0].rank:
            return chosen[index - 1]
    parts = []
    for index, other in ((1, 2), (2, 1)):
        if not t.is_rows(index):
            continue
        fill = numbers[other - 1]
        view = t.grown(t.view(index), condition, *([] if fill is None else [fill]))
        kept = (t.over(condition, view) != 0) == (index == 1)
        if fill is not None:
            filled = np.where(kept, 0.0, t.over(fill, view))
            return view if kept.all() else t.affine(view, kept.astype(np.float64), filled)
        parts.append(t.affine(view, kept.astype(np.float64), scalar(0.0)))
    return t.add(plus(1.0, 1.0), *t.aligned("chooses between", *parts))


@rule("Dropout")
def dropout(t: Translation) -> Translated:
    """The same value, as at inference."""
    training = t.constant(2)
    if training is not None and training.any():
        t.fail("training_mode is set; expected a model exported for inference")
    return t.view()


@rule("Cast")
def cast(t: Translation) -> Translated:
    """The same value: programs of real numbers are float64."""
    if t.node.attributes["to"] not in REAL_TYPES:
        t.fail(
            "casts to another type than float or double; expected real numbers of 32 or 64 bits "
            "(module.float() before it is exported), and quantizers for steps"
        )
    return t.value(0)


rule("Identity")(lambda t: t.value(0))
rule("IsNaN")(lambda t: np.array(False))  # no number of a program is none
