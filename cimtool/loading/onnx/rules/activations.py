"""Rules by which ONNX's activations become operations; the same for each number.

One that the program has no operation for is written in those that it has: `lower` fits a chain of
functions of one value as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.ir.arithmetic import Add, Clip, plus, scalar
from cimtool.ir.op import Op
from cimtool.ir.source import (
    Abs,
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
    Tanh,
)
from cimtool.loading.layout import RELU
from cimtool.loading.onnx.translation import Translated, Translation, Unread, rule
from cimtool.loading.onnx.views import Rows

SELU_ALPHA = 1.67326319217681884765625
SELU_GAMMA = 1.05070102214813232421875
"""The defaults of the operator."""

TANH_GELU = (0.044715, float(np.sqrt(2 / np.pi)))
"""GELU by tanh: `x (1 + tanh(b (x + a x^3))) / 2`."""

SAME_SOFTPLUS = 15.0
"""From here on softplus is its input within 2^-21: an exporter's choice between them is none."""


@dataclass(frozen=True, eq=False)
class Compared(Unread):
    """A value of the program above a limit, or not: what a choice is made by."""

    text = "a comparison"
    of: Rows
    limit: float


def elementwise(t: Translation, op: Op) -> Translated:
    """An operation that is the same for all numbers."""
    return t.add(op, t.rows())


for kind, op in {
    "Abs": Abs(),
    "Erf": Erf(),
    "Exp": Exp(),
    "Log": Log(),
    "Neg": plus(-1),
    "Reciprocal": Reciprocal(),
    "Relu": RELU,
    "Sigmoid": Sigmoid(),
    "Softplus": Softplus(),
    "Tanh": Tanh(),
}.items():
    rule(kind)(partial(elementwise, op=op))


@rule("Elu")
def elu(t: Translation) -> Translated:
    """`x` above 0, `alpha (exp(x) - 1)` below."""
    return t.add(Elu(t.number("alpha", 1.0, least=2.0**-20)), t.rows())


@rule("Selu")
def selu(t: Translation) -> Translated:
    """`gamma` times elu."""
    bent = t.part("elu", Elu(t.number("alpha", SELU_ALPHA, least=2.0**-20)), t.rows())
    return t.add(plus(t.number("gamma", SELU_GAMMA)), bent)


@rule("Celu")
def celu(t: Translation) -> Translated:
    """`alpha elu(x / alpha)`."""
    alpha = t.number("alpha", 1.0, least=2.0**-20)
    bent = t.part("elu", Elu(1.0), t.part("scaled", plus(1 / alpha), t.rows()))
    return t.add(plus(alpha), bent)


@rule("HardSigmoid")
def hard_sigmoid(t: Translation) -> Translated:
    """`clip(alpha x + beta, 0, 1)`."""
    line = plus(t.number("alpha", 0.2), offset=t.number("beta", 0.5))
    return t.add(Clip(scalar(0.0), scalar(1.0)), t.part("line", line, t.rows()))


@rule("HardSwish")
def hard_swish(t: Translation) -> Translated:
    """`x clip(x / 6 + 1 / 2, 0, 1)`."""
    x = t.rows()
    gate = t.part(
        "gate", Clip(scalar(0.0), scalar(1.0)), t.part("line", plus(1 / 6, offset=0.5), x)
    )
    return t.add(Gate(), x, gate)


@rule("Gelu")
def gelu(t: Translation) -> Translated:
    """`x (1 + erf(x / sqrt(2))) / 2`, or the same by tanh."""
    x = t.rows()
    kind = t.node.attributes.get("approximate", b"none")
    if kind == b"tanh":
        a, b = TANH_GELU
        cube = t.part("cube", Gate(), t.part("square", Gate(), x, x), x)
        bent = t.part("tanh", Tanh(), t.part("inner", plus(b, a * b), x, cube))
    else:
        bent = t.part("erf", Erf(), t.part("inner", plus(float(np.sqrt(0.5))), x))
    return t.add(Gate(), x, t.part("gate", plus(0.5, offset=0.5), bent))


