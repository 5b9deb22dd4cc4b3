"""Parts of the pass `lower`: its builder, Horner's scheme, and the rules for operations on rows.

Norms of rows are divided by with Newton's iteration for the reciprocal of a root. Softmax takes the
exponential by a polynomial. Rows are sorted by a network of comparisons.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import RowsError, naming
from cimtool.ir.arithmetic import (
    Add,
    Arrange,
    Axis,
    Clip,
    Mul,
    Store,
    Sum,
    plus,
    scalar,
)
from cimtool.ir.backends import LOWER
from cimtool.ir.program import Builder, Graph, Node, Range, largest
from cimtool.ir.quantized import QuantizedStore
from cimtool.ir.source import (
    NO_WEIGHT,
    InverseRoot,
    L2Normalize,
    LayerNorm,
    RmsNorm,
    Softmax,
    Sorted,
    Sqrt,
    counted_places,
)
from cimtool.ir.types import integer, rows_of_item
from cimtool.passes.approximate import NewtonIteration, fit_exp, fit_inverse, fit_inverse_root
from cimtool.passes.base import Job
from cimtool.passes.curves import widened_range

EXP_TOLERANCE = 2.0**-17
"""Error of exp relative to its largest value: half a step of a 16-bit variance."""

ROOT_TOLERANCE = 2.0**-18
"""Relative error of the reciprocal norm, below a step of a 16-bit mean."""

RESIDUAL_BITS = 16
"""Bits of a value that the digital unit reads and no converter: for it few bits save little."""

NORMAL_BITS = 21
"""Bits of a normalised variable: [-1, 1], both ends included, in steps of 2^-20."""


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

        Nothing if the hardware's code of inputs holds the limits in these bits; else the zero
        point comes back, so that the lowest code is 0.
        """
        known = integer(("n",), op.lo, op.hi, op.scale)
        if self.settings.input_code(known).bits <= op.bits:
            return value, 0.0
        name, added = f"{value}.lifted", -op.lo * op.scale
        if name not in self.by_name:
            self.add(name, plus(1, offset=added), value)
        return name, added


@contextmanager
def of_layer(builder: Lowering, name: str) -> Iterator[None]:
    """Puts the layer before the sentence on rows for which there is no stand-in."""
    try:
        yield
    except RowsError as error:
        raise RowsError(f"{builder.name}.{name}: {error}") from None


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


WIDEST_SQUARES = 2.0**12
"""The most by which numbers may differ for their roots to be within the relative error."""


@LOWER.rule(L2Normalize)
def l2_normalize(builder: Lowering, op: L2Normalize, node: Node, inputs: tuple[str, ...]) -> str:
    """The rows times the reciprocal of their norm."""
    rows = builder.store(inputs[0], "residual", RESIDUAL_BITS)
    root = _reciprocal_norm(builder, node.name, rows, "norm", least=op.least)
    return builder.add(node.name, Mul(), rows, root)


@LOWER.rule(LayerNorm)
def layer_norm(builder: Lowering, op: LayerNorm, node: Node, inputs: tuple[str, ...]) -> str:
    """The rows less their mean times the reciprocal of that norm, then gain and offset."""
    name, width = node.name, op.gamma.size
    rows = builder.store(inputs[0], "residual", RESIDUAL_BITS)
    total = builder.add(f"{name}.total", Axis(1), builder.add(f"{name}.sum", Sum(), rows))
    centred = builder.add(f"{name}.centred", plus(1, -1 / width), rows, total)
    root = _reciprocal_norm(builder, name, centred, "norm of centred rows", width * op.eps)
    unit = builder.add(f"{name}.unit", Mul(), centred, root)
    return builder.add(name, Add((op.factor,), op.beta), unit)


@LOWER.rule(RmsNorm)
def rms_norm(builder: Lowering, op: RmsNorm, node: Node, inputs: tuple[str, ...]) -> str:
    """The rows times the reciprocal of that norm, then the gain."""
    rows = builder.store(inputs[0], "residual", RESIDUAL_BITS)
    root = _reciprocal_norm(builder, node.name, rows, "norm", op.gamma.size * op.eps)
    unit = builder.add(f"{node.name}.unit", Mul(), rows, root)
    return builder.add(node.name, Add((op.factor,), scalar(0.0)), unit)


def _reciprocal_norm(
    builder: Lowering, name: str, rows: str, what: str, added: float = 0.0, least: float = 0.0
) -> str:
    """Newton's iteration for `1 / max(sqrt(sum rows^2 + added), least)`, as a column [n, 1]."""
    seen = builder.calibration.squared_norms[name]
    lo, hi = widened_range(seen)
    # Smaller sums are limited to the lowest: to the square of `least` exactly, if it is there.
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
    return builder.add(f"{name}.column", Axis(1), newton_root(builder, name, squared, fits))


