"""Shortlists of few bits: what an item stores of `mu`, and how its distance is estimated from it.

With x = v - m, an item less the centre m of all, in codes whose values are r (odd numbers of half
steps; even ones in pairs of cells, where a digit may be 0), and t a query:

    ed = ed_v - 2 t.v  ~  ed_v - 2 m.v - 2 (|x|^2 / x.r) (t - m).r  + what all items share

The quotient makes the estimate right for the item itself, however coarse its codes: the estimator
of RaBitQ (Gao and Long 2024, arXiv 2405.12497), without its rotation. It is a factor of
FACTOR_BITS bits an item, by which the digital unit multiplies each product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.errors import CimError
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.settings import Settings
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.arithmetic import Add, Axis, Sum
from cimtool.ir.format import integer_limits, ratio, round_half_up
from cimtool.ir.integer import Requant
from cimtool.ir.program import Builder, Graph
from cimtool.passes.gallery import DISTANCE, SHORTLIST, SHORTLIST_PRODUCT

FACTOR_BITS = 12
"""Bits of the largest factor: one of an item 32 times as short is right to a part in 200."""

SHARES = np.linspace(0.5, 1, 21)
"""Shares of values within a range, of which the one that loses least is taken."""

MOST_ROWS = 256
"""Rows of either side on which ranges are chosen; more of them would not move them."""


@dataclass(frozen=True)
class ShortlistBits:
    """Bits of what an item stores of each value (1: its sign), and of a query."""

    item: int
    query: int


@dataclass(frozen=True, eq=False)
class Examples:
    """Calibration rows `text` and `video` of integer `mu` [rows, d], by which ranges are chosen."""

    text: IntArray
    video: IntArray


@dataclass(frozen=True)
class ItemCodes:
    """Codes of so many bits, in steps; digits of pairs of cells are signed and may be 0."""

    bits: int
    step: float
    paired: bool

    @property
    def weight_bits(self) -> int:
        """Bits of a weight that holds a code, its sign included."""
        return max(self.bits, 2) if self.paired else self.bits

    def codes(self, x: Array) -> IntArray:
        """The codes of rows [M, d] less their centre."""
        if self.bits == 1:
            return np.where(x < 0, -1, int(self.paired))
        half = 0.5 if self.paired else 0.0
        top = (1 << self.bits - 1) - 1
        steps = np.clip(np.floor(x / self.step + half), -top - (not self.paired), top)
        return steps.astype(np.int64)

    def values(self, codes: IntArray) -> IntArray:
        """The values of codes in half steps."""
        return 2 * codes + (not self.paired)


class FewBitShortlist:
    """Builds the graph from a query's `mu` to the distances of items that are stored in few bits.

    `score` is a compiled one that uses `ed`; `settings` are those of the product's layer.
    """

    def __init__(self, score: Graph, examples: Examples, settings: Settings):
        self.score, self.settings = score, settings
        self.query, self.item = (score.inputs[f"{side}.mu"] for side in ("text", "video"))
        units = float(self.query.unit), float(self.item.unit)
        centre = np.concatenate([examples.text * units[0], examples.video * units[1]]).mean(axis=0)
        self.of_query, self.of_item = (round_half_up(centre / unit) for unit in units)
        self.unit = units[0] * units[1]
        self.text = (examples.text - self.of_query)[:MOST_ROWS].astype(np.float64)
        self.video = (examples.video - self.of_item)[:MOST_ROWS].astype(np.float64)

        self._gains: dict[int, float] = {}
        self._codes: dict[int, ItemCodes] = {}

    def gain(self, bits: int) -> float:
        """The step of a query in units of `mu`; 1 where it is driven as it is."""
        if bits >= self.query.bits:
            return 1.0
        if bits not in self._gains:
            self._gains[bits] = self._best_gain(integer_limits(bits, signed=True)[1])
        return self._gains[bits]

    def _best_gain(self, top: int) -> float:

        def error(step: float) -> float:
            driven = np.clip(np.rint(self.text / step), -top, top) * step
            return _loss(driven, self.text, self.video)

        return _least(self.text, top + 0.5, error)

    def codes(self, bits: int) -> ItemCodes:
        """The codes of items, in the step that loses least on the examples."""
        if bits not in self._codes:
            self._codes[bits] = self._best_codes(bits)
        return self._codes[bits]

    def _best_codes(self, bits: int) -> ItemCodes:
        paired = self.settings.weight_code.paired
        top = (1 << bits - 1) - (0.5 if paired else 0.0)

        def error(step: float) -> float:
            codes = ItemCodes(bits, step, paired)
            values = codes.values(codes.codes(self.video))
            return _loss(values * quotients(self.video, values)[:, None], self.video, self.text)

        return ItemCodes(bits, 1.0 if bits == 1 else _least(self.video, top, error), paired)

    def graph(self, bits: ShortlistBits, video: Mapping[str, Array]) -> Graph:
        """The graph for items of the integer features `video`: `text.mu` to `ed` [n, M].

        Only the order of its distances counts: they lack what all items share. Raises CimError
        where an array cannot hold a code.
        """
        builder = Builder(SHORTLIST, {"text.mu": self.query})
        driven, centre = self._driven(builder, bits.query)
        x, kind = video["mu"] - self.of_item, self.codes(bits.item)
        codes = kind.codes(x)
        values = kind.values(codes)
        product = self._product(builder, driven, codes, kind.weight_bits)
        scale = np.asarray(self.unit)
        if kind.paired:
            doubled = Add((np.asarray(2),), np.asarray(0), scale)
            similar = builder.add("similarity", doubled, product)
        else:
            total = builder.add("query.sum", Sum(), driven)
            rows = builder.add("query.sum.rows", Axis(1), total)
            odd = Add((np.asarray(2), np.asarray(1)), np.asarray(0), scale)
            similar = builder.add("similarity", odd, product, rows)
        factor = 2 * self.gain(bits.query) * quotients(x, values)
        places = FACTOR_BITS - int(np.frexp(factor.max())[1])
        factors = round_half_up(np.ldexp(factor, places))
        own = -2.0 * (video["mu"] @ self.of_query)
        if known := self.score.inputs.get("video.ed_self"):
            own += video["ed_self"] * (float(known.unit) / self.unit)
        offset = round_half_up(np.ldexp(own - own.min(), places)) + factors * (values @ centre)
        finer = np.asarray(self.unit * 2.0**-places)
        builder.add(DISTANCE, Add((-factors,), offset, finer), similar)
        return builder.graph({DISTANCE: DISTANCE})

    def _driven(self, builder: Builder, bits: int) -> tuple[str, IntArray]:
        """The value that drives the arrays, and what of it [d] is the centre."""
        known, gain = self.query, self.gain(bits)
        if bits >= known.bits:
            return "text.mu", self.of_query
        less = builder.add(
            "query.centred", Add((np.asarray(1),), -self.of_query, known.scale), "text.mu"
        )
        step = ratio(1 / Fraction(gain), int(builder.types[less].magnitude))
        lo, hi = integer_limits(bits, signed=True)
        factor = np.asarray(step.multiplier), np.asarray(step.shift)
        rounded = Requant(*factor, lo, hi, np.asarray(known.unit * gain))
        return builder.add("query", rounded, less), np.zeros_like(self.of_query)

    def _product(self, builder: Builder, driven: str, codes: IntArray, bits: int) -> str:
        own = self.settings.with_weights(bits)
        try:
            own.check_hardware()
        except ValueError as error:
            raise CimError(f"{SHORTLIST}.{SHORTLIST_PRODUCT}: {error}") from None
        known = builder.types[driven]
        crossbar = own.crossbar(own.input_code(known))
        weight = np.ascontiguousarray(codes.T)
        bias = np.zeros(weight.shape[1], np.int64)
        scale = np.asarray(known.unit * self.item.unit)
        op = CrossbarMvm(StoredWeights(weight, crossbar), bias, scale, crossbar.no_references)
        return builder.add(SHORTLIST_PRODUCT, op, driven)


def quotients(x: Array, values: IntArray) -> FloatArray:
    """|x|^2 / x.r of each row; 0 where its codes say nothing of it."""
    size, held = (x * x).sum(axis=1, dtype=np.float64), (x * values).sum(axis=1, dtype=np.float64)
    found: FloatArray = np.divide(size, held, out=np.zeros_like(size), where=held > 0)
    return found


def _loss(found: FloatArray, exact: FloatArray, other: FloatArray) -> float:
    """The mean squared error of products with the other side's rows."""
    return float(np.square((found - exact) @ other.T).mean())


def _least(x: FloatArray, top: float, error: Callable[[float], float]) -> float:
    """The step of least error among those whose range, `top` steps, holds a share of values."""
    ends = np.unique(np.quantile(np.abs(x), SHARES))
    steps = [float(end) / top for end in ends if end > 0]
    return min(steps, key=error, default=1.0)
