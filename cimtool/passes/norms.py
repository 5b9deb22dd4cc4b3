"""The rules of `lower` for norms of rows: Newton's iteration for the reciprocal of a root."""

from __future__ import annotations

import numpy as np

from cimtool.ir.arithmetic import Add, Axis, Clip, Mul, Sum, plus, scalar
from cimtool.ir.backends import LOWER
from cimtool.ir.program import Builder, Node
from cimtool.ir.source import L2Normalize, LayerNorm, RmsNorm, Sqrt
from cimtool.passes.approximate import NewtonIteration, fit_inverse_root
from cimtool.passes.curves import widened_range
from cimtool.passes.lowering import ROOT_TOLERANCE, Lowering, of_layer

WIDEST_SQUARES = 2.0**12
"""The most by which numbers may differ for their roots to be within the relative error."""


@LOWER.rule(L2Normalize)
def l2_normalize(builder: Lowering, op: L2Normalize, node: Node, inputs: tuple[str, ...]) -> str:
    """The rows times the reciprocal of their norm."""
    rows = builder.store(inputs[0], "residual", 16)
    root = _reciprocal_norm(builder, node.name, rows, "norm", least=op.least)
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


def _reciprocal_norm(
    builder: Lowering, name: str, rows: str, what: str, added: float = 0.0, least: float = 0.0
) -> str:
    """Newton's iteration for `1 / max(sqrt(sum rows^2 + added), least)`, as a column [n, 1]."""
    seen = builder.calibration.squared_norms[name]
    lo, hi = widened_range(seen)
    # Smaller sums are limited to the lowest: to the square of `least` exactly, where it is there.
    lo = max(lo, float(seen.lo) / 2, least**2)
    with of_layer(builder, name):
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
    return builder.add(f"{name}.column", Axis(1), _inverse_root(builder, name, squared, fits))


@LOWER.rule(Sqrt)
def square_root(builder: Lowering, op: Sqrt, node: Node, inputs: tuple[str, ...]) -> str:
    """`x / sqrt(x)`; below a share of the largest number the divisor is the root of that share."""
    name, x = node.name, builder.store(inputs[0], "residual", 16)
    seen = builder.types[x]
    lo, hi = widened_range(seen)
    lo = max(lo, float(seen.lo.min()) / 2, hi / WIDEST_SQUARES)
    fits = fit_inverse_root(lo, hi, ROOT_TOLERANCE)
    builder.note(
        f"{builder.name}.{name}: sqrt on [{lo:.4g}, {hi:.4g}] by "
        f"{' and '.join(str(fit.steps) for fit in fits)} Newton steps, worst relative error "
        f"{max(fit.error for fit in fits):.1e}; below, worst error {np.sqrt(lo) / 4:.1e}"
    )
    limited = builder.add(f"{name}.limited", Clip(scalar(0.0), scalar(hi)), x)
    return builder.add(name, Mul(), limited, _inverse_root(builder, name, limited, fits))


def _inverse_root(builder: Builder, name: str, x: str, fits: tuple[NewtonIteration, ...]) -> str:
    """`1 / sqrt(x)` by one iteration, or by two that meet."""
    roots = [_newton_root(builder, name, x, fit) for fit in fits]
    if len(roots) == 1:
        return roots[0]
    both = builder.add(f"{name}.both", plus(1, 1, offset=-(fits[0].hi ** -0.5)), *roots)
    return _bounded_root(builder, f"{name}.root", both, fits[0].lo, fits[-1].hi)


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
