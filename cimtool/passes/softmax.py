"""The rule of `lower` for a softmax, as of attention, and for its masks."""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import RowsError, naming
from cimtool.ir.arithmetic import Arrange, Axis, Clip, Mul, Sum, plus, scalar
from cimtool.ir.backends import LOWER
from cimtool.ir.largest import largest
from cimtool.ir.program import Node
from cimtool.ir.source import NO_WEIGHT, Softmax, counted_places
from cimtool.ir.types import rows_of_item
from cimtool.passes.approximate import fit_exp, fit_inverse
from cimtool.passes.curves import widened_range
from cimtool.passes.lowering import EXP_TOLERANCE, ROOT_TOLERANCE, Lowering, horner, normalised

SOFTMAX_SPAN = 16.0
"""Numbers as far below a row's largest have the same power as those at this distance, 1e-7."""


@LOWER.rule(Softmax)
def softmax(builder: Lowering, op: Softmax, node: Node, inputs: tuple[str, ...]) -> str:
    """Powers of what is below the row's largest number, times the reciprocal of their sum."""
    name, x = node.name, builder.store(inputs[0], "residual", 16)
    width, known = builder.extent(x), builder.types[x]
    lo, hi = widened_range(known)
    most, numbers = width, f"{width} numbers"
    if op.mask is not None:
        _require_below(builder, op.mask, name, hi - lo)
        counts = op.counted.sum(axis=1)
        most, numbers = int(counts.max()), f"{counts.min()} to {counts.max()} of {width} numbers"
        rows, _ = rows_of_item(known.shape[0])
        counted = np.tile(op.counted, (rows // op.rows, 1))
        x = builder.add(f"{name}.counted", Arrange(rows, counted_places(counted)), x)
    span = min(hi - lo, SOFTMAX_SPAN)
    power = fit_exp(-span, 0.0, EXP_TOLERANCE)
    with naming(f"{builder.name}.{name}"):
        inverse = fit_inverse(1.0, most, ROOT_TOLERANCE)
    builder.note(
        f"{builder.name}.{name}: softmax of {numbers}: exp on [{-span:.4g}, 0] below the "
        f"largest as a polynomial of degree {len(power.coefficients) - 1}, worst error "
        f"{power.error:.1e}; 1/sum for sums in [1, {most}] by {inverse.steps} Newton steps, worst "
        f"relative error {inverse.error:.1e}"
    )
    below = builder.add(f"{name}.below", plus(1, -1), x, largest(builder, f"{name}.largest", x))
    u = normalised(builder, f"{name}.u", below, power.centre, power.half)
    raised = horner(builder, f"{name}.exp", u, power.coefficients)
    powers = _powers(builder, f"{name}.exp", raised, op)
    total = builder.add(f"{name}.sum", Sum(), powers)
    limited_sum = builder.add(f"{name}.sum_limited", Clip(scalar(1.0), scalar(most)), total)
    y = builder.add(f"{name}.y0", plus(inverse.beta, offset=inverse.alpha), limited_sum)
    for step in range(1, inverse.steps + 1):
        product = builder.add(f"{name}.y{step}.xy", Mul(), limited_sum, y)
        correction = builder.add(f"{name}.y{step}.two_less", plus(-1, offset=2.0), product)
        y = builder.add(f"{name}.y{step}", Mul(), y, correction)
        y = builder.add(f"{name}.y{step}.kept", Clip(scalar(0.0), scalar(1.0)), y)
    return builder.add(name, Mul(), powers, builder.add(f"{name}.column", Axis(1), y))


def _require_below(builder: Lowering, mask: Array, name: str, spread: float) -> None:
    """Raise RowsError unless masked numbers have weight 0 however numbers of a row differ."""
    highest = float(mask.max(where=mask < 0, initial=-np.inf))
    if highest > NO_WEIGHT - spread:
        raise RowsError(
            f"{builder.name}.{name}: its mask adds {highest:g} to numbers that differ by up to "
            f"{spread:.4g} on these rows; expected {NO_WEIGHT - spread:.4g} or less, or -inf"
        )


def _powers(builder: Lowering, name: str, raised: str, op: Softmax) -> str:
    """Powers from 0 to 1, and 0 of numbers that do not count."""
    if op.mask is None:
        return builder.add(name, Clip(scalar(0.0), scalar(1.0)), raised)
    (rows, _), width = rows_of_item(builder.types[raised].shape[0]), builder.extent(raised)
    places = np.arange(rows * width)
    limits = np.tile(op.counted.astype(np.float64), (rows // op.rows, 1))
    if op.rows == 1:
        return builder.add(name, Clip(scalar(0.0), limits[0]), raised)
    item = builder.add(f"{name}.item", Arrange(rows, places[None]), raised)
    kept = builder.add(f"{name}.item_kept", Clip(scalar(0.0), limits.reshape(-1)), item)
    return builder.add(name, Arrange(1, places.reshape(rows, width)), kept)