@rule("Swish")
def swish(t: Translation) -> Translated:
    """`x sigmoid(alpha x)`."""
    x = t.rows()
    inner = t.part("inner", plus(t.number("alpha", 1.0)), x)
    return t.add(Gate(), x, t.part("gate", Sigmoid(), inner))


@rule("Mish")
def mish(t: Translation) -> Translated:
    """`x tanh(softplus(x))`."""
    x = t.rows()
    return t.add(Gate(), x, t.part("gate", Tanh(), t.part("softplus", Softplus(), x)))


@rule("Softsign")
def softsign(t: Translation) -> Translated:
    """`x / (1 + |x|)`."""
    x = t.rows()
    size = t.part("size", plus(1, offset=1.0), t.part("abs", Abs(), x))
    return t.add(Gate(), x, t.part("inverse", Reciprocal(), size))


@rule("LeakyRelu")
def leaky_relu(t: Translation) -> Translated:
    """`x` above 0, `alpha x` below."""
    alpha = t.number("alpha", 0.01, least=0.0)
    return t.add(LeakyRelu(alpha) if alpha else RELU, t.rows())


@rule("PRelu")
def parametric_relu(t: Translation) -> Translated:
    """`x` above 0, below it times a slope a channel, or one for all."""
    x, (slopes,) = t.spread(t.view(), t.weights(1))
    above = t.part("above", Clip(scalar(0.0), scalar(np.inf)), x)
    below = t.part("below", Clip(scalar(-np.inf), scalar(0.0)), x)
    return t.add(Add((scalar(1.0), slopes), scalar(0.0)), above, below)


@rule("Pow")
def power(t: Translation) -> Translated:
    """A square or a cube, by products; another constant exponent, as of a root."""
    x, exponent = t.rows(), t.weights(1)
    if not exponent.size or np.ptp(exponent):
        t.fail(f"has {exponent.size} exponents; expected one")
    if (one := float(exponent.flat[0])) not in (2.0, 3.0):
        return t.add(Power(one), x)
    if one == 2.0:
        return t.add(Gate(), x, x)
    return t.add(Gate(), t.part("square", Gate(), x, x), x)


@rule("Greater")
def greater(t: Translation) -> Translated:
    """A value compared with a constant, for the choice that torch writes behind a softplus."""
    x, limit = t.whole(t.view()), t.weights(1)
    if limit.size != 1:
        t.fail("is supported for one number alone")
    return Compared(x, float(limit.item()))


def chosen_softplus(t: Translation) -> Translated:
    """The softplus of a choice between it and, above a limit from where both agree, its input."""
    condition = t.value(0)
    if isinstance(condition, Compared) and condition.limit >= SAME_SOFTPLUS and t.is_rows(1):
        of, line, bent = condition.of, t.view(1), t.view(2)
        same_places = line.alike(of) and bent.alike(of)
        inner, factor = _scaled(t, bent.name)
        node = t.builder.by_name.get(inner)
        softplus = node is not None and isinstance(node.op, Softplus) and node.inputs == (of.name,)
        if same_places and softplus and _same_line(t, line.name, of.name, factor):
            return bent
    t.fail(
        f"chooses by {t.input(0)}, which depends on the input; expected a choice that is the same "
        "for all items, as a causal mask is, or that of torch between a softplus and its input"
    )


def _scaled(t: Translation, name: str) -> tuple[str, FloatArray]:
    """The value and the factor that a value is a product of, or itself and 1."""
    node = t.builder.by_name.get(name)
    if node is None or not isinstance(node.op, Add) or len(node.inputs) > 1 or node.op.offset.any():
        return name, scalar(1.0)
    return node.inputs[0], node.op.factors[0]


def _same_line(t: Translation, line: str, of: str, factor: FloatArray) -> bool:
    """True where a value is another one times a factor, within float32's rounding."""
    if line == of:
        return bool(np.allclose(factor, 1.0, rtol=1e-6, atol=0.0))
    base, multiple = _scaled(t, of)
    return line == base and bool(np.allclose(factor * multiple, 1.0, rtol=1e-6, atol=0.0))
