"""Lower: how far one Gaussian is inside another, by sums of products of functions of one item."""

from __future__ import annotations

from collections.abc import Iterator

from cimtool.base.errors import RowsError
from cimtool.ir.arithmetic import Clip, MatMul, Mul, plus, scalar
from cimtool.ir.backends import LOWER
from cimtool.ir.program import Node
from cimtool.ir.source import Inclusion
from cimtool.passes.base import RIGHT_ROWS
from cimtool.passes.lowering import Lowering, horner, normalised
from cimtool.passes.separable import SeparableFit, fit_antisymmetric

TOLERANCE = 2.0**-9
"""Error of a sum of products, as a share of its largest value: half a step of 8 bits."""

MOST_TERMS = 8
"""The most terms of such a sum."""

FACTOR_BITS = 12
"""Bits of the factors of a term: their rounding adds less than that of mu in 8 bits."""


@LOWER.rule(Inclusion)
def inclusion(builder: Lowering, op: Inclusion, node: Node, inputs: tuple[str, ...]) -> str:
    """Sums of products for both functions of log-variances; of the second, three with the means."""
    name, (mu_t, l_t, mu_v, l_v) = node.name, inputs
    known = builder.types[l_t], builder.types[l_v]
    lo, hi = min(float(x.lo.min()) for x in known), max(float(x.hi.max()) for x in known)
    centre, half = (lo + hi) / 2, max((hi - lo) / 2, 2.0**-10)
    prior, weight = (
        fit_antisymmetric(function, centre, half, TOLERANCE, MOST_TERMS)
        for function in (op.prior, op.weight)
    )
    if prior is None or weight is None:
        raise RowsError(
            f"{builder.name}.{name}: log-variances span {lo:.4g} to {hi:.4g} on these rows, too "
            f"wide for {MOST_TERMS} products; expected {RIGHT_ROWS}, or a clamp of them"
        )
    builder.note(
        f"{builder.name}.{name}: log-variances in [{lo:.4g}, {hi:.4g}], limited outside; "
        f"{len(prior.terms)} products for variances alone, worst error {prior.error:.1e} for each "
        f"dimension, {3 * len(weight.terms)} with means, {weight.error:.1e} of a squared difference"
    )
    u, v = (
        normalised(builder, f"{name}.{side}", x, centre, half)
        for side, x in (("text", l_t), ("video", l_v))
    )
    terms: list[str] = []
    factors: list[float] = []

    def product(factor: float, left: str, right: str) -> None:
        factors.append(factor)
        terms.append(builder.add(f"{name}.product{len(terms) + 1}", MatMul(), left, right))

    for left, right in _separated(builder, f"{name}.prior", prior, u, v):
        product(1, left, right)
    for a, b in _separated(builder, f"{name}.weight", weight, u, v):
        a_mu, b_mu = _times(builder, a, mu_t), _times(builder, b, mu_v)
        product(-1, _times(builder, a_mu, mu_t), b)
        product(2, a_mu, b_mu)
        product(-1, a, _times(builder, b_mu, mu_v))
    return builder.add(name, plus(*factors), *terms)


def _separated(
    builder: Lowering, name: str, fit: SeparableFit, u: str, v: str
) -> Iterator[tuple[str, str]]:
    """The stored factors of each term, polynomials of u and of v."""
    for number, term in enumerate(fit.terms, start=1):
        left = _polynomial(builder, f"{name}{number}.text", u, term.left, term.reach[0])
        right = _polynomial(builder, f"{name}{number}.video", v, term.right, term.reach[1])
        yield left, right


def _polynomial(
    builder: Lowering, name: str, x: str, powers: tuple[float, ...], reach: float
) -> str:
    """A polynomial within its reach on [-1, 1], stored in FACTOR_BITS."""
    value, end = horner(builder, name, x, powers), scalar(reach)
    kept = builder.add(f"{name}.kept", Clip(-end, end), value)
    return builder.store(kept, "residual", FACTOR_BITS)


def _times(builder: Lowering, factor: str, mu: str) -> str:
    """A product with a mean, stored in FACTOR_BITS."""
    return builder.store(builder.add(f"{factor}.mu", Mul(), factor, mu), "residual", FACTOR_BITS)
