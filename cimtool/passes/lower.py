"""Lower: everything becomes multiply, add and clip; a note gives each approximation's worst error.

`Store` marks where a value is kept in memory, which is where `QuantizePass` may round. Statistics
of pairs saturate outside a domain, and polynomials become Horner's scheme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cimtool.ir.arithmetic import (
    Add,
    Arrange,
    BatchMatMul,
    Clip,
    Mul,
    Mvm,
    Store,
    plus,
    scalar,
)
from cimtool.ir.backends import LOWER
from cimtool.ir.heads import VARIANCE
from cimtool.ir.integer import Requant
from cimtool.ir.op import Arithmetic, Level, Op
from cimtool.ir.program import Builder, Graph, Node, Program, Range, keep, rewrite, score_inputs
from cimtool.ir.quantized import (
    FractionalBias,
    QuantizedMvm,
    QuantizedStore,
    is_whole,
    quantizer_of,
)
from cimtool.ir.source import (
    Abs,
    CosineScore,
    DistanceScore,
    Elu,
    Erf,
    Exp,
    Gate,
    LeakyRelu,
    Log,
    LogGamma,
    PolynomialScore,
    Power,
    ProbitScore,
    Reciprocal,
    Sigmoid,
    Softplus,
    Tanh,
)
from cimtool.ir.types import rows_of_item
from cimtool.passes import inclusion  # noqa: F401  (importing a rule registers it)
from cimtool.passes.approximate import CurvePolynomial, fit_exp, fit_inverse_root
from cimtool.passes.base import Job, Pass
from cimtool.passes.curves import DOMAIN_MARGIN, FittedCurve, fuse, widened_range
from cimtool.passes.lowering import (
    EXP_TOLERANCE,
    RESIDUAL_BITS,
    ROOT_TOLERANCE,
    Lowering,
    horner,
    limited,
    newton_root,
    normalised,
    of_layer,
)

NEGLIGIBLE_BITS = 60
"""Bits below the sum of all from which a coefficient, in variables in [-1, 1], is taken as zero."""

LEAST_BAND = 2.0**-12
"""Least width of the band about a line, as a share of the line's own height."""

COSINE_LIMIT = 2.0
"""Above any product of two unit rows that are rounded, and so longer than 1."""

LOGIT_BITS = 24
"""Bits of the logit: an integer below 2^24 is exact in float32."""


@dataclass(frozen=True)
class LowerPass(Pass):
    """Leave nothing but multiply, add and clip, and fix the domain of the score's statistics."""

    name = "lowered"
    doing = "lowering to multiply-accumulates"
    requires = Level.FLOAT
    requires_calibration = True
    leaves = Level.MAC

    def apply(self, program: Program, job: Job) -> Program:
        driven: dict[int, list[str]] = {}

        def lowered(graph: Graph) -> Graph:
            return rewrite(fuse(graph), lambda op: _on_stored_input, Lowering(graph, job, driven))

        text, video = lowered(program.text), lowered(program.video)
        for rows, layers in driven.items():
            job.note(
                f"{', '.join(layers)}: the same arrays are driven {rows} times per item, once for "
                "each of its rows"
            )
        score = replace(program.score, inputs=score_inputs(text, video))
        return Program(text, video, lowered(score))


def _on_stored_input(builder: Lowering, op: Op, node: Node, inputs: tuple[str, ...]) -> str:
    """Store the embedding before the rule of a node reads it.

    What is no layer, such as a sum past layers or a norm, reads RESIDUAL_BITS of it. If the node
    arranges it, it is stored after that, because each column has its own scale; one number is taken
    from what layers store.
    """
    if node.name not in builder.embeddings and not isinstance(op, QuantizedStore):
        settings = builder.settings.of_layer(f"{builder.name}.{node.name}")
        bits = settings.input_bits if isinstance(op, Mvm) else RESIDUAL_BITS
        stored = {n.inputs[0]: n.name for n in builder.by_name.values() if isinstance(n.op, Store)}
        known = stored if isinstance(op, Arrange) else {}
        inputs = tuple(
            known.get(i) or builder.store(i, "input", bits) if i in builder.embeddings else i
            for i in inputs
        )
    return LOWER.of(op)(builder, op, node, inputs)


LOWER.rule(Arithmetic, Store)(keep)


