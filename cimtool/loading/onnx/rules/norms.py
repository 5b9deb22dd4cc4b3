"""Norms of rows, as exporters write them: found backwards from a division by them.

For example, `ReduceMean`, `Sub`, `Pow`, `ReduceMean`, `Add`, `Sqrt`, `Div` are a layer norm. Each
of these becomes an operation. If a value is then divided by the root of its own sum of squares, one
operation replaces all of them. A division by something else stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.ir.arithmetic import Add, Arrange, Axis, Clip, Sum, plus
from cimtool.ir.op import Op
from cimtool.ir.program import Node
from cimtool.ir.source import Gate, L2Normalize, LayerNorm, Power, Reciprocal, RmsNorm, Sqrt
from cimtool.loading.layout import arranged
from cimtool.loading.onnx.builder import FileBuilder, Rows
from cimtool.loading.onnx.translation import Translation

LARGEST_EPSILON = 1e-6
"""A lower limit of row norms up to here only guards against a division by zero."""


MOST_STEPS = 16
"""Operations at most between a sum of squares and the divisor."""


@dataclass(frozen=True)
class Norms:
    """`max(factor * sum of squares + added, least) ** power` for rows [k n, width] of a value.

    With power 0.5 these are norms.
    """

    of: str
    width: int
    factor: float = 1.0
    added: float = 0.0
    least: float = 0.0
    power: float = 1.0

    def then(self, op: Op) -> Norms | None:
        """The norms after an operation on them; None if the results are no norms."""
        match op:
            case Sqrt():
                return self._raised(0.5)
            case Reciprocal():
                return self._raised(-1.0)
            case Power(exponent):
                return self._raised(exponent)
            case Add(factors=(factor,), offset=offset) if factor.size == offset.size == 1:
                return self._line(factor.item(), offset.item())
            case Clip(lo, hi) if lo.size == 1 and hi.min() == np.inf:
                if lo.item() <= self._guard():
                    return self
                if self.power > 0 and not self.added:
                    return replace(self, least=max(self.least, lo.item() ** (1 / self.power)))
        return None

    def _raised(self, exponent: float) -> Norms | None:
        power = self.power * exponent
        return replace(self, power=power) if power in (0.5, -0.5) else None

    def _line(self, factor: float, offset: float) -> Norms | None:
        """Norms times a factor above 0, plus an offset: epsilon on squares, or only a guard."""
        if not factor > 0:
            return None
        by = factor ** (1 / self.power)
        own = replace(self, factor=by * self.factor, added=by * self.added, least=by * self.least)
        if own.power == 1.0 and offset >= 0 and not own.least:
            return replace(own, added=own.added + offset)
        return own if abs(offset) <= own._guard() else None

    def _guard(self) -> float:
        """The largest lower limit of norms, or of their squares, that only guards against zero.

        It is LARGEST_EPSILON times a row's norm or root mean square, the larger of the two.
        """
        if self.power < 0:
            return 0.0
        share = max(self.factor, min(self.factor * self.width, 1.0))
        return float((LARGEST_EPSILON**2 * share) ** self.power)


def over_norms(t: Translation, value: Rows, divisor: Rows, power: float) -> Rows | None:
    """A value divided by its row norms; None if `divisor` does not hold these.

    With `power` 0.5, `divisor` holds norms; with -0.5, their reciprocals, to multiply by.
    """
    norms = _norms_of(t.builder, divisor.name)
    if norms is None or norms.power != power or divisor.rank != value.rank:
        return None
    centre = _centre(t.builder, norms.of)
    if centre is not None and norms.least:
        return None
    for axis in range(value.rank):
        if axis == value.items or value.extents[axis] != norms.width:
            continue
        order = value.last(axis)
        last = value.reordered(order)
        forms: list[tuple[Rows, Op | None]] = [(last, None)]
        if (multiple := t.builder.multiple(last.name)) is not None:
            forms.append((replace(last, name=multiple[0]), multiple[1]))
        for rows, op in forms:
            own = t.in_rows(rows)
            same = own.name == norms.of or (
                centre is not None and _centre(t.builder, own.name) == centre
            )
            moved = op is not None and own is not rows  # the constants have other places
            if same and not moved and _beside(divisor.reordered(order), own):
                unit = _unit(t, norms, own, centre)
                made = unit if op is None else t.add(op, unit.name)
                return made.back(order)
    return None


def _beside(norms: Rows, rows: Rows) -> bool:
    """True if a view has the norm of each row at the row's place, once or for all its numbers."""
    own = rows.places // rows.extents[-1]
    placed = (norms.items, norms.before) == (rows.items, rows.before)
    fitting = all(n in (1, size) for n, size in zip(norms.extents, rows.extents, strict=True))
    return placed and fitting and bool((norms.places == own).all())


