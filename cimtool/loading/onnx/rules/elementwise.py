"""Rules of elementwise operators: activations, sums, products, limits, choices.

Each activation is an entry of ACTIVATIONS, written in the program's operations; `lower` fits a
chain of functions of one value as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TypeAlias

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.ir.arithmetic import Add, Clip, Mvm, plus, scalar
from cimtool.ir.op import Op
from cimtool.ir.source import (
    NO_WEIGHT,
    Abs,
    BatchNorm,
    Elu,
    Erf,
    Exp,
    Gate,
    LeakyRelu,
    Log,
    Power,
    Reciprocal,
    Sigmoid,
    Softplus,
    Sqrt,
    Tanh,
)
from cimtool.loading.layout import RELU
from cimtool.loading.onnx.builder import LARGEST_NUMBER, Rows
from cimtool.loading.onnx.constants import REAL_TYPES
from cimtool.loading.onnx.rules.norms import over_norms
from cimtool.loading.onnx.translation import Translated, Translation, Unread, rule

SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875
"""The defaults of the operator Selu."""

LEAST_ALPHA = 2.0**-20

SAME_SOFTPLUS = 15.0
"""From here on softplus equals its input within 2^-21, so a choice between them can be dropped."""

UNIT = Clip(scalar(0.0), scalar(1.0))

Step: TypeAlias = tuple[str, Op, str]
"""One of several operations for a node: its name, the operation, and the names of its inputs."""

GATED: Step = ("y", Gate(), "x gate")

ACTIVATIONS: dict[str, Callable[[Translation], Sequence[Step]]] = {
    "Abs": lambda t: [("y", Abs(), "x")],
    "Celu": lambda t: [
        ("scaled", plus(1 / (alpha := t.number("alpha", 1.0, least=LEAST_ALPHA))), "x"),
        ("elu", Elu(1.0), "scaled"),
        ("y", plus(alpha), "elu"),
    ],
    "Elu": lambda t: [("y", Elu(t.number("alpha", 1.0, least=LEAST_ALPHA)), "x")],
    "Erf": lambda t: [("y", Erf(), "x")],
    "Exp": lambda t: [("y", Exp(), "x")],
    "Gelu": lambda t: [  # x (1 + erf(x / sqrt(2))) / 2
        ("inner", plus(float(np.sqrt(0.5))), "x"),
        ("erf", Erf(), "inner"),
        ("gate", plus(0.5, offset=0.5), "erf"),
        GATED,
    ],
    "Gelu by tanh": lambda t: [  # x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
        ("square", Gate(), "x x"),
        ("cube", Gate(), "square x"),
        ("inner", plus(float(np.sqrt(2 / np.pi)), 0.044715 * float(np.sqrt(2 / np.pi))), "x cube"),
        ("tanh", Tanh(), "inner"),
        ("gate", plus(0.5, offset=0.5), "tanh"),
        GATED,
    ],
    "HardSigmoid": lambda t: [
        ("line", plus(t.number("alpha", 0.2), offset=t.number("beta", 0.5)), "x"),
        ("y", UNIT, "line"),
    ],
    "HardSwish": lambda t: [("line", plus(1 / 6, offset=0.5), "x"), ("gate", UNIT, "line"), GATED],
    "LeakyRelu": lambda t: [
        ("y", LeakyRelu(alpha) if (alpha := t.number("alpha", 0.01, least=0.0)) else RELU, "x")
    ],
    "Log": lambda t: [("y", Log(), "x")],
    "Mish": lambda t: [("softplus", Softplus(), "x"), ("gate", Tanh(), "softplus"), GATED],
    "Neg": lambda t: [("y", plus(-1), "x")],
    "Reciprocal": lambda t: [("y", Reciprocal(), "x")],
    "Relu": lambda t: [("y", RELU, "x")],
    "Selu": lambda t: [
        ("elu", Elu(t.number("alpha", SELU_ALPHA, least=LEAST_ALPHA)), "x"),
        ("y", plus(t.number("gamma", SELU_GAMMA)), "elu"),
    ],
    "Sigmoid": lambda t: [("y", Sigmoid(), "x")],
    "Softplus": lambda t: [("y", Softplus(), "x")],
    "Softsign": lambda t: [  # x / (1 + |x|)
        ("abs", Abs(), "x"),
        ("size", plus(1, offset=1.0), "abs"),
        ("inverse", Reciprocal(), "size"),
        ("y", Gate(), "x inverse"),
    ],
    "Sqrt": lambda t: [("y", Sqrt(), "x")],
    "Swish": lambda t: [
        ("inner", plus(t.number("alpha", 1.0)), "x"),
        ("gate", Sigmoid(), "inner"),
        GATED,
    ],
    "Tanh": lambda t: [("y", Tanh(), "x")],
    "power 2": lambda t: [("y", Gate(), "x x")],
    "power 3": lambda t: [("square", Gate(), "x x"), ("y", Gate(), "square x")],
}
"""For each activation, the steps from its input `x` to its value `y`."""


def activation(t: Translation, name: str) -> Translated:
    """The steps of an activation, each an operation of the program."""
    made = {"x": t.rows()}
    *before, (_, last, read) = ACTIVATIONS[name](t)
    for part, op, inputs in before:
        made[part] = t.part(part, op, *(made[one] for one in inputs.split()))
    return t.add(last, *(made[one] for one in read.split()))


for kind in ACTIVATIONS:
    if kind.isalpha():
        rule(kind)(partial(activation, name=kind))


@rule("Gelu")
def gelu(t: Translation) -> Translated:
    """Gelu by erf, or its approximation by tanh."""
    by_tanh = t.node.attributes.get("approximate", b"none") == b"tanh"
    return activation(t, "Gelu by tanh" if by_tanh else "Gelu")


@rule("PRelu")
def parametric_relu(t: Translation) -> Translated:
    """`x` above 0; below 0, `x` times a slope, for each channel or for all."""
    x, (slopes,) = t.spread(t.view(), t.weights(1))
    above = t.part("above", Clip(scalar(0.0), scalar(np.inf)), x)
    below = t.part("below", Clip(scalar(-np.inf), scalar(0.0)), x)
    return t.add(Add((scalar(1.0), slopes), scalar(0.0)), above, below)


@rule("Pow")
def power(t: Translation) -> Translated:
    """A square or a cube, as products; other constant exponents, such as roots, as Power."""
    exponent = t.weights(1)
    if not exponent.size or np.ptp(exponent):
        t.fail(f"has {exponent.size} exponents; expected one")
    one = float(exponent.flat[0])
    return activation(t, f"power {one:g}") if one in (2, 3) else t.add(Power(one), t.rows())


@dataclass(frozen=True, eq=False)
class Compared(Unread):
    """A comparison of a value with a limit, as the condition of a choice."""

    text = "a comparison"
    of: Rows
    limit: float


@rule("Greater")
def greater(t: Translation) -> Translated:
    """A comparison with a constant, for the choice that torch writes after a softplus."""
    x, limit = t.whole(t.view()), t.weights(1)
    if limit.size != 1:
        t.fail("is supported for one number alone")
    return Compared(x, float(limit.item()))


def chosen_softplus(t: Translation) -> Translated:
    """The softplus in torch's choice between softplus and its input.

    The choice can be dropped because the two agree above the limit. Other choices raise CimError.
    """
    condition = t.value(0)
    if isinstance(condition, Compared) and condition.limit >= SAME_SOFTPLUS and t.is_rows(1):
        of, line, bent = condition.of, t.view(1), t.view(2)
        same_places = line.alike(of) and bent.alike(of)
        inner, factor = _scaled(t, bent.name)
        softplus = t.builder.made_by(inner, Softplus)
        same_input = softplus is not None and softplus[0].inputs == (of.name,)
        if same_places and same_input and _same_line(t, line.name, of.name, factor):
            return bent
    t.fail(
        f"chooses by {t.input(0)}, which depends on the input; expected a choice that is the same "
        "for all items, such as a causal mask, or torch's choice between a softplus and its input"
    )


def _scaled(t: Translation, name: str) -> tuple[str, FloatArray]:
    """A source and a factor whose product the value is; else the value itself and 1."""
    made = t.builder.multiple(name)
    return (name, scalar(1.0)) if made is None else (made[0], made[1].factors[0])


def _same_line(t: Translation, line: str, of: str, factor: FloatArray) -> bool:
    """True if `line` is `of` times a factor, within float32's rounding."""
    if line == of:
        return bool(np.allclose(factor, 1.0, rtol=1e-6, atol=0.0))
    base, multiple = _scaled(t, of)
    return line == base and bool(np.allclose(factor * multiple, 1.0, rtol=1e-6, atol=0.0))