@LOWER.rule(Mvm)
def mvm(builder: Lowering, op: Mvm, node: Node, inputs: tuple[str, ...]) -> str:
    """Store an activation in the bits of the layer that reads it, unless its model did."""
    layer, (value,) = f"{builder.name}.{node.name}", inputs
    rows, _ = rows_of_item(builder.types[value].shape[0])
    if rows > 1:
        builder.driven.setdefault(rows, []).append(layer)
    quantizer = quantizer_of(builder.by_name, value)
    if quantizer is not None:
        return _on_quantized(builder, op, node.name, value, quantizer)
    if node.inputs[0] not in builder.embeddings:
        bits = builder.settings.of_layer(layer).activation_bits
        value = builder.store(value, "activation", bits)
    return builder.add(node.name, op, value)


def _on_quantized(builder: Lowering, op: Mvm, name: str, value: str, read: QuantizedStore) -> str:
    """A layer on what its model quantized; a bias in fractions of its unit is added behind it."""
    value, added = builder.lifted(value, read)
    if not isinstance(op, QuantizedMvm):
        return builder.add(name, replace(op, bias=op.bias - added * op.weight.sum(axis=0)), value)
    lift = added * op.weight_scale * op.codes.sum(axis=0)
    if is_whole(op.bias / (read.scale * op.weight_scale)):
        return builder.add(name, replace(op, bias=op.bias - lift), value)
    seen = builder.ranges[name]
    products = Range(seen.lo - op.bias, seen.hi - op.bias)
    total = builder.add(name, replace(op, bias=-lift), value, seen=products)
    return builder.add(f"{name}.bias", FractionalBias((scalar(1.0),), op.bias), total, seen=seen)


@LOWER.rule(Exp)
def exp(builder: Lowering, op: Exp, node: Node, inputs: tuple[str, ...]) -> str:
    """Horner of a near-minimax polynomial on the calibrated range, as of the log-variance."""
    known = builder.types[inputs[0]]
    of = "logvar" if node.name == VARIANCE else "its input"
    with of_layer(builder, node.name):
        fit = fit_exp(float(known.lo.min()), float(known.hi.max()), EXP_TOLERANCE, of)
    builder.note(
        f"{builder.name}.{node.name}: exp on [{fit.centre - fit.half:.4g}, "
        f"{fit.centre + fit.half:.4g}] as a polynomial of degree "
        f"{len(fit.coefficients) - 1}, worst error {fit.error:.1e} of its maximum"
    )
    u = normalised(builder, f"{node.name}.u", inputs[0], fit.centre, fit.half)
    last = horner(builder, node.name, u, fit.coefficients)
    return builder.add(node.name, Clip(scalar(0.0), scalar(np.inf)), last)


@LOWER.rule(FittedCurve)
def curve(builder: Lowering, op: FittedCurve, node: Node, inputs: tuple[str, ...]) -> str:
    """Horner of its polynomials, within the ends of its domain, and lines beyond them."""
    fit, name, (x,) = op.fit, node.name, inputs
    degrees = " and ".join(map(str, fit.degrees))
    builder.note(
        f"{builder.name}.{name}: {', '.join(dict.fromkeys(op.parts))} on [{fit.ends[0]:.4g}, "
        f"{fit.ends[1]:.4g}] as {'polynomials' if len(fit.degrees) > 1 else 'a polynomial'} of "
        f"degree {degrees}, worst error {fit.error:.1e}"
    )
    if isinstance(fit, CurvePolynomial):
        return _within_ends(builder, name, x, fit)
    sides = [
        _within_ends(builder, f"{name}.{side}", x, one)
        for side, one in zip(("left", "right"), fit.sides, strict=True)
    ]
    return builder.add(name, plus(1, 1, offset=-fit.value), *sides)


def _within_ends(builder: Lowering, name: str, x: str, fit: CurvePolynomial) -> str:
    """A curve's polynomials, and lines beyond the ends of their domain."""
    left, right = fit.ends
    u = normalised(builder, f"{name}.u", x, fit.centre, fit.half)
    value = _polynomials(builder, name, u, fit)
    inside = Clip(scalar(fit.lo), scalar(fit.hi))
    if not (fit.below or fit.above):
        return builder.add(name, inside, value)
    terms = [builder.add(f"{name}.inside", inside, value)]
    for side, end, slope in (("below", left, fit.below), ("above", right, fit.above)):
        if slope:
            past = builder.add(f"{name}.{side}_end", plus(1, offset=-end), x)
            lo, hi = (-np.inf, 0.0) if side == "below" else (0.0, np.inf)
            terms.append(builder.add(f"{name}.{side}", Clip(scalar(lo), scalar(hi)), past))
    slopes = (slope for slope in (fit.below, fit.above) if slope)
    return builder.add(name, plus(1, *slopes), *terms)


