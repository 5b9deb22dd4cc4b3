"""Round weights for a small error of the logits.

Rounding each weight to the nearest integer minimises the error of the weights. With the second
moments `H = sum x x^T` of the rows that a layer sees and `A = sum g g^T` of the gradients of logits
by its output, and where both are taken to be independent, the error of the logits is
`tr A (T - Q)^T H (T - Q)` (Martens and Grosse, K-FAC, ICML 2015). One weight after another is
rounded, and each makes up for the errors of those before it: of other inputs of its column, as in
GPTQ (Frantar et al., ICLR 2023), and of other columns, as the two-sided rounding of YAQA (Tseng et
al., 2025). Errors go to directions of the output in which hardly any logit changes.

With few bits the scale of a column matters as much: its largest weight clips if that makes the
rest finer. Each column has the share of its range that errs least, and a factor for the layer
takes off the bias that this leaves on rows that did not round the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.compiled import jit
from cimtool.base.threads import side_by_side
from cimtool.passes.gradients import LayerGradients
from cimtool.passes.moments import Factors, SecondMoments
from cimtool.passes.weight_grids import WeightGrid

BLOCK = 64
"""Columns of weights that are rounded at a time: their errors stay in a core's cache."""

PANEL = 32
"""Rows of weights whose errors of rows after them are added at once."""

SHARES = (0.85, 0.7, 0.55)
"""Shares of a column's largest weight that the largest integer may stand for: the rest clips.

The search ends at the first one with which no column errs less than in its full range.
"""

GAIN_STEPS = 1 << 14
"""Steps that the gain is rounded to: it must not depend on the last bits of a CPU's sums."""

MOST_GAIN = 2.0
"""Outputs that lost more than half of their size are mostly error."""

MOST_WITH_GAIN = 15
"""With larger integers outputs keep their size to 1e-4."""

GAIN_ROWS = 16
"""Halves of fewer rows do not tell the size of outputs."""


