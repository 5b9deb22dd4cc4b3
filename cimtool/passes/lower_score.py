"""Lowering of scores: statistics saturate outside a domain, polynomials become Horner's scheme."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from cimtool.ir.arithmetic import Add, Clip, Mul, Store, plus
from cimtool.ir.backends import LOWER
from cimtool.ir.integer import Requant
from cimtool.ir.program import Builder, Graph, Node
from cimtool.ir.source import CosineScore, DistanceScore, PolynomialScore
from cimtool.passes.lowering import Lowering, horner, limited, normalised, widened_range
from cimtool.reference.surrogate import shifted

NEGLIGIBLE_BITS = 60
"""Bits below the sum of all from which a coefficient, in variables in [-1, 1], is taken as zero."""

COSINE_LIMIT = 2.0
"""Above any product of two unit rows that are rounded, and so longer than 1."""

LOGIT_BITS = 24
"""Bits of the logit: an integer below 2^24 is exact in float32."""


@dataclass(frozen=True)
class DomainLimits:
    """The domain beyond which a value of the score saturates, `lo` to `hi` from `centre`.

    All three are in units of the value `moved`, which is the value less the centre; `unit` is that
    unit's real value.
    """

    moved: str
    centre: float
    lo: float
    hi: float
    unit: float


def domain_limits(score: Graph, value: str) -> DomainLimits | None:
    """The limits that `lower` put on a value, at any later stage; None where no score reads it."""
    shift: Add | None = None
    for node in score.nodes:
        if node.inputs != (value,):
            continue
        match node.op:
            case Clip() as clip if shift is not None:
                scale = score.types[value].scale
                unit = 1.0 if scale is None else float(scale)
                return DomainLimits(
                    value, -float(shift.offset), float(clip.lo), float(clip.hi), unit
                )
            case Add() as shift:
                value = node.name
            case Requant() if shift is None:
                value = node.name
    return None


def _domain(builder: Lowering, statistic: str) -> tuple[float, float]:
    """Centre and half the width of a statistic's domain: its calibrated range, widened."""
    lo, hi = widened_range(builder.ranges[statistic])
    builder.note(f"score: {statistic} in [{lo:.6g}, {hi:.6g}], saturated outside")
    return (lo + hi) / 2, (hi - lo) / 2


@LOWER.rule(DistanceScore)
def distance_score(
    builder: Lowering, op: DistanceScore, node: Node, inputs: tuple[str, ...]
) -> str:
    """Limit ed to its domain, about whose middle it keeps all its bits, then scale it."""
    (statistic,), (ed,) = node.inputs, inputs
    centre, half = _domain(builder, statistic)
    value = limited(builder, f"{statistic}_normal", ed, centre, half, whole=True)
    scaled = plus(op.factor, offset=op.offset + op.factor * centre)
    return _stored_logit(builder, builder.add(node.name, scaled, value))


@LOWER.rule(CosineScore)
def cosine_score(builder: Lowering, op: CosineScore, node: Node, inputs: tuple[str, ...]) -> str:
    """Keep the products of unit rows, which with the rounding of both are below COSINE_LIMIT."""
    (product,) = inputs
    value = limited(builder, "cosine_normal", product, 0.0, COSINE_LIMIT, whole=True)
    return _stored_logit(builder, value)


def _stored_logit(builder: Builder, value: str) -> str:
    return builder.add("logit.stored", Store("logit", LOGIT_BITS), value)


@LOWER.rule(PolynomialScore)
def polynomial_score(
    builder: Lowering, op: PolynomialScore, node: Node, inputs: tuple[str, ...]
) -> str:
    """Shift to variables in [-1, 1] in rational arithmetic, then Horner in both."""
    domains = [_domain(builder, statistic) for statistic in node.inputs]
    u, v = (
        normalised(builder, f"{statistic}_normal", value, *domain)
        for statistic, value, domain in zip(node.inputs, inputs, domains, strict=True)
    )
    table = shifted(op.polynomial, *domains[0], *domains[1])
    total = _bivariate(builder, node.name, table, u, v)
    return _stored_logit(builder, total)


def _bivariate(builder: Builder, name: str, table: list[list[Fraction]], u: str, v: str) -> str:
    """Horner in u over Horner in v; rows are coefficients of u^i v^j."""
    negligible = sum(abs(c) for row in table for c in row) / 2**NEGLIGIBLE_BITS
    rows = [_trimmed(row, negligible) for row in table]
    while len(rows) > 1 and not any(rows[-1]):
        rows.pop()
    value: str | None = None
    constant = 0.0
    for i, row in reversed(list(enumerate(rows))):
        product = None
        if value is not None:
            product = builder.add(f"{name}.u{i}", Mul(), value, u)
        elif constant:
            product = builder.add(f"{name}.u{i}", plus(constant), u)
        if len(row) > 1:
            inner = horner(builder, f"{name}.v{i}", v, row)
            terms = (product, inner) if product else (inner,)
            value = builder.add(f"{name}.s{i}", plus(*[1] * len(terms)), *terms)
        elif product:
            value = builder.add(f"{name}.s{i}", plus(1, offset=row[0]), product)
        else:
            constant = row[0]
    if value is None:
        return builder.add(f"{name}.constant", plus(0, offset=constant), u)
    return value


def _trimmed(row: list[Fraction], negligible: Fraction) -> tuple[float, ...]:
    """The coefficients as floats, negligible ones as zero and not at the end."""
    kept = [float(c) if abs(c) > negligible else 0.0 for c in row]
    while len(kept) > 1 and kept[-1] == 0:
        kept.pop()
    return tuple(kept)