@rule("BatchNormalization")
def batch_normalization(t: Translation) -> Translated:
    """A batch norm with running statistics.

    Before operator set 14, which added `training_mode`, more than one output means training.
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
    """A constant of a batch norm, one number per channel.

    Exporters write an instance norm with running statistics as a batch norm with the items among
    the channels; then the constants, equal for all items, are taken once.
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
    """A value, or a constant, clipped to limits."""
    (lo, hi), value = t.limits(), t.value(0)
    if isinstance(value, np.ndarray):
        t.folder.take(value.size, t.where)
        return np.asarray(np.clip(value, lo, hi), value.dtype)
    if not lo <= hi:
        t.fail(f"its limits are {lo:g} and {hi:g}; expected min below max")
    return t.add(Clip(scalar(lo), scalar(hi)), t.rows())


def limit(t: Translation, lower: bool) -> Translated:
    """The maximum (`lower`) or the minimum of a value and constants."""
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
    """`a + sign b` for two values (a residual), or for a value and a constant in either order."""
    signs = (1.0, sign)
    if t.is_rows(0) and t.is_rows(1):
        return t.add(plus(*signs), *t.aligned("adds", t.view(0), t.view(1)))
    index = 0 if t.is_rows(0) else 1
    constant, view = t.mask_numbers(1 - index) * signs[1 - index], t.view(index)
    if signs[index] > 0 and (made := _with_bias(t, index, constant)) is not None:
        return made
    return t.affine(view, scalar(signs[index]), constant)


