"""Lowering of projectors: layers, curves and normalisations."""

from __future__ import annotations

import numpy as np

from cimtool.ir.arithmetic import Add, Axis, Clip, MatMul, Mul, Mvm, Store, Sum, plus, scalar
from cimtool.ir.backends import LOWER
from cimtool.ir.program import Builder, Node, keep
from cimtool.ir.source import Exp, L2Normalize, LayerNorm, LeakyRelu, Sigmoid, Tanh
from cimtool.passes.approximate import fit_exp, fit_inverse_root, fit_tanh
from cimtool.passes.lowering import Lowering, horner, normalised, widened_range

EXP_TOLERANCE = 2.0**-17
"""Error of exp relative to its largest value: half a step of a 16-bit variance."""

TANH_TOLERANCE = 2.0**-14
"""Error of tanh and sigmoid: a 64th of half a step of a signed 8-bit activation."""

ROOT_TOLERANCE = 2.0**-18
"""Relative error of the reciprocal norm, below a step of a 16-bit mean."""

LOWER.rule(MatMul, Mul, Add, Sum, Clip, Axis, Store)(keep)


@LOWER.rule(Mvm)
def mvm(builder: Lowering, op: Mvm, node: Node, inputs: tuple[str, ...]) -> str:
    """Store an activation in the bits of the layer that reads it."""
    if node.inputs[0] != "x":
        bits = builder.settings.of_layer(f"{builder.name}.{node.name}").activation_bits
        inputs = (builder.store(inputs[0], "activation", bits),)
    return keep(builder, op, node, inputs)


@LOWER.rule(Exp)
def exp(builder: Lowering, op: Exp, node: Node, inputs: tuple[str, ...]) -> str:
    """Horner of a near-minimax polynomial on the calibrated range of the log-variance."""
    known = builder.types[inputs[0]]
    fit = fit_exp(float(known.lo.min()), float(known.hi.max()), EXP_TOLERANCE)
    builder.note(
        f"{builder.name}.{node.name}: exp on [{fit.centre - fit.half:.4g}, "
        f"{fit.centre + fit.half:.4g}] as a polynomial of degree "
        f"{len(fit.coefficients) - 1}, worst error {fit.error:.1e} of its maximum"
    )
    u = normalised(builder, f"{node.name}.u", inputs[0], fit.centre, fit.half)
    last = horner(builder, node.name, u, fit.coefficients)
    return builder.add(node.name, Clip(scalar(0.0), scalar(np.inf)), last)


@LOWER.rule(Tanh)
def tanh(builder: Lowering, op: Tanh, node: Node, inputs: tuple[str, ...]) -> str:
    """Horner of a near-minimax polynomial of |x| on the widened calibrated range, times x."""
    return _curve(builder, node, inputs[0], 1.0)


@LOWER.rule(Sigmoid)
def sigmoid(builder: Lowering, op: Sigmoid, node: Node, inputs: tuple[str, ...]) -> str:
    """`(1 + tanh(x / 2)) / 2`."""
    return _curve(builder, node, inputs[0], 0.5)


def _curve(builder: Lowering, node: Node, x: str, gain: float) -> str:
    """`gain tanh(gain x) + 1 - gain`: tanh at gain 1, sigmoid at a half."""
    name = node.name
    top = max(abs(end) for end in widened_range(builder.types[x]))
    fit = fit_tanh(gain * top, TANH_TOLERANCE / gain)
    limit = fit.limit / gain
    builder.note(
        f"{builder.name}.{name}: {node.op.name} on [{-limit:.4g}, {limit:.4g}] as a polynomial "
        f"of degree {len(fit.coefficients)}, worst error {gain * fit.error:.1e}"
    )
    u = normalised(builder, f"{name}.u", x, 0.0, limit)
    above = builder.add(f"{name}.above", Clip(scalar(0.0), scalar(1.0)), u)
    size = builder.add(f"{name}.size", plus(4, -2, offset=-1), above, u)
    v = builder.add(f"{name}.v", Clip(scalar(-1.0), scalar(1.0)), size)
    slope = horner(builder, name, v, tuple(gain * c for c in fit.coefficients))
    odd = builder.add(f"{name}.odd", Mul(), u, slope)
    moved = builder.add(f"{name}.moved", plus(1, offset=1 - gain), odd)
    return builder.add(name, Clip(scalar(1 - 2 * gain), scalar(1.0)), moved)


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


def _reciprocal_norm(builder: Lowering, name: str, rows: str, what: str, added: float = 0.0) -> str:
    """Newton's iteration for `1 / sqrt(sum rows^2 + added)`, as a column [n, 1]."""
    seen = builder.calibration.squared_norms[name]
    lo, hi = widened_range(seen)
    lo = max(lo, float(seen.lo) / 2)
    fit = fit_inverse_root(lo, hi, ROOT_TOLERANCE)
    builder.note(
        f"{builder.name}.{name}: 1/{what} for norms in [{np.sqrt(lo):.4g}, {np.sqrt(hi):.4g}] "
        f"by {fit.steps} Newton steps, worst relative error {fit.error:.1e}"
    )
    squares = builder.add(f"{name}.sq", Mul(), rows, rows)
    if added:
        spread = builder.add(f"{name}.spread", Sum(), squares)
        squared = builder.add(f"{name}.energy", plus(1, offset=added), spread, seen=seen)
    else:
        squared = builder.add(f"{name}.energy", Sum(), squares, seen=seen)
    x = builder.add(f"{name}.x", Clip(scalar(lo), scalar(hi)), squared)
    y = builder.add(f"{name}.y0", plus(fit.beta, offset=fit.alpha), x)
    for step in range(1, fit.steps + 1):
        square = builder.add(f"{name}.y{step}.sq", Mul(), y, y)
        product = builder.add(f"{name}.y{step}.xy2", Mul(), x, square)
        correction = builder.add(f"{name}.y{step}.half", plus(-0.5, offset=1.5), product)
        y = builder.add(f"{name}.y{step}", Mul(), y, correction)
        if step < fit.steps:
            y = _bounded_root(builder, f"{name}.y{step}.kept", y, lo, hi)
    root = _bounded_root(builder, f"{name}.root", y, lo, hi)
    return builder.add(f"{name}.column", Axis(1), root)


def _bounded_root(builder: Builder, name: str, y: str, lo: float, hi: float) -> str:
    """Clip to the values of 1/sqrt on [lo, hi], so that interval arithmetic stays tight."""
    return builder.add(name, Clip(scalar(0.5 * hi**-0.5), scalar(2.0 * lo**-0.5)), y)