@LOWER.rule(Sqrt)
def square_root(builder: Lowering, op: Sqrt, node: Node, inputs: tuple[str, ...]) -> str:
    """`x / sqrt(x)`; below a share of the largest number the divisor is the root of that share."""
    name, x = node.name, builder.store(inputs[0], "residual", RESIDUAL_BITS)
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
    return builder.add(name, Mul(), limited, newton_root(builder, name, limited, fits))


@LOWER.rule(InverseRoot)
def inverse_root(builder: Lowering, op: InverseRoot, node: Node, inputs: tuple[str, ...]) -> str:
    """Newton's iteration; numbers below half the least that calibration saw are limited to it."""
    name, (x,) = node.name, inputs
    seen = builder.types[x]
    lo, hi = widened_range(seen)
    lo = max(lo, float(seen.lo.min()) / 2)
    with of_layer(builder, name):
        fits = fit_inverse_root(lo, hi, ROOT_TOLERANCE)
    builder.note(
        f"{builder.name}.{name}: 1/sqrt on [{lo:.4g}, {hi:.4g}] by "
        f"{' and '.join(str(fit.steps) for fit in fits)} Newton steps, worst relative error "
        f"{max(fit.error for fit in fits):.1e}"
    )
    return newton_root(builder, name, x, fits)


def newton_root(builder: Builder, name: str, x: str, fits: tuple[NewtonIteration, ...]) -> str:
    """`1 / sqrt(x)` by one iteration, or by two that meet."""
    roots = [_one_root(builder, name, x, fit) for fit in fits]
    if len(roots) == 1:
        return roots[0]
    both = builder.add(f"{name}.both", plus(1, 1, offset=-(fits[0].hi ** -0.5)), *roots)
    return _bounded_root(builder, f"{name}.root", both, fits[0].lo, fits[-1].hi)


def _one_root(builder: Builder, name: str, squared: str, fit: NewtonIteration) -> str:
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


SOFTMAX_SPAN = 16.0
"""Numbers as far below a row's largest have the same power as those at this distance, 1e-7."""


@LOWER.rule(Softmax)
def softmax(builder: Lowering, op: Softmax, node: Node, inputs: tuple[str, ...]) -> str:
    """Powers of what is below the row's largest number, times the reciprocal of their sum."""
    name, x = node.name, builder.store(inputs[0], "residual", RESIDUAL_BITS)
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


@LOWER.rule(Sorted)
def descending(builder: Lowering, op: Sorted, node: Node, inputs: tuple[str, ...]) -> str:
    """Numbers beside their partners `p`: the larger is `x + max(p - x, 0)`, the other with min."""
    name, x = node.name, builder.store(inputs[0], "residual", RESIDUAL_BITS)
    width, (rows, _) = builder.extent(x), rows_of_item(builder.types[x].shape[0])
    lo, hi = widened_range(builder.types[x])
    stages = list(merge_exchange(width))
    builder.note(
        f"{builder.name}.{name}: {width} numbers in order by {len(stages)} steps, "
        f"{sum(map(len, stages)):,} comparisons for each of {rows} rows per item in the digital "
        "unit"
    )
    x = builder.add(f"{name}.limited", Clip(scalar(lo), scalar(hi)), x)
    for step, pairs in enumerate(stages, start=1):
        own, partners = name if step == len(stages) else f"{name}.step{step}", np.arange(width)
        partners[pairs] = pairs[:, ::-1]
        above, below = np.zeros(width), np.zeros(width)
        above[pairs[:, 0]], below[pairs[:, 1]] = hi - lo, lo - hi
        places = np.arange(rows)[:, None] * width + partners
        partner = builder.add(f"{name}.partner{step}", Arrange(rows, places), x)
        more = builder.add(f"{name}.more{step}", plus(1, -1), partner, x)
        taken = builder.add(f"{name}.taken{step}", Clip(below, above), more)
        moved = builder.add(f"{name}.moved{step}", plus(1, 1), x, taken)
        # It changes nothing, and keeps the proved range from growing step by step.
        x = builder.add(own, Clip(scalar(lo), scalar(hi)), moved)
    return x


def merge_exchange(count: int) -> Iterator[IntArray]:
    """The pairs [k, 2] of places that each step compares: Batcher's sort of `count` numbers.

    Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M; the larger number comes first.
    """
    top = 1 << max((count - 1).bit_length() - 1, 0)
    step = top
    while step and count > 1:
        reach, rest, apart = top, 0, step
        while True:
            first = np.arange(count - apart)
            first = first[first & step == rest]
            if len(first):
                yield np.stack([first, first + apart], axis=1)
            if reach == step:
                break
            apart, reach, rest = reach - step, reach // 2, step
        step //= 2
