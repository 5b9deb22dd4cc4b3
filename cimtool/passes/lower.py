"""Lower: everything becomes multiply, add and clip; a note gives each approximation's worst error.

`Store` marks where a value is kept in memory, which is where `QuantizePass` may round. Statistics
of pairs saturate outside a domain, and polynomials become Horner's scheme.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from cimtool.base.errors import RowsError
from cimtool.ir.arithmetic import (
    Add,
    Arrange,
    Axis,
    BatchMatMul,
    Clip,
    MatMul,
    Mul,
    Mvm,
    Store,
    Sum,
    plus,
    scalar,
)
from cimtool.ir.backends import LOWER
from cimtool.ir.calibration import Range
from cimtool.ir.integer import Requant
from cimtool.ir.largest import largest
from cimtool.ir.op import Level, Op
from cimtool.ir.program import Builder, Graph, Node, Program, keep, rewrite, score_inputs
from cimtool.ir.quantized import FractionalBias, QuantizedMvm, QuantizedStore, is_whole
from cimtool.ir.source import (
    Abs,
    CosineScore,
    DistanceScore,
    Elu,
    Erf,
    Exp,
    Gate,
    L2Normalize,
    LayerNorm,
    LeakyRelu,
    Log,
    PolynomialScore,
    Reciprocal,
    RmsNorm,
    Sigmoid,
    Softmax,
    Softplus,
    Tanh,
)
from cimtool.ir.types import integer, rows_of_item
from cimtool.passes.approximate import (
    CurvePolynomial,
    NewtonIteration,
    fit_exp,
    fit_inverse,
    fit_inverse_root,
)
from cimtool.passes.base import Job, Pass
from cimtool.passes.curves import FittedCurve, fuse, widened_range
from cimtool.reference.surrogate import as_float, shifted

EXP_TOLERANCE = 2.0**-17
"""Error of exp relative to its largest value: half a step of a 16-bit variance."""

SOFTMAX_SPAN = 16.0
"""Numbers as far below a row's largest have the same power as those at this distance, 1e-7."""

ROOT_TOLERANCE = 2.0**-18
"""Relative error of the reciprocal norm, below a step of a 16-bit mean."""

NEGLIGIBLE_BITS = 60
"""Bits below the sum of all from which a coefficient, in variables in [-1, 1], is taken as zero."""

COSINE_LIMIT = 2.0
"""Above any product of two unit rows that are rounded, and so longer than 1."""

LOGIT_BITS = 24
"""Bits of the logit: an integer below 2^24 is exact in float32."""

NORMAL_BITS = 21
"""Bits of a normalised variable: [-1, 1] in steps of 2^-20."""


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
                f"{', '.join(layers)}: the same arrays are driven {rows} times an item, once for "
                "each of its rows"
            )
        score = replace(program.score, inputs=score_inputs(text, video))
        return Program(text, video, lowered(score))


def _on_stored_input(builder: Lowering, op: Op, node: Node, inputs: tuple[str, ...]) -> str:
    """The rule of a node, for inputs among which the embedding is stored first.

    Of one that is arranged the numbers are stored where they come: columns have scales.
    """
    if node.name not in builder.embeddings and not isinstance(op, QuantizedStore):
        bits = builder.settings.input_bits
        inputs = tuple(
            builder.store(i, "input", bits) if i in builder.embeddings else i for i in inputs
        )
    return LOWER.of(op)(builder, op, node, inputs)


class Lowering(Builder):
    """Builds a lowered graph; `note` takes a line on each stand-in for what hardware lacks.

    `driven` takes the layers that are driven more than once an item, by how often.
    """

    def __init__(self, graph: Graph, job: Job, driven: dict[int, list[str]]):
        super().__init__(graph.name, graph.inputs, graph.calibration)
        self.settings, self.note, self.embeddings = job.settings, job.note, graph.embeddings
        self.driven = driven

    def store(self, value: str, role: str, bits: int) -> str:
        """Mark a value as stored for `role` in this many bits, once for all uses alike."""
        op = Store(role, bits)
        for node in self.by_name.values():
            if node.inputs == (value,) and node.op == op:
                return node.name
        return self.add(f"{value}.stored", op, value)

    def lifted(self, value: str, op: QuantizedStore) -> tuple[str, float]:
        """A value of its own quantizer as the codes of its bits, and what was added to it.

        Nothing where the hardware's code of inputs holds the limits in these bits; else the zero
        point comes back, so that the lowest code is 0.
        """
        known = integer(("n",), op.lo, op.hi, op.scale)
        if self.settings.input_code(known).bits <= op.bits:
            return value, 0.0
        name, added = f"{value}.lifted", -op.lo * op.scale
        if name not in self.by_name:
            self.add(name, plus(1, offset=added), value)
        return name, added