def _polynomials(builder: Lowering, name: str, u: str, fit: CurvePolynomial) -> str:
    """The even part, and `u` times the odd one, both of `v = 2 |u| - 1`; or one of `u`."""
    if fit.odd is None:
        return horner(builder, name, u, fit.even)
    upper = builder.add(f"{name}.upper", Clip(scalar(0.0), scalar(1.0)), u)
    size = builder.add(f"{name}.size", plus(4, -2, offset=-1), upper, u)
    v = builder.add(f"{name}.v", Clip(scalar(-1.0), scalar(1.0)), size)
    if not any(fit.odd):
        return horner(builder, f"{name}.even", v, fit.even)
    if len(fit.odd) == 1:
        odd = builder.add(f"{name}.odd", plus(fit.odd[0]), u)
    else:
        odd = builder.add(f"{name}.odd", Mul(), u, horner(builder, name, v, fit.odd))
    if len(fit.even) == 1:
        return builder.add(f"{name}.moved", plus(1, offset=fit.even[0]), odd)
    even = horner(builder, f"{name}.even", v, fit.even)
    return builder.add(f"{name}.sum", plus(1, 1), odd, even)


def _fused_away(builder: Lowering, op: Op, node: Node, inputs: tuple[str, ...]) -> str:
    raise TypeError(f"fuse left {op.name} in {builder.name}.{node.name}")


LOWER.rule(Elu, Erf, Log, LogGamma, Power, Reciprocal, Sigmoid, Softplus, Tanh)(_fused_away)


@LOWER.rule(Abs)
def absolute(builder: Lowering, op: Abs, node: Node, inputs: tuple[str, ...]) -> str:
    """Twice the part above 0, less the value."""
    above = builder.add(f"{node.name}.above", Clip(scalar(0.0), scalar(np.inf)), *inputs)
    return builder.add(node.name, plus(2, -1), above, *inputs)


@LOWER.rule(Gate)
def gate(builder: Lowering, op: Gate, node: Node, inputs: tuple[str, ...]) -> str:
    """The product of both values as they are stored: one multiplication in the digital unit."""
    stored = (builder.store(value, "residual", RESIDUAL_BITS) for value in inputs)
    return builder.add(node.name, Mul(), *stored)


@LOWER.rule(BatchMatMul)
def batch_matmul(builder: Lowering, op: BatchMatMul, node: Node, inputs: tuple[str, ...]) -> str:
    """Products of activations as they are stored: multiplications in the digital unit."""
    (a_rows, _), width = rows_of_item(builder.types[inputs[0]].shape[0]), builder.extent(inputs[0])
    builder.note(
        f"{builder.name}.{node.name}: a product of two activations, "
        f"{a_rows * op.columns * width:,} multiply-adds per item in the digital unit"
    )
    stored = (builder.store(value, "residual", RESIDUAL_BITS) for value in inputs)
    return builder.add(node.name, op, *stored)


@LOWER.rule(LeakyRelu)
def leaky_relu(builder: Lowering, op: LeakyRelu, node: Node, inputs: tuple[str, ...]) -> str:
    """The part above 0, and the part below times the slope."""
    name = node.name
    above = builder.add(f"{name}.above", Clip(scalar(0.0), scalar(np.inf)), *inputs)
    below = builder.add(f"{name}.below", Clip(scalar(-np.inf), scalar(0.0)), *inputs)
    return builder.add(name, plus(1, op.slope), above, below)


def _domain(
    builder: Lowering,
    statistic: str,
    least: float = -np.inf,
    most: float = np.inf,
    least_half: float = 0.0,
) -> tuple[float, float]:
    """Centre and half the width of a statistic's domain: its calibrated range, widened.

    It ends earlier if the score means nothing below `least` or above `most`. What calibration rows
    have seen stays inside, and if that is one value alone there is room beside it. Half the width
    is `least_half` at least.
    """
    seen = builder.ranges[statistic]
    wide = lo, hi = widened_range(seen)
    lo = max(lo, min(least, float(seen.lo.min())))
    hi = min(hi, max(most, float(seen.hi.max())))
    if not (hi - lo) / 2:
        lo, hi = wide
    centre, half = (lo + hi) / 2, max((hi - lo) / 2, least_half)
    lo, hi = centre - half, centre + half
    builder.note(f"score: {statistic} in [{lo:.6g}, {hi:.6g}], saturated outside")
    return centre, half


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
    if (op.factor, op.offset) != (1.0, 0.0):
        value = builder.add(node.name, plus(op.factor, offset=op.offset), value)
    return _stored_logit(builder, value)