@dataclass(frozen=True, eq=False)
class LayerRows:
    """Integer `inputs` [n, K] of a layer, and the gradients of logits by its outputs if known.

    Without gradients all errors of outputs count the same. With `centred` a mean error does not
    count, as a bias takes it off. An item has `of_item` rows that follow one another.
    """

    inputs: IntArray
    gradients: LayerGradients | None
    centred: bool
    of_item: int = 1

    def half(self, rows: Array, half: int) -> Array:
        """The rows of every second item, from item 0 or 1."""
        return np.asarray(rows[np.arange(len(rows)) // self.of_item % 2 == half])


def least_error_weights(
    target: FloatArray, scale: FloatArray, rows: LayerRows, grid: WeightGrid, least: FloatArray
) -> tuple[IntArray, FloatArray]:
    """Whole weights [K, N] of a grid with which logits err little, and units [N].

    `target` [K, N] are the real weights in units `scale` [N] in which the grid's largest number
    reaches each column's. The units returned are multiples of these. Each column takes one of
    SHARES, `least` [N] or more, that errs least, or 1 if rows share exponents, which have their
    units already; then all get the `gain`, unless integers are above MOST_WITH_GAIN.
    """
    halves = None
    if grid.limit <= MOST_WITH_GAIN:
        halves = Evidence.of(rows, 0), Evidence.of(rows, 1)
    rounder = Rounder.of(rows, halves)
    units = np.ones(len(scale))
    if not grid.shared:
        units = rounder.least_error_units(target, grid, least)
    target, own = target / units, scale * units
    weights = rounder.rounded(target, own, grid)
    if halves is not None:
        units = units * gain(target, own, halves, grid)
    return weights.astype(np.int64), units


@dataclass(frozen=True, eq=False)
class Evidence:
    """Moments of some of a layer's inputs, and of the gradients by its outputs if they are known.

    `along` [K, N] is how the mean logit changes with the weights: the mean over items of `x g^T`
    with its gradients `g`, summed over the rows of an item.
    """

    inputs: SecondMoments
    outputs: SecondMoments | None
    along: FloatArray | None

    @classmethod
    def of(cls, rows: LayerRows, half: int) -> Evidence:
        """The evidence of every second item, from item 0 or 1."""
        inputs = SecondMoments.of(rows.half(rows.inputs, half), rows.centred)
        if rows.gradients is None:
            return cls(inputs, None, None)
        outputs = SecondMoments.of(rows.half(rows.gradients.drawn, half), centred=False)
        mean = rows.half(rows.gradients.mean, half)
        x = inputs.rows[: len(mean)] - inputs.rows.mean(axis=0) * rows.centred
        return cls(inputs, outputs, x.T @ mean / (len(mean) / rows.of_item))

    def size(self, real: FloatArray) -> Callable[[FloatArray], float]:
        """Products of the changes of logits by real weights [K, N] with those by others.

        In the mean over pairs, of the changes of single logits and of the mean of all.
        """
        seen = self.inputs.matrix @ real / len(self.inputs.rows)
        if self.outputs is None or self.along is None:
            return lambda weights: float((seen * weights).sum())
        seen = seen @ self.outputs.matrix / len(self.outputs.rows)
        along = self.along
        mean = float((along * real).sum())
        return lambda weights: float((seen * weights).sum() + mean * (along * weights).sum())


def gain(
    target: FloatArray, scale: FloatArray, halves: tuple[Evidence, Evidence], grid: WeightGrid
) -> float:
    """The factor that gives the outputs of unseen rows their size back.

    Other weights make up for what clipping takes off a large one, but only on the rows that they
    were rounded for. On unseen rows outputs are too small, and so are distances between items. So
    each half of the rows rounds the weights, and the other half tells the products of what the real
    outputs make of the logits with that, and with what the rounded ones make of them. 1 for halves
    of fewer than GAIN_ROWS rows.
    """
    if min(len(one.inputs.rows) for one in halves) < GAIN_ROWS:
        return 1.0
    squares = products = 0.0
    real = target * scale
    for own, other in (halves, halves[::-1]):
        rounded = Rounder.of_half(own).rounded(target, scale, grid)
        size = other.size(real)
        squares += size(real)
        products += size(rounded * scale)
    if products <= squares / MOST_GAIN:
        return MOST_GAIN if squares > 0 else 1.0
    return round(squares / products * GAIN_STEPS) / GAIN_STEPS


@dataclass(frozen=True, eq=False)
class Rounder:
    """Factors of the moments of a layer's inputs, and of gradients by its outputs if known."""

    inputs: Factors
    outputs: Factors | None

    @classmethod
    def of(cls, rows: LayerRows, halves: tuple[Evidence, Evidence] | None) -> Rounder:
        """Rounds for all rows, of which both halves may be known."""
        if halves is None:
            inputs = SecondMoments.of(rows.inputs, rows.centred)
        else:
            one, other = halves
            inputs = one.inputs.with_rows_of(other.inputs, rows.inputs)
        return cls(inputs.factors(), None if rows.gradients is None else rows.gradients.factors)

    @classmethod
    def of_half(cls, half: Evidence) -> Rounder:
        """Rounds for every second item."""
        return cls(half.inputs.factors(), None if half.outputs is None else half.outputs.factors())

    def least_error_units(
        self, target: FloatArray, grid: WeightGrid, least: FloatArray
    ) -> FloatArray:
        """The share [N] of its range with which each column alone errs least."""
        units, (order, pivots) = np.ones(target.shape[1]), (self.inputs.order, self.inputs.pivots)
        size = np.abs(target)[order]
        most = math.fsum(pivots) / 4  # in the full range a number errs by half a step at most

        def may_win(share: float) -> IntArray:
            """The columns whose clipped weights alone may err less than all in the full range."""
            over = np.maximum(size - grid.limit * np.maximum(share, least), 0)
            return np.flatnonzero((pivots @ np.square(over) < most) & (least < 1))

        def errors(columns: IntArray, tried: FloatArray) -> FloatArray:
            wanted = target[np.ix_(order, columns)] / tried
            taken = grid.taken(order, columns)
            return rounded_back(wanted, self.inputs, taken, None)[1] * np.square(tried)

        columns, best = may_win(SHARES[0]), np.full(len(units), np.inf)
        if len(columns):
            best[columns] = errors(columns, units[columns])
        for share in SHARES:
            columns = may_win(share)
            tried = np.maximum(share, least[columns])
            found = errors(columns, tried) if len(columns) else tried
            better = found < best[columns]
            if not better.any():
                break
            units[columns[better]], best[columns[better]] = tried[better], found[better]
        return units

    def rounded(self, target: FloatArray, scale: FloatArray, grid: WeightGrid) -> FloatArray:
        """Whole weights [K, N] of a grid for `target` [K, N] in units `scale` [N]."""
        order, back, columns = self.inputs.order, None, np.arange(len(scale))
        if self.outputs is not None:
            columns = self.outputs.order
            units = scale[columns]
            back = np.ascontiguousarray((self.outputs.upper * units / units[:, None]).T)
        taken = np.ix_(order, columns)
        weights = np.empty_like(target)
        weights[taken], _ = rounded_back(
            target[taken], self.inputs, grid.taken(order, columns), back
        )
        return weights


def rounded_back(
    target: FloatArray, inputs: Factors, grid: WeightGrid, back: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Whole numbers [K, N] of a grid for `target` [K, N], the last row and column first.

    Rows are in the order of `inputs`. With U and D of these and V of the outputs, of which `back`
    is the transpose, the error of each number is compensated in the next:
    `q_kn = round(t_kn + (U (t - q) V^T)_kn without its own error)`, halves up. What each leaves,
    squared and times its pivot in D, adds up to the second result [N]. Without `back` V is 1, and
    the columns are rounded side by side.
    """
    found, errors = np.array(target), np.empty(target.shape[1])
    steps = np.broadcast_to(grid.steps, target.shape)

    def rounded(columns: slice) -> None:
        part = np.ascontiguousarray(found[:, columns])
        own = np.ascontiguousarray(steps[:, columns])
        limit, others = float(grid.limit), np.empty((0, 0)) if back is None else back
        errors[columns] = _round(
            part, inputs.upper, inputs.pivots, others, own, limit, grid.precision
        )
        found[:, columns] = part

    width = target.shape[1]
    if back is not None:
        rounded(slice(0, width))
    else:
        side_by_side(rounded, [slice(k, min(k + BLOCK, width)) for k in range(0, width, BLOCK)])
    return found, errors


TOGETHER = 4
"""Rows that read the same addends together, and addends that are added at once."""


@jit
def _add_products(  # type: ignore[no-untyped-def]  # pragma: no cover
    total, a, first, count, b, begin, end, left, right
):
    """Add `a[first + i, begin:end] @ b[begin:end, left:right]` to the first columns of `total[i]`.

    For `count` rows i. The order of additions is that written, as everywhere here.
    """
    columns, whole = right - left, begin + (end - begin) // TOGETHER * TOGETHER
    for i in range(0, count - 3, TOGETHER):
        p, q, r, s = a[first + i], a[first + i + 1], a[first + i + 2], a[first + i + 3]
        tp, tq, tr, ts = total[i], total[i + 1], total[i + 2], total[i + 3]
        for j in range(begin, whole, TOGETHER):
            b0, b1 = b[j, left:right], b[j + 1, left:right]
            b2, b3 = b[j + 2, left:right], b[j + 3, left:right]
            p0, p1, p2, p3 = p[j], p[j + 1], p[j + 2], p[j + 3]
            q0, q1, q2, q3 = q[j], q[j + 1], q[j + 2], q[j + 3]
            r0, r1, r2, r3 = r[j], r[j + 1], r[j + 2], r[j + 3]
            s0, s1, s2, s3 = s[j], s[j + 1], s[j + 2], s[j + 3]
            for c in range(columns):
                x0, x1, x2, x3 = b0[c], b1[c], b2[c], b3[c]
                tp[c] += p0 * x0 + p1 * x1 + p2 * x2 + p3 * x3
                tq[c] += q0 * x0 + q1 * x1 + q2 * x2 + q3 * x3
                tr[c] += r0 * x0 + r1 * x1 + r2 * x2 + r3 * x3
                ts[c] += s0 * x0 + s1 * x1 + s2 * x2 + s3 * x3
    for i in range(count // TOGETHER * TOGETHER, count):
        p, tp = a[first + i], total[i]
        for j in range(begin, whole, TOGETHER):
            b0, b1 = b[j, left:right], b[j + 1, left:right]
            b2, b3 = b[j + 2, left:right], b[j + 3, left:right]
            p0, p1, p2, p3 = p[j], p[j + 1], p[j + 2], p[j + 3]
            for c in range(columns):
                tp[c] += p0 * b0[c] + p1 * b1[c] + p2 * b2[c] + p3 * b3[c]
    for i in range(count):
        for j in range(whole, end):
            p0, tp, b0 = a[first + i, j], total[i], b[j, left:right]
            for c in range(columns):
                tp[c] += p0 * b0[c]


@jit
def _round(  # type: ignore[no-untyped-def]  # pragma: no cover
    t, upper, pivots, back, steps, limit, precision
):
    """Round `t` in place, a panel of rows and a block of columns at a time; errors of columns.

    `errors` are of the weights, `made` those that the rows of a panel add up to, `owed` what other
    columns leave to them.
    """
    size, width = t.shape
    errors, squares, whole = np.zeros((size, width)), np.zeros(width), 2.0**precision
    made, total, owed = np.empty((PANEL, width)), np.empty((PANEL, BLOCK)), np.empty((PANEL, BLOCK))
    for end in range(size, 0, -PANEL):
        start = max(end - PANEL, 0)
        for right in range(width, 0, -BLOCK):
            left = max(right - BLOCK, 0)
            columns = right - left
            rows = end - start
            total[:rows, :columns] = t[start:end, left:right]
            _add_products(total, upper, start, rows, errors, end, size, left, right)
            owed[:] = 0.0
            if len(back):
                _add_products(owed, made, 0, rows, back, right, width, left, right)
            for k in range(end - 1, start - 1, -1):
                row, debt = total[k - start], owed[k - start]
                for j in range(k + 1, end):
                    w0, e0 = upper[k, j], errors[j, left:right]
                    for c in range(columns):
                        row[c] += w0 * e0[c]
                for c in range(columns - 1, -1, -1):
                    n = left + c
                    wanted = row[c] + debt[c]
                    element = min(max(wanted / steps[k, n], -limit), limit)
                    if limit >= whole:
                        unit = 2.0 ** max(math.frexp(element)[1] - precision, 0)
                        element = np.floor(element / unit + 0.5) * unit
                    q = np.floor(element + 0.5) * steps[k, n]
                    squares[n] += pivots[k] * (wanted - q) * (wanted - q)
                    errors[k, n] = t[k, n] - q
                    t[k, n] = q
                    if len(back):
                        made[k - start, n] = rest = row[c] - q
                        others = back[n, left:right]
                        for m in range(c):
                            debt[m] += rest * others[m]
    return squares