LOWER.rule(MatMul, Mul, Add, Sum, Clip, Arrange, Axis, Store)(keep)


@LOWER.rule(Mvm)
def mvm(builder: Lowering, op: Mvm, node: Node, inputs: tuple[str, ...]) -> str:
    """Store an activation in the bits of the layer that reads it, unless its model did."""
    layer, (value,) = f"{builder.name}.{node.name}", inputs
    rows, _ = rows_of_item(builder.types[value].shape[0])
    if rows > 1:
        builder.driven.setdefault(rows, []).append(layer)
    made = builder.by_name.get(value)
    if made is not None and isinstance(made.op, QuantizedStore):
        return _on_quantized(builder, op, node.name, value, made.op)
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
    """Horner of a near-minimax polynomial on the calibrated range of the log-variance."""
    known = builder.types[inputs[0]]
    with _of_layer(builder, node.name):
        fit = fit_exp(float(known.lo.min()), float(known.hi.max()), EXP_TOLERANCE)
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
    left, right = fit.ends
    degrees = " and ".join(map(str, fit.degrees))
    builder.note(
        f"{builder.name}.{name}: {', '.join(dict.fromkeys(op.parts))} on [{left:.4g}, "
        f"{right:.4g}] as {'polynomials' if len(fit.degrees) > 1 else 'a polynomial'} of degree "
        f"{degrees}, worst error {fit.error:.1e}"
    )
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


LOWER.rule(Elu, Erf, Log, Reciprocal, Sigmoid, Softplus, Tanh)(_fused_away)


@LOWER.rule(Abs)
def absolute(builder: Lowering, op: Abs, node: Node, inputs: tuple[str, ...]) -> str:
    """Twice the part above 0, less the value."""
    above = builder.add(f"{node.name}.above", Clip(scalar(0.0), scalar(np.inf)), *inputs)
    return builder.add(node.name, plus(2, -1), above, *inputs)


@LOWER.rule(Gate)
def gate(builder: Lowering, op: Gate, node: Node, inputs: tuple[str, ...]) -> str:
    """The product of both values as they are stored: one multiplication in the digital unit."""
    stored = (builder.store(value, "residual", 16) for value in inputs)
    return builder.add(node.name, Mul(), *stored)


@LOWER.rule(BatchMatMul)
def batch_matmul(builder: Lowering, op: BatchMatMul, node: Node, inputs: tuple[str, ...]) -> str:
    """Products of activations as they are stored: multiplications in the digital unit."""
    (a_rows, _), width = rows_of_item(builder.types[inputs[0]].shape[0]), builder.extent(inputs[0])
    builder.note(
        f"{builder.name}.{node.name}: a product of two activations, "
        f"{a_rows * op.columns * width:,} multiply-adds an item in the digital unit"
    )
    stored = (builder.store(value, "residual", 16) for value in inputs)
    return builder.add(node.name, op, *stored)