def _norms_of(builder: FileBuilder, name: str) -> Norms | None:
    """The norms that a value with one number per row holds; None for other values."""
    after, node = list[Op](), builder.by_name.get(name)
    while node is not None and not isinstance(node.op, Axis):
        if len(node.inputs) != 1 or len(after) == MOST_STEPS:
            return None
        after.append(node.op)
        node = builder.by_name.get(node.inputs[0])
    total = None if node is None else builder.made_by(node.name, Axis, Sum)
    if total is None:
        return None
    found, places = _before_moves(builder, total[-1].inputs[0])
    if found is None or not isinstance(found.op, Gate) or found.inputs[0] != found.inputs[1]:
        return None
    of = found.inputs[0] if places is None else arranged(builder, found.inputs[0], places)
    norms: Norms | None = Norms(of, builder.extent(of))
    for op in reversed(after):
        norms = None if norms is None else norms.then(op)
    return norms


def _before_moves(builder: FileBuilder, name: str) -> tuple[Node | None, IntArray | None]:
    """The node that computes a value's numbers, and their places in its value if they moved."""
    node = builder.by_name.get(name)
    if node is None or not isinstance(node.op, Arrange):
        return node, None
    return builder.by_name.get(node.inputs[0]), node.op.places


def _centre(builder: FileBuilder, name: str) -> str | None:
    """The rows x if a value is x minus the means of x's rows; None for other values."""
    node, places = _before_moves(builder, name)
    if node is None or not isinstance(node.op, Add) or len(node.inputs) != 2:
        return None
    means = builder.made_by(node.inputs[1], Arrange, Add, Axis, Sum)
    if means is None:
        return None
    spread, mean = means[0].op, means[1].op
    assert isinstance(spread, Arrange)
    assert isinstance(mean, Add)
    rows = node.inputs[0] if places is None else arranged(builder, node.inputs[0], places)
    width, spread_rows = builder.extent(rows), spread.places.reshape(-1)
    of_rows = spread_rows.reshape(-1, width) if places is None else spread_rows[places]
    factors = [f.item() if f.size == 1 else 0.0 for f in (*node.op.factors, *mean.factors)]
    own_rows = (of_rows == np.arange(len(of_rows))[:, None]).all()
    if factors != [1.0, -1.0, 1 / width] or node.op.offset.any() or mean.offset.any():
        return None
    return rows if own_rows and means[-1].inputs[0] == rows else None


def _unit(t: Translation, norms: Norms, rows: Rows, centre: str | None) -> Rows:
    """The rows divided by their norms."""
    width, x = norms.width, norms.of if centre is None else centre
    t.views[x] = replace(rows, name=x)
    gain = (norms.factor * width) ** -0.5
    eps = norms.added / norms.factor / width
    if centre is not None:
        return t.add(LayerNorm(np.full(width, gain), np.zeros(width), eps), x)
    if eps * width > LARGEST_EPSILON**2:
        return t.add(RmsNorm(np.full(width, gain), eps), x)
    unit = L2Normalize(float((norms.least / norms.factor) ** 0.5))
    if norms.factor == 1.0:
        return t.add(unit, x)
    return t.add(plus(norms.factor**-0.5), t.part("unit", unit, x))