def _with_bias(t: Translation, index: int, constant: FloatArray) -> Rows | None:
    """The layer that makes an input, with the constant added to its bias.

    None if no layer makes the input, if another node reads the layer, and if the constant is a
    mask.
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
    """A value times a constant, the product of two values (a gate), or a norm."""
    if t.is_rows(0) and t.is_rows(1):
        a, b = t.view(0), t.view(1)
        unit = over_norms(t, a, b, -0.5) or over_norms(t, b, a, -0.5)
        return unit or t.add(Gate(), *t.aligned("multiplies", a, b))
    index = 0 if t.is_rows(0) else 1
    return t.affine(t.view(index), t.weights(1 - index), scalar(0.0))


@rule("Div")
def divide(t: Translation) -> Translated:
    """A value divided by a constant, another value, or its row norms (torch's `normalize`)."""
    if t.is_rows(1):
        if t.is_rows(0) and (unit := over_norms(t, t.view(0), t.view(1), 0.5)) is not None:
            return unit
        inverse = t.views[t.part("inverse", Reciprocal(), t.rows(1))]
        if t.is_rows(0):
            return t.add(Gate(), *t.aligned("divides", t.view(0), inverse))
        return t.affine(inverse, t.weights(0), scalar(0.0))
    constant = t.weights(1)
    if not constant.all():
        t.fail(f"{t.input(1)} holds 0; expected numbers to divide by")
    with np.errstate(over="ignore"):
        factor = 1 / constant
    t.require_storable(f"1 / {t.input(1)}", factor)
    return t.affine(t.view(), factor, scalar(0.0))


@rule("Where")
def choose(t: Translation) -> Translated:
    """At each place one of two values or constants; the choice is the same for all items."""
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
    """The input unchanged, as in inference."""
    training = t.constant(2)
    if training is not None and training.any():
        t.fail("training_mode is set; expected a model exported for inference")
    return t.view()


@rule("Cast")
def cast(t: Translation) -> Translated:
    """The input unchanged: programs of real numbers run in float64."""
    if t.node.attributes["to"] not in REAL_TYPES:
        t.fail(
            "casts to another type than float or double; expected real numbers of 32 or 64 bits "
            "(module.float() before it is exported), and quantizers for steps"
        )
    return t.value(0)


rule("Identity")(lambda t: t.value(0))
rule("IsNaN")(lambda t: np.array(False))  # programs hold no NaN
