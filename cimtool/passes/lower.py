"""Lower: everything becomes multiply, add and clip; each stand-in says its worst error.

`Store` marks where a value is kept in memory, which is where `quantize` may round.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cimtool.ir.arithmetic import Add, Axis, Clip, MatMul, Mul, Mvm, Store, Sum, scalar
from cimtool.ir.program import (
    Builder,
    Graph,
    Node,
    Program,
    Range,
    Rule,
    keep,
    rewrite,
    score_inputs,
)
from cimtool.ir.source import Exp, L2Normalize, PolynomialScore
from cimtool.passes.approximate import fit_exp, fit_inverse_root
from cimtool.passes.calibrate import norm_energy
from cimtool.passes.step import Job, Pass
from cimtool.reference.surrogate import shifted

MAC_OPS = frozenset({Mvm, MatMul, Mul, Add, Sum, Clip, Axis, Store})

EXP_TOLERANCE = 2.0**-17
"""Error of exp relative to its largest value: half a step of a 16-bit variance."""

ROOT_TOLERANCE = 2.0**-18
"""Relative error of the reciprocal norm, below a step of a 16-bit mean."""

DOMAIN_MARGIN = 0.25
"""How far ed, vd and row norms may leave their calibrated range, as a share of its span."""


def lower(program: Program, job: Job) -> Program:
    """Return the program in MAC-only operations, with the domain of (ed, vd) fixed."""
    text, video = (_lower_graph(graph, job) for graph in (program.text, program.video))
    inputs = {**program.score.inputs, **score_inputs(text, video)}
    score = rewrite(program.score, lambda node: _score_rule(node, job), inputs)
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
        if isinstance(node.op, Mvm):
            return self.mvm
        if isinstance(node.op, Exp):
            return self.exp
        if isinstance(node.op, L2Normalize):
            return self.l2_normalize
        return self.stored_input

    def stored_input(self, builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        """Keep the node; the graph's input is stored before any use."""
        bits = self.job.settings.input_bits
        stored = tuple(store(builder, i, "input", bits) if i == "x" else i for i in inputs)
        return keep(builder, node, stored)

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

    def l2_normalize(self, builder: Builder, node: Node, inputs: tuple[str, ...]) -> str:
        """Newton's iteration for the reciprocal of the row norm."""
        name = node.name
        seen = builder.ranges[norm_energy(name)]
        lo, hi = widened(seen)
        lo = max(lo, float(seen.lo) / 2)
        fit = fit_inverse_root(lo, hi, ROOT_TOLERANCE)
        self.job.note(
            f"{builder.name}.{name}: 1/norm for norms in [{np.sqrt(lo):.4g}, {np.sqrt(hi):.4g}] by "
            f"{fit.steps} Newton steps, worst relative error {fit.error:.1e}"
        )
        rows = store(builder, inputs[0], "residual", 16)
        energy = builder.add(f"{name}.energy", Sum(), builder.add(f"{name}.sq", Mul(), rows, rows))
        x = builder.add(f"{name}.x", Clip(scalar(lo), scalar(hi)), energy)
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
        return builder.add(name, Mul(), rows, builder.add(f"{name}.column", Axis(1), root))


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


NORMAL_BITS = 21
"""Bits of a normalised variable: [-1, 1] in steps of 2^-20."""

NEGLIGIBLE_BITS = 60
"""A coefficient so many bits below the sum of all, in variables in [-1, 1], is taken as zero."""

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


def widened(seen: Range) -> tuple[float, float]:
    """A calibrated range with a quarter of its span added on each side."""
    lo, hi = float(seen.lo.min()), float(seen.hi.max())
    margin = DOMAIN_MARGIN * (hi - lo) or 2.0**-10 * max(abs(hi), 1.0)
    return lo - margin, hi + margin


def _score_rule(node: Node, job: Job) -> Rule:
    if isinstance(node.op, PolynomialScore):
        return lambda builder, node, inputs: _polynomial(builder, node, inputs, job)
    return keep


def _polynomial(builder: Builder, node: Node, inputs: tuple[str, ...], job: Job) -> str:
    """Shift to variables in [-1, 1] in rational arithmetic, then Horner in both."""
    op = node.op
    assert isinstance(op, PolynomialScore)
    centres, halves, variables = [], [], []
    for name, value in zip(("ed", "vd"), inputs, strict=True):
        lo, hi = widened(builder.ranges[name])
        centre, half = (lo + hi) / 2, (hi - lo) / 2
        job.note(f"score: {name} in [{lo:.6g}, {hi:.6g}], saturated outside")
        centres.append(centre)
        halves.append(half)
        variables.append((value, centre, half))
    table = shifted(op.polynomial, centres[0], halves[0], centres[1], halves[1])
    u, v = (
        normalised(builder, f"{name}_normal", *variable)
        for name, variable in zip(("ed", "vd"), variables, strict=True)
    )
    total = _bivariate(builder, node.name, table, u, v)
    stored = builder.add("logit.stored", Store("logit", LOGIT_BITS), total)
    return stored


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


LOWER = Pass("lowered", "lowering to multiply-accumulates", lower, MAC_OPS)
