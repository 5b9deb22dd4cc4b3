"""Rules by which norms of rows become operations, however an exporter wrote them.

`ReduceMean`, `Sub`, `Pow`, `ReduceMean`, `Add`, `Sqrt`, `Div` are a layer norm: what is computed of
a whole row is followed as a `Norms` until a value is divided by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cimtool.ir.arithmetic import plus
from cimtool.ir.source import Gate, L2Normalize, LayerNorm, RmsNorm
from cimtool.loading.onnx_translation import (
    CentredRows,
    Norms,
    RowMeans,
    Rows,
    Squares,
    Translated,
    Translation,
)

LARGEST_EPSILON = 1e-6
"""A lower limit of row norms up to here only guards against a division by zero."""

NormRule = Callable[[Translation], Translated]


def layer_normalization(t: Translation) -> Translated:
    """Rows to mean 0 and variance 1, then a gain and an offset a channel."""
    x = t.flat_rows()
    width, eps = t.width(x), t.number("epsilon", 1e-5, least=0.0)
    t.require("axis", (-1, 1), "the last one")
    gamma = t.channels(t.weights(1), width)
    beta = t.weights(2) if t.input(2) else np.zeros(1)
    return t.add(LayerNorm(gamma, t.channels(beta, width), eps), x)


def rms_normalization(t: Translation) -> Translated:
    """Rows to mean square 1, then a gain a channel."""
    x = t.flat_rows()
    t.require("axis", (-1, 1), "the last one")
    gamma = t.channels(t.weights(1), t.width(x))
    return t.add(RmsNorm(gamma, t.number("epsilon", 1e-5, least=0.0)), x)


def instance_normalization(t: Translation) -> Translated:
    """A group norm of one group, as torch writes it: a layer norm, its gain one for all."""
    value = t.value(0)
    if not isinstance(value, Rows) or value.shape[:1] != (1,):
        groups = value.shape[0] if isinstance(value, Rows) and value.shape else 0
        t.fail(
            f"normalises {groups} groups of channels apart; expected a group norm of one group, or "
            "a layer norm"
        )
    x, gamma, beta = value.name, t.weights(1), t.weights(2)
    width = t.width(x)
    op = LayerNorm(np.repeat(gamma, width), np.repeat(beta, width), t.number("epsilon", 1e-5))
    return t.add(op, x)


def group_normalization(t: Translation) -> Translated:
    """A group norm of one group: a layer norm."""
    t.require("num_groups", (1,), "1, a layer norm")
    x = t.rows()
    width = t.width(x)
    gamma, beta = (t.channels(t.weights(i).reshape(-1), width) for i in (1, 2))
    return t.add(LayerNorm(gamma, beta, t.number("epsilon", 1e-5, least=0.0)), x)


def lp_normalization(t: Translation) -> Translated:
    """Rows divided by their Euclidean norm."""
    t.require("p", (2,), "2")
    t.require("axis", (-1, 1), "the last one")
    return t.add(L2Normalize(), t.flat_rows())


def _reduced(t: Translation) -> bool:
    """True where the node keeps the axis that it reduces; CimError unless that is the last one."""
    if t.axes() not in ([-1], [1]):
        t.fail("does not reduce rows to [n, 1]; expected axes = [-1], keepdims = 1")
    return bool(t.node.attributes.get("keepdims", 1))


def _squares(t: Translation) -> tuple[str, bool] | None:
    """The rows whose squares the node takes, and whether they are centred; None for other rows."""
    value = t.value(0)
    if isinstance(value, Squares):
        return value.of, True
    node = t.builder.by_name.get(t.flat_rows())
    if node is not None and isinstance(node.op, Gate) and node.inputs[0] == node.inputs[1]:
        return node.inputs[0], False
    return None


def reduce_mean(t: Translation) -> Translated:
    """The mean of rows, or of their squares."""
    kept = _reduced(t)
    found = _squares(t)
    if found is None:
        return RowMeans(t.rows())
    of, centred = found
    return Norms(of, centred, factor=1 / t.width(of), column=kept)


def reduce_sum(t: Translation) -> Translated:
    """The sum of squares of rows."""
    kept = _reduced(t)
    found = _squares(t)
    if found is None:
        t.fail("is supported of squares alone; expected a norm")
    return Norms(*found, column=kept)


def reduce_sum_square(t: Translation) -> Translated:
    """The sum of squares of rows, of rows themselves."""
    return Norms(*_of_rows(t), column=_reduced(t))


def reduce_l2(t: Translation) -> Translated:
    """Norms of rows; axes as input or (before operator set 18) attribute."""
    return Norms(*_of_rows(t), power=0.5, column=_reduced(t))


def _of_rows(t: Translation) -> tuple[str, bool]:
    """The rows that a norm is of, and whether they are centred."""
    value = t.value(0)
    return (value.of, True) if isinstance(value, CentredRows) else (t.flat_rows(), False)


def square_root(t: Translation) -> Translated:
    """The norm from a sum of squares."""
    value = t.value(0)
    if not isinstance(value, Norms) or value.power != 1.0:
        t.fail("is supported in norms of rows alone")
    return replace(value, power=0.5)


def limited(t: Translation, norms: Norms, lo: float, hi: float) -> Norms:
    """Norms from a lower limit that only guards against zero."""
    guard = LARGEST_EPSILON ** (1 / norms.power / 2) if norms.power > 0 else 0.0
    if not (lo <= guard and hi == np.inf):
        t.fail(f"limits row norms to [{lo:g}, {hi:g}]; expected an epsilon only")
    return norms


def raised(t: Translation, norms: Norms, exponent: float) -> Norms:
    """Norms to a power."""
    if norms.power * exponent not in (0.5, -0.5):
        t.fail(f"the exponent of a norm is {exponent:g}; expected a root or its reciprocal")
    return replace(norms, power=norms.power * exponent)


def shifted(t: Translation, norms: Norms, offset: float) -> Norms:
    """Norms plus an epsilon."""
    if norms.power == 1.0 and offset >= 0:
        return replace(norms, added=norms.added + offset)
    return limited(t, norms, abs(offset), np.inf)


def scaled(norms: Norms, factor: float) -> Norms:
    """Norms times a number above 0."""
    squared = factor ** (1 / norms.power)
    return replace(norms, factor=norms.factor * squared, added=norms.added * squared)


def divided(t: Translation, value: Translated, norms: Norms) -> Rows:
    """A value over its own norms, given as they are or as reciprocals."""
    of = (
        value.of
        if isinstance(value, CentredRows)
        else value.name
        if isinstance(value, Rows)
        else ""
    )
    if (of, isinstance(value, CentredRows)) != (norms.of, norms.centred):
        t.fail("divides by the row norms of another value; expected its own")
    if abs(norms.power) != 0.5 or not norms.column:
        t.fail("divides by sums of squares; expected their root, a column [n, 1]")
    width = t.width(of)
    gain = (norms.factor * width) ** -0.5
    eps = norms.added / norms.factor / width
    if norms.centred:
        return t.add(LayerNorm(np.full(width, gain), np.zeros(width), eps), of)
    if eps * width > LARGEST_EPSILON**2:
        return t.add(RmsNorm(np.full(width, gain), eps), of)
    if norms.factor == 1.0:
        return t.add(L2Normalize(), of)
    return t.add(plus(norms.factor**-0.5), t.part("unit", L2Normalize(), of))


def expand(t: Translation) -> Translated:
    """Norms and means of rows, spread over the rows that they meet."""
    value = t.value(0)
    if not isinstance(value, Norms | RowMeans):
        t.fail("is supported for row norms alone")
    return value


NORM_RULES: dict[str, NormRule] = {
    "Expand": expand,
    "GroupNormalization": group_normalization,
    "InstanceNormalization": instance_normalization,
    "LayerNormalization": layer_normalization,
    "LpNormalization": lp_normalization,
    "RMSNormalization": rms_normalization,
    "ReduceL2": reduce_l2,
    "ReduceMean": reduce_mean,
    "ReduceSum": reduce_sum,
    "ReduceSumSquare": reduce_sum_square,
    "Sqrt": square_root,
}
"""The supported operators of whole rows, and the rule of each."""