@LOWER.rule(Softmax)
def softmax(builder: Lowering, op: Softmax, node: Node, inputs: tuple[str, ...]) -> str:
    """Powers of what is below the row's largest number, times the reciprocal of their sum."""
    name, x = node.name, builder.store(inputs[0], "residual", 16)
    width, known = builder.extent(x), builder.types[x]
    lo, hi = widened_range(known)
    span = min(hi - lo, SOFTMAX_SPAN)
    power = fit_exp(-span, 0.0, EXP_TOLERANCE)
    inverse = fit_inverse(1.0, width, ROOT_TOLERANCE)
    builder.note(
        f"{builder.name}.{name}: softmax of {width} numbers: exp on [{-span:.4g}, 0] below the "
        f"largest as a polynomial of degree {len(power.coefficients) - 1}, worst error "
        f"{power.error:.1e}; 1/sum for sums in [1, {width}] by {inverse.steps} Newton steps, worst "
        f"relative error {inverse.error:.1e}"
    )
    below = builder.add(f"{name}.below", plus(1, -1), x, largest(builder, f"{name}.largest", x))
    u = normalised(builder, f"{name}.u", below, power.centre, power.half)
    raised = horner(builder, f"{name}.exp", u, power.coefficients)
    powers = builder.add(f"{name}.exp", Clip(scalar(0.0), scalar(1.0)), raised)
    total = builder.add(f"{name}.sum", Sum(), powers)
    limited_sum = builder.add(f"{name}.sum_limited", Clip(scalar(1.0), scalar(width)), total)
    y = builder.add(f"{name}.y0", plus(inverse.beta, offset=inverse.alpha), limited_sum)
    for step in range(1, inverse.steps + 1):
        product = builder.add(f"{name}.y{step}.xy", Mul(), limited_sum, y)
        correction = builder.add(f"{name}.y{step}.two_less", plus(-1, offset=2.0), product)
        y = builder.add(f"{name}.y{step}", Mul(), y, correction)
        y = builder.add(f"{name}.y{step}.kept", Clip(scalar(0.0), scalar(1.0)), y)
    return builder.add(name, Mul(), powers, builder.add(f"{name}.column", Axis(1), y))


@LOWER.rule(LeakyRelu)
def leaky_relu(builder: Lowering, op: LeakyRelu, node: Node, inputs: tuple[str, ...]) -> str:
    """The part above 0, and the part below times the slope."""
    name = node.name
    above = builder.add(f"{name}.above", Clip(scalar(0.0), scalar(np.inf)), *inputs)
    below = builder.add(f"{name}.below", Clip(scalar(-np.inf), scalar(0.0)), *inputs)
    return builder.add(name, plus(1, op.slope), above, below)


@LOWER.rule(L2Normalize)
def l2_normalize(builder: Lowering, op: L2Normalize, node: Node, inputs: tuple[str, ...]) -> str:
    """The rows times the reciprocal of their norm."""
    rows = builder.store(inputs[0], "residual", 16)
    root = _reciprocal_norm(builder, node.name, rows, "norm")
    return builder.add(node.name, Mul(), rows, root)


@LOWER.rule(LayerNorm)
def layer_norm(builder: Lowering, op: LayerNorm, node: Node, inputs: tuple[str, ...]) -> str:
    """The rows less their mean times the reciprocal of that norm, then gain and offset."""
    name, width = node.name, op.gamma.size
    rows = builder.store(inputs[0], "residual", 16)
    total = builder.add(f"{name}.total", Axis(1), builder.add(f"{name}.sum", Sum(), rows))
    centred = builder.add(f"{name}.centred", plus(1, -1 / width), rows, total)
    root = _reciprocal_norm(builder, name, centred, "norm of centred rows", width * op.eps)
    unit = builder.add(f"{name}.unit", Mul(), centred, root)
    return builder.add(name, Add((op.factor,), op.beta), unit)


@LOWER.rule(RmsNorm)
def rms_norm(builder: Lowering, op: RmsNorm, node: Node, inputs: tuple[str, ...]) -> str:
    """The rows times the reciprocal of that norm, then the gain."""
    rows = builder.store(inputs[0], "residual", 16)
    root = _reciprocal_norm(builder, node.name, rows, "norm", op.gamma.size * op.eps)
    unit = builder.add(f"{node.name}.unit", Mul(), rows, root)
    return builder.add(node.name, Add((op.factor,), scalar(0.0)), unit)


@contextmanager
def _of_layer(builder: Lowering, name: str) -> Iterator[None]:
    """Puts the layer before the sentence on rows for which there is no stand-in."""
    try:
        yield
    except RowsError as error:
        raise RowsError(f"{builder.name}.{name}: {error}") from None


