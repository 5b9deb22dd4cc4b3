"""Lower: everything becomes multiply, add and clip; each stand-in says its worst error.

`Store` marks where a value is kept in memory, which is where `quantize` may round.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cimtool.ir.arithmetic import Add, Axis, Clip, Mul, Mvm, Store, Sum, scalar
from cimtool.ir.calibration import Range
from cimtool.ir.integer import Requant
from cimtool.ir.op import Level
from cimtool.ir.program import Builder, Graph, Node, Program, Rule, keep, rewrite, score_inputs
from cimtool.ir.scores import CosineScore, DistanceScore
from cimtool.ir.source import (
    Exp,
    L2Normalize,
    LayerNorm,
    LeakyRelu,
    PolynomialScore,
    Sigmoid,
    Tanh,
)
from cimtool.ir.types import Type
from cimtool.passes.approximate import fit_exp, fit_inverse_root, fit_tanh
from cimtool.passes.step import Job, Pass
from cimtool.reference.surrogate import shifted

EXP_TOLERANCE = 2.0**-17
"""Error of exp relative to its largest value: half a step of a 16-bit variance."""

TANH_TOLERANCE = 2.0**-14
"""Error of tanh and sigmoid: a 64th of half a step of a signed 8-bit activation."""

ROOT_TOLERANCE = 2.0**-18
"""Relative error of the reciprocal norm, below a step of a 16-bit mean."""

DOMAIN_MARGIN = 0.25
"""How far ed, vd and row norms may leave their calibrated range, as a share of its span."""


def lower(program: Program, job: Job) -> Program:
    """Return the program in MAC-only operations, with the domain of (ed, vd) fixed."""
    text, video = (_lower_graph(graph, job) for graph in (program.text, program.video))
    score = rewrite(program.score, lambda node: _score_rule(node, job), score_inputs(text, video))
    return Program(text, video, score)


def _lower_graph(graph: Graph, job: Job) -> Graph:
    bits = _input_bits(graph, job)
    return rewrite(graph, _Projector(job, bits).rule)


def _input_bits(graph: Graph, job: Job) -> dict[str, int]:
    """Bits of each layer's input, by the layer's node name."""
    bits = {}
    for node in graph.nodes:
        if isinstance(node.op, Mvm):
            own = job.settings.of_layer(graph.layer(node))
            bits[node.name] = own.input_bits if node.inputs[0] == "x" else own.activation_bits
    return bits


@dataclass(frozen=True)
class _Projector:
    """The rules for one projector."""

    job: Job
    bits: dict[str, int]

    def rule(self, node: Node) -> Rule:
        """Pick the rule for a node of a folded projector."""
        rules: dict[type, Rule] = {
            Exp: self.exp,
            Tanh: self.tanh,
            Sigmoid: self.sigmoid,
            LeakyRelu: self.leaky_relu,
            L2Normalize: self.l2_normalize,
            LayerNorm: self.layer_norm,
        }
        if isinstance(node.op, Mvm):
            return self.mvm
        return self.on_stored_input(rules.get(type(node.op), keep))

    def on_stored_input(self, rule: Rule) -> Rule:
        """The rule, for inputs among which the graph's own is stored first."""
        bits = self.job.settings.input_bits

        def stored(builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
            own = (store(builder, i, "input", bits) if i == "x" else i for i in inputs)
            return rule(builder, node, tuple(own))

        return stored

    def mvm(self, builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        """Store the input of a layer in that layer's bits."""
        role = "input" if inputs[0] == "x" else "activation"
        return keep(builder, node, (store(builder, inputs[0], role, self.bits[node.name]),))

    def exp(self, builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        """Horner of a near-minimax polynomial on the calibrated range of the log-variance."""
        known = builder.types[inputs[0]]
        fit = fit_exp(float(known.lo.min()), float(known.hi.max()), EXP_TOLERANCE)
        self.job.note(
            f"{builder.name}.{node.name}: exp on [{fit.centre - fit.half:.4g}, "
            f"{fit.centre + fit.half:.4g}] as a polynomial of degree "
            f"{len(fit.coefficients) - 1}, worst error {fit.error:.1e} of its maximum"
        )
        u = normalised(builder, f"{node.name}.u", inputs[0], fit.centre, fit.half)
        last = horner(builder, node.name, u, fit.coefficients)
        return builder.add(node.name, Clip(scalar(0.0), scalar(np.inf)), last)

    def tanh(self, builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        """Horner of a near-minimax polynomial of |x| on the widened calibrated range, times x."""
        return self._curve(builder, node, inputs[0], 1.0)

    def sigmoid(self, builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        """`(1 + tanh(x / 2)) / 2`."""
        return self._curve(builder, node, inputs[0], 0.5)

    def _curve(self, builder: Builder, node: Node, x: str, gain: float) -> str:
        """`gain tanh(gain x) + 1 - gain`: tanh at gain 1, sigmoid at a half."""
        name = node.name
        top = max(abs(end) for end in widened(builder.types[x]))
        fit = fit_tanh(gain * top, TANH_TOLERANCE / gain)
        limit = fit.limit / gain
        self.job.note(
            f"{builder.name}.{name}: {node.op.name} on [{-limit:.4g}, {limit:.4g}] as a polynomial "
            f"of degree {len(fit.coefficients)}, worst error {gain * fit.error:.1e}"
        )
        u = normalised(builder, f"{name}.u", x, 0.0, limit)
        above = builder.add(f"{name}.above", Clip(scalar(0.0), scalar(1.0)), u)
        size = builder.add(f"{name}.size", Add((scalar(4.0), scalar(-2.0)), scalar(-1.0)), above, u)
        v = builder.add(f"{name}.v", Clip(scalar(-1.0), scalar(1.0)), size)
        slope = horner(builder, name, v, tuple(gain * c for c in fit.coefficients))
        odd = builder.add(f"{name}.odd", Mul(), u, slope)
        moved = builder.add(f"{name}.moved", plus_offset(1, 1 - gain), odd)
        return builder.add(name, Clip(scalar(1 - 2 * gain), scalar(1.0)), moved)

    def leaky_relu(self, builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        """What is above 0, and what is below times the slope."""
        op, name = node.op, node.name
        assert isinstance(op, LeakyRelu)
        above = builder.add(f"{name}.above", Clip(scalar(0.0), scalar(np.inf)), *inputs)
        below = builder.add(f"{name}.below", Clip(scalar(-np.inf), scalar(0.0)), *inputs)
        return builder.add(name, Add((scalar(1.0), scalar(op.slope)), scalar(0.0)), above, below)

    def l2_normalize(self, builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        """The rows times the reciprocal of their norm."""
        rows = store(builder, inputs[0], "residual", 16)
        root = self._reciprocal_norm(builder, node.name, rows, "norm")
        return builder.add(node.name, Mul(), rows, root)

    def layer_norm(self, builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        """The rows less their mean times the reciprocal of that norm, then gain and offset."""
        op, name = node.op, node.name
        assert isinstance(op, LayerNorm)
        width = op.gamma.size
        rows = store(builder, inputs[0], "residual", 16)
        total = builder.add(f"{name}.total", Axis(1), builder.add(f"{name}.sum", Sum(), rows))
        less_mean = Add((scalar(1.0), scalar(-1 / width)), scalar(0.0))
        centred = builder.add(f"{name}.centred", less_mean, rows, total)
        root = self._reciprocal_norm(builder, name, centred, "norm of centred rows", width * op.eps)
        unit = builder.add(f"{name}.unit", Mul(), centred, root)
        return builder.add(name, Add((op.factor,), op.beta), unit)

    def _reciprocal_norm(
        self, builder: Builder, name: str, rows: str, what: str, added: float = 0.0
    ) -> str:
        """Newton's iteration for `1 / sqrt(sum rows^2 + added)`, as a column [n, 1]."""
        seen = builder.calibration.squared_norms[name]
        lo, hi = widened(seen)
        lo = max(lo, float(seen.lo) / 2)
        fit = fit_inverse_root(lo, hi, ROOT_TOLERANCE)
        self.job.note(
            f"{builder.name}.{name}: 1/{what} for norms in [{np.sqrt(lo):.4g}, {np.sqrt(hi):.4g}] "
            f"by {fit.steps} Newton steps, worst relative error {fit.error:.1e}"
        )
        squares = builder.add(f"{name}.sq", Mul(), rows, rows)
        if added:
            spread = builder.add(f"{name}.spread", Sum(), squares)
            squared = builder.add(f"{name}.energy", plus_offset(1, added), spread, seen=seen)
        else:
            squared = builder.add(f"{name}.energy", Sum(), squares, seen=seen)
        x = builder.add(f"{name}.x", Clip(scalar(lo), scalar(hi)), squared)
        y = builder.add(f"{name}.y0", Add((scalar(fit.beta),), scalar(fit.alpha)), x)
        for step in range(1, fit.steps + 1):
            square = builder.add(f"{name}.y{step}.sq", Mul(), y, y)
            product = builder.add(f"{name}.y{step}.xy2", Mul(), x, square)
            correction = builder.add(
                f"{name}.y{step}.half", Add((scalar(-0.5),), scalar(1.5)), product
            )
            y = builder.add(f"{name}.y{step}", Mul(), y, correction)
            if step < fit.steps:
                y = _bounded_root(builder, f"{name}.y{step}.kept", y, lo, hi)
        root = _bounded_root(builder, f"{name}.root", y, lo, hi)
        return builder.add(f"{name}.column", Axis(1), root)


def _bounded_root(builder: Builder, name: str, y: str, lo: float, hi: float) -> str:
    """Clip to what 1/sqrt can be on [lo, hi], so that interval arithmetic stays tight."""
    return builder.add(name, Clip(scalar(0.5 * hi**-0.5), scalar(2.0 * lo**-0.5)), y)


def store(builder: Builder, value: str, role: str, bits: int) -> str:
    """Mark a value as stored for `role` in so many bits, once for all uses alike."""
    op = Store(role, bits)
    for node in builder.by_name.values():
        if node.inputs == (value,) and isinstance(node.op, Store) and node.op.same(op):
            return node.name
    return builder.add(f"{value}.stored", op, value)


def normalised(builder: Builder, name: str, value: str, centre: float, half: float) -> str:
    """`clip((value - centre) / half, -1, 1)`, stored for Horner."""
    moved = builder.add(f"{name}.moved", Add((scalar(1.0),), scalar(-centre)), value)
    limited = builder.add(f"{name}.limited", Clip(scalar(-half), scalar(half)), moved)
    scaled = builder.add(f"{name}.scaled", Add((scalar(1 / half),), scalar(0.0)), limited)
    return builder.add(name, Store("normal", NORMAL_BITS), scaled)


def limited(builder: Builder, name: str, value: str, centre: float, half: float) -> str:
    """`clip(value - centre, -half, half)`, whose whole range counts, not the calibrated alone."""
    ends = scalar(-half), scalar(half)
    moved = builder.add(f"{name}.moved", Add((scalar(1.0),), scalar(-centre)), value)
    return builder.add(f"{name}.limited", Clip(*ends), moved, seen=Range(*ends))


@dataclass(frozen=True)
class Limit:
    """Where a value of the score saturates: its domain is `lo` to `hi` from `centre`.

    All three are in units of the value `moved`, which is the value less the centre; `unit` is that
    unit's real value.
    """

    moved: str
    centre: float
    lo: float
    hi: float
    unit: float


def limit_of(score: Graph, value: str) -> Limit | None:
    """The limit that `lower` put on a value, at any later stage; None where no score reads it."""
    shift: Add | None = None
    for node in score.nodes:
        if node.inputs != (value,):
            continue
        match node.op:
            case Clip() as clip if shift is not None:
                scale = score.types[value].scale
                unit = 1.0 if scale is None else float(scale)
                return Limit(value, -float(shift.offset), float(clip.lo), float(clip.hi), unit)
            case Add() as shift:
                value = node.name
            case Requant() if shift is None:
                value = node.name
    return None


NORMAL_BITS = 21
"""Bits of a normalised variable: [-1, 1] in steps of 2^-20."""

NEGLIGIBLE_BITS = 60
"""A coefficient so many bits below the sum of all, in variables in [-1, 1], is taken as zero."""

COSINE_LIMIT = 2.0
"""Above any product of two unit rows that are rounded, and so longer than 1."""

LOGIT_BITS = 24
"""Bits of the logit: an integer below 2^24 is exact in float32."""


def horner(builder: Builder, name: str, u: str, coefficients: tuple[float, ...]) -> str:
    """`sum coefficients[i] u^i`, from the highest power down."""
    *lower_powers, top = coefficients
    value = builder.add(
        f"{name}.p{len(lower_powers)}", Add((scalar(top),), scalar(lower_powers[-1])), u
    )
    for i, c in reversed(list(enumerate(lower_powers[:-1]))):
        product = builder.add(f"{name}.p{i}u", Mul(), value, u)
        value = builder.add(f"{name}.p{i}", Add((scalar(1.0),), scalar(c)), product)
    return value


def widened(seen: Range | Type) -> tuple[float, float]:
    """A calibrated range with a quarter of its span added on each side."""
    lo, hi = float(seen.lo.min()), float(seen.hi.max())
    margin = DOMAIN_MARGIN * (hi - lo) or 2.0**-10 * max(abs(hi), 1.0)
    return lo - margin, hi + margin


def _score_rule(node: Node, job: Job) -> Rule:
    rules: dict[type, Rule] = {
        PolynomialScore: lambda builder, node, inputs: _polynomial(builder, node, inputs, job),
        DistanceScore: lambda builder, node, inputs: _distance(builder, node, inputs, job),
        CosineScore: _cosine,
    }
    return rules.get(type(node.op), keep)


def _domain(builder: Builder, statistic: str, job: Job) -> tuple[float, float]:
    """Centre and half the width of a statistic's domain: its calibrated range, widened."""
    lo, hi = widened(builder.ranges[statistic])
    job.note(f"score: {statistic} in [{lo:.6g}, {hi:.6g}], saturated outside")
    return (lo + hi) / 2, (hi - lo) / 2


def _distance(builder: Builder, node: Node, inputs: tuple[str, ...], job: Job) -> str:
    """Limit ed to its domain, about whose middle it keeps all its bits, then scale it."""
    op, (statistic,), (ed,) = node.op, node.inputs, inputs
    assert isinstance(op, DistanceScore)
    centre, half = _domain(builder, statistic, job)
    value = limited(builder, f"{statistic}_normal", ed, centre, half)
    scaled = Add((scalar(op.factor),), scalar(op.offset + op.factor * centre))
    return _stored_logit(builder, builder.add(node.name, scaled, value))


def _cosine(builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
    """Keep the products of unit rows, which with the rounding of both are below COSINE_LIMIT."""
    (product,) = inputs
    return _stored_logit(builder, limited(builder, "cosine_normal", product, 0.0, COSINE_LIMIT))


def _stored_logit(builder: Builder, value: str) -> str:
    return builder.add("logit.stored", Store("logit", LOGIT_BITS), value)


def _polynomial(builder: Builder, node: Node, inputs: tuple[str, ...], job: Job) -> str:
    """Shift to variables in [-1, 1] in rational arithmetic, then Horner in both."""
    op = node.op
    assert isinstance(op, PolynomialScore)
    domains = [_domain(builder, statistic, job) for statistic in node.inputs]
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
            product = builder.add(f"{name}.u{i}", Add((scalar(constant),), scalar(0.0)), u)
        if len(row) > 1:
            inner = horner(builder, f"{name}.v{i}", v, row)
            terms = (product, inner) if product else (inner,)
            value = builder.add(f"{name}.s{i}", plus_offset(len(terms), 0.0), *terms)
        elif product:
            value = builder.add(f"{name}.s{i}", plus_offset(1, row[0]), product)
        else:
            constant = row[0]
    if value is None:
        return builder.add(f"{name}.constant", Add((scalar(0.0),), scalar(constant)), u)
    return value


def plus_offset(terms: int, offset: float) -> Add:
    """The operation `x_1 + .. + x_terms + offset`."""
    return Add((scalar(1.0),) * terms, scalar(offset))


def _trimmed(row: list[Fraction], negligible: Fraction) -> tuple[float, ...]:
    """The coefficients as floats, negligible ones as zero and not at the end."""
    kept = [float(c) if abs(c) > negligible else 0.0 for c in row]
    while len(kept) > 1 and kept[-1] == 0:
        kept.pop()
    return tuple(kept)


LOWER = Pass("lowered", "lowering to multiply-accumulates", lower, Level.MAC)