def _stored_logit(builder: Builder, value: str) -> str:
    return builder.add("logit.stored", Store("logit", LOGIT_BITS), value)


@LOWER.rule(ProbitScore)
def probit_score(builder: Lowering, op: ProbitScore, node: Node, inputs: tuple[str, ...]) -> str:
    """Keep the cosine, limit its variance to its domain; the root is Newton's, for each pair."""
    (cosine, variance), name = inputs, node.name
    kept = limited(builder, f"{node.inputs[0]}_normal", cosine, 0.0, COSINE_LIMIT, whole=True)
    centre, half = _domain(builder, node.inputs[1])
    moved = limited(builder, f"{node.inputs[1]}_normal", variance, centre, half, whole=True)
    lo, hi = (1 + op.spread * max(end, 0.0) for end in (centre - half, centre + half))
    wide = builder.add(f"{name}.wide", plus(op.spread, offset=1 + op.spread * centre), moved)
    root = newton_root(builder, f"{name}.root", wide, fit_inverse_root(lo, hi, ROOT_TOLERANCE))
    # In this order the offset counts in units of the product, which are finer than the cosine's.
    product = builder.add(f"{name}.product", Mul(), kept, root)
    total = builder.add(name, plus(op.factor, op.offset), product, root)
    return _stored_logit(builder, total)


@LOWER.rule(PolynomialScore)
def polynomial_score(
    builder: Lowering, op: PolynomialScore, node: Node, inputs: tuple[str, ...]
) -> str:
    """Shift to variables in [-1, 1] in rational arithmetic, then Horner in both, or in ed alone."""
    fitted = op.fitted or (-np.inf, np.inf) * len(inputs)
    domains: list[tuple[float, float]] = []
    least_half = 0.0
    for statistic, lo, hi in zip(node.inputs, fitted[::2], fitted[1::2], strict=True):
        domains.append(_domain(builder, statistic, *beyond_fit(lo, hi, op.degree), least_half))
        # If vd is a function of ed but for rounding, nothing is left beside its line.
        least_half = 0.0 if op.line is None else LEAST_BAND * abs(op.line[1]) * domains[0][1]
    variables = [
        normalised(builder, f"{statistic}_normal", value, *domain)
        for statistic, value, domain in zip(node.inputs, inputs, domains, strict=True)
    ]
    rows = op.polynomial.significant((*domains, (0.0, 1.0))[:2], NEGLIGIBLE_BITS, op.line)
    total = _bivariate(builder, node.name, rows, variables[0], variables[-1])
    return _stored_logit(builder, total)


def beyond_fit(least: float, most: float, degree: int) -> tuple[float, float]:
    """The range in which a polynomial of a degree is followed, if it was fitted on these ends.

    Of all polynomials of a degree that a range bounds, Chebyshev's grow fastest outside (Rivlin,
    The Chebyshev Polynomials, 1974). Those of this degree grow there by as much as
    those of degree 2 over DOMAIN_MARGIN: a line far out, 8 powers by 1.4% of the range.
    """
    growth = math.acosh(1 + 2 * DOMAIN_MARGIN) * 2
    margin = (math.cosh(growth / degree) - 1) / 2 * (most - least)
    return least - margin, most + margin


def _bivariate(
    builder: Builder, name: str, rows: Sequence[tuple[float, ...]], u: str, v: str
) -> str:
    """Horner in u over Horner in v; rows are coefficients of u^i v^j."""
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
    """The limits that `lower` put on a value, at any later stage; None if no score reads it."""
    shift: Add | None = None
    same = {value}  # The value, and what it is in other units.
    for node in score.nodes:
        if len(node.inputs) != 1 or node.inputs[0] not in same:
            continue
        (value,) = node.inputs
        match node.op:
            case Clip() as clip if shift is not None:
                scale = score.types[value].scale
                unit = 1.0 if scale is None else float(scale)
                return DomainLimits(
                    value, -float(shift.offset), float(clip.lo), float(clip.hi), unit
                )
            case Add() as shift:
                same = {node.name}
            case Requant() if shift is None:
                same.add(node.name)
    return None