def _reciprocal_norm(builder: Lowering, name: str, rows: str, what: str, added: float = 0.0) -> str:
    """Newton's iteration for `1 / sqrt(sum rows^2 + added)`, as a column [n, 1]."""
    seen = builder.calibration.squared_norms[name]
    lo, hi = widened_range(seen)
    lo = max(lo, float(seen.lo) / 2)
    with _of_layer(builder, name):
        fits = fit_inverse_root(lo, hi, ROOT_TOLERANCE)
    steps = " and ".join(str(fit.steps) for fit in fits)
    builder.note(
        f"{builder.name}.{name}: 1/{what} for norms in [{np.sqrt(lo):.4g}, {np.sqrt(hi):.4g}] "
        f"by {steps} Newton steps, worst relative error {max(fit.error for fit in fits):.1e}"
    )
    squares = builder.add(f"{name}.sq", Mul(), rows, rows)
    if added:
        spread = builder.add(f"{name}.spread", Sum(), squares)
        squared = builder.add(f"{name}.sum_squares", plus(1, offset=added), spread, seen=seen)
    else:
        squared = builder.add(f"{name}.sum_squares", Sum(), squares, seen=seen)
    roots = [_newton_root(builder, name, squared, fit) for fit in fits]
    if len(roots) > 1:
        both = builder.add(f"{name}.both", plus(1, 1, offset=-(fits[0].hi ** -0.5)), *roots)
        roots = [_bounded_root(builder, f"{name}.root", both, lo, hi)]
    return builder.add(f"{name}.column", Axis(1), roots[0])


def _newton_root(builder: Builder, name: str, squared: str, fit: NewtonIteration) -> str:
    """`1 / sqrt(x)` of x within the range of an iteration, and at its ends beyond."""
    lo, hi = fit.lo, fit.hi
    x = builder.add(f"{name}.x", Clip(scalar(lo), scalar(hi)), squared)
    y = builder.add(f"{name}.y0", plus(fit.beta, offset=fit.alpha), x)
    for step in range(1, fit.steps + 1):
        square = builder.add(f"{name}.y{step}.sq", Mul(), y, y)
        product = builder.add(f"{name}.y{step}.xy2", Mul(), x, square)
        correction = builder.add(f"{name}.y{step}.half", plus(-0.5, offset=1.5), product)
        y = builder.add(f"{name}.y{step}", Mul(), y, correction)
        if step < fit.steps:
            y = _bounded_root(builder, f"{name}.y{step}.kept", y, lo, hi)
    return _bounded_root(builder, f"{name}.root", y, lo, hi)


def _bounded_root(builder: Builder, name: str, y: str, lo: float, hi: float) -> str:
    """Clip to the values of 1/sqrt on [lo, hi], so that interval arithmetic stays tight."""
    return builder.add(name, Clip(scalar(0.5 * hi**-0.5), scalar(2.0 * lo**-0.5)), y)


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
    """Shift to variables in [-1, 1] in rational arithmetic, then Horner in both, or in ed alone."""
    domains = [_domain(builder, statistic) for statistic in node.inputs]
    variables = [
        normalised(builder, f"{statistic}_normal", value, *domain)
        for statistic, value, domain in zip(node.inputs, inputs, domains, strict=True)
    ]
    on_ed, on_vd = (*domains, (0.0, 1.0))[:2]
    table = shifted(op.polynomial, *on_ed, *on_vd)
    total = _bivariate(builder, node.name, table, variables[0], variables[-1])
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
    kept = [as_float(c) if abs(c) > negligible else 0.0 for c in row]
    while len(kept) > 1 and kept[-1] == 0:
        kept.pop()
    return tuple(kept)


def limited(
    builder: Builder, name: str, value: str, centre: float, half: float, whole: bool = False
) -> str:
    """`clip(value - centre, -half, half)`; with `whole` it may be anything that this leaves.

    Without, bounds follow from those of the value.
    """
    lo, hi = scalar(-half), scalar(half)
    moved = builder.add(f"{name}.moved", plus(1, offset=-centre), value)
    seen = Range(lo, hi) if whole else None
    return builder.add(f"{name}.limited", Clip(lo, hi), moved, seen=seen)


def normalised(builder: Builder, name: str, value: str, centre: float, half: float) -> str:
    """`clip((value - centre) / half, -1, 1)`, stored for Horner."""
    inside = limited(builder, name, value, centre, half)
    scaled = builder.add(f"{name}.scaled", plus(1 / half), inside)
    return builder.add(name, Store("normal", NORMAL_BITS), scaled)


def horner(builder: Builder, name: str, u: str, coefficients: tuple[float, ...]) -> str:
    """`sum coefficients[i] u^i`, from the highest power down."""
    *lower_powers, top = coefficients
    value = builder.add(f"{name}.p{len(lower_powers)}", plus(top, offset=lower_powers[-1]), u)
    for i, c in reversed(list(enumerate(lower_powers[:-1]))):
        product = builder.add(f"{name}.p{i}u", Mul(), value, u)
        value = builder.add(f"{name}.p{i}", plus(1, offset=c), product)
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
