"""Shortlists of few bits: the bits that an item stores of `mu`, and the estimate of its distance.

With x = v - m, an item less the centre m of all, in codes whose values are r (odd numbers of half
steps; even ones in pairs of cells, where a digit may be 0), and t a query:

    ed = ed_v - 2 t.v  ~  ed_v - 2 m.v - 2 (|x|^2 / x.r) (t - m).r  + what all items share

The quotient makes the estimate right for the item itself, however coarse its codes: the estimator
of RaBitQ (Gao and Long 2024, arXiv 2405.12497), without its rotation. It is a factor of
FACTOR_BITS bits an item, by which the digital unit multiplies each product.

With fewer dimensions the codes are of principal components of the calibration rows. These hold most
of what rows differ in, but their variances fall off, and codes of few bits in one common step waste
bits on the small ones. RaBitQ's rotation within the components, drawn once, spreads the variance
evenly and keeps every product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.threads import one_blas_thread
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.settings import Settings
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.arithmetic import Add, Axis, Sum
from cimtool.ir.format import integer_limits, ratio, round_half_up
from cimtool.ir.integer import Requant
from cimtool.ir.program import Builder, Graph
from cimtool.passes.gallery import (
    COMPONENTS,
    COMPONENTS_LAYER,
    DISTANCE,
    PRODUCT_LAYER,
    SHORTLIST,
    SHORTLIST_PRODUCT,
    ShortlistBits,
)

FACTOR_BITS = 12
"""Bits of the largest factor: one of an item 32 times as short is right to a part in 200."""

SHARES = np.linspace(0.5, 1, 21)
"""Shares of values within a range, of which the one that loses least is taken."""

MOST_ROWS = 256
"""Rows of either side on which ranges are chosen; more of them would not move them."""


NEGLIGIBLE = 1e-9
"""Share of the largest variance below which a component is rounding alone."""

ROTATION_SEED = 16
"""Any seed would do."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Calibration rows `text` and `video` of integer `mu` [rows, d], by which ranges are chosen."""

    text: IntArray
    video: IntArray


class CentredRows:
    """The centre of a score's calibration rows: the point from which items and queries are coded.

    `query` and `item` are the types of their `mu`; `of_query` and `of_item` [d] are the centre in
    the units of either, and `unit` is that of a product of both.
    """

    def __init__(self, score: Graph, examples: Examples):
        self.query, self.item = (score.inputs[f"{side}.mu"] for side in ("text", "video"))
        units = float(self.query.unit), float(self.item.unit)
        centre = np.concatenate([examples.text * units[0], examples.video * units[1]]).mean(axis=0)
        self.of_query, self.of_item = (round_half_up(centre / unit) for unit in units)
        self.unit = units[0] * units[1]
        self.self_terms = score.inputs.get("video.ed_self")

    def of_items(self, video: Mapping[str, Array]) -> FloatArray:
        """The terms `ed_v` [M] of items alone, in units of a product; 0 if the score has none."""
        if self.self_terms is None:
            return np.zeros(len(video["mu"]))
        return video["ed_self"] * (float(self.self_terms.unit) / self.unit)

    def distances(
        self,
        builder: Builder,
        value: str,
        factor: FloatArray,
        own: FloatArray,
        centre: IntArray | int = 0,
        sign: int = 1,
    ) -> Graph:
        """The graph whose distances are `sign factor (value - centre) + own`.

        Only the order of a query's distances counts: they lack what all items share.
        """
        places = FACTOR_BITS - int(np.frexp(factor.max())[1])
        factors = sign * round_half_up(np.ldexp(factor, places))
        offset = round_half_up(np.ldexp(own - own.min(), places)) - factors * centre
        finer = np.asarray(self.unit * 2.0**-places)
        builder.add(DISTANCE, Add((factors,), offset, finer), value)
        return builder.graph({DISTANCE: DISTANCE})


@dataclass(frozen=True, eq=False)
class Components:
    """An integer map `weight` [d, D], in steps, from rows less their centre to components."""

    weight: IntArray
    step: float

    def of(self, rows: IntArray) -> IntArray:
        """The components [n, D] of integer rows [n, d], whose sums float64 holds exactly."""
        return (rows.astype(np.float64) @ self.weight.astype(np.float64)).astype(np.int64)


class PrincipalComponents:
    """The principal components of centred rows [n, d], those of the largest variance first."""

    def __init__(self, rows: FloatArray):
        with one_blas_thread:
            variances, directions = np.linalg.eigh(rows.T @ rows)
        self.directions = directions[:, ::-1]
        differing = int((variances > NEGLIGIBLE * variances.max()).sum())
        self.most = min(differing, rows.shape[1] - 1)
        """The most dimensions that a map may have: those in which rows differ, fewer than d."""

    def of(self, dimensions: int, weight_bits: int) -> Components:
        """The map to `dimensions` dimensions, in weights of `weight_bits` bits.

        Raises ArgumentError if the rows do not differ in this many dimensions, or have no more.
        """
        if not 1 <= dimensions <= self.most:
            raise ArgumentError(
                "{shortlist_dimensions} is {}; expected 1 to {}, in which the calibration features "
                "differ, and fewer than their {}",
                dimensions,
                self.most,
                len(self.directions),
            )
        drawn = np.random.default_rng(ROTATION_SEED).normal(size=(dimensions, dimensions))
        rotation = np.linalg.qr(drawn)[0]
        with one_blas_thread:
            found = self.directions[:, :dimensions] @ rotation
        top = (1 << weight_bits - 1) - 1
        step = float(np.abs(found).max()) / top
        return Components(round_half_up(found / step), step)


@dataclass(frozen=True)
class ItemCodes:
    """Codes of this many bits, in steps; digits of pairs of cells are signed and may be 0."""

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


class CodedSpace:
    """The space that a shortlist compares in: calibration rows less their centre, and their codes.

    `text` and `video` [rows, D] are integers, of whole `mu` or of its components; items are stored
    in pairs of cells if `paired`. Queries of `whole_bits` are driven as they are.
    """

    def __init__(self, text: Array, video: Array, paired: bool, whole_bits: int | None):
        self.text = text[:MOST_ROWS].astype(np.float64)
        self.video = video[:MOST_ROWS].astype(np.float64)
        self.paired, self.whole_bits = paired, whole_bits
        self._gains: dict[int, float] = {}
        self._codes: dict[int, ItemCodes] = {}

    def gain(self, bits: int) -> float:
        """The step of a query in units of these rows; 1 if it is driven as it is."""
        if self.whole_bits is not None and bits >= self.whole_bits:
            return 1.0
        top = integer_limits(bits, signed=True)[1]

        def error(step: float) -> float:
            driven = np.clip(np.rint(self.text / step), -top, top) * step
            return _loss(driven, self.text, self.video)

        if bits not in self._gains:
            self._gains[bits] = _least(self.text, top + 0.5, error)
        return self._gains[bits]

    def codes(self, bits: int) -> ItemCodes:
        """The codes of items, in the step that loses least on the examples."""
        top = (1 << bits - 1) - (0.5 if self.paired else 0.0)

        def error(step: float) -> float:
            codes = ItemCodes(bits, step, self.paired)
            values = codes.values(codes.codes(self.video))
            return _loss(values * quotients(self.video, values)[:, None], self.video, self.text)

        if bits not in self._codes:
            step = 1.0 if bits == 1 else _least(self.video, top, error)
            self._codes[bits] = ItemCodes(bits, step, self.paired)
        return self._codes[bits]


class FewBitShortlist(CentredRows):
    """Builds the graph from a query's `mu` to the distances of items that are stored in few bits.

    `score` is a compiled one that uses `ed`; `settings` are those that its layers are looked up in.
    """

    def __init__(self, score: Graph, examples: Examples, settings: Settings):
        super().__init__(score, examples)
        self.settings = settings
        self.text, self.video = examples.text - self.of_query, examples.video - self.of_item
        self.paired = settings.of_layer(PRODUCT_LAYER).weight_code.paired
        self.whole = CodedSpace(self.text, self.video, self.paired, self.query.bits)
        self._reduced: dict[int, tuple[Components, CodedSpace]] = {}

    @cached_property
    def principal(self) -> PrincipalComponents:
        """The components of the calibration rows of both sides, in real units."""
        rows = [self.text * float(self.query.unit), self.video * float(self.item.unit)]
        return PrincipalComponents(np.concatenate(rows))

    def reduced(self, dimensions: int) -> tuple[Components, CodedSpace]:
        """The map to this many components, and the space that it leads to.

        Raises ArgumentError if the calibration rows do not differ in this many.
        """
        if dimensions not in self._reduced:
            bits = self.settings.of_layer(COMPONENTS_LAYER).weight_bits
            found = self.principal.of(dimensions, bits)
            mapped = found.of(self.text), found.of(self.video)
            self._reduced[dimensions] = found, CodedSpace(*mapped, self.paired, None)
        return self._reduced[dimensions]

    def graph(self, bits: ShortlistBits, video: Mapping[str, Array]) -> Graph:
        """The graph for items of the integer features `video`: `text.mu` to `ed` [n, M].

        Raises CimError if an array cannot hold a code.
        """
        builder = Builder(SHORTLIST, {"text.mu": self.query})
        x, known, step = video["mu"] - self.of_item, self.whole, 1.0
        if bits.dimensions is None:
            driven, centre = self._whole_query(builder, bits.query)
        else:
            found, known = self.reduced(bits.dimensions)
            x, step = found.of(x), found.step
            less, centre = -(self.of_query @ found.weight), np.zeros(bits.dimensions, np.int64)
            mapped = self._mvm(builder, COMPONENTS, "text.mu", found.weight, less, step, None)
            driven = self._rounded(builder, mapped, known.gain(bits.query), bits.query)
        kind = known.codes(bits.item)
        codes = kind.codes(x)
        values, weight = kind.values(codes), np.ascontiguousarray(codes.T)
        none, unit = np.zeros(len(codes), np.int64), float(self.item.unit) * step
        product = self._mvm(
            builder, SHORTLIST_PRODUCT, driven, weight, none, unit, kind.weight_bits
        )
        scale = np.asarray(self.unit)
        if kind.paired:
            doubled = Add((np.asarray(2),), np.asarray(0), scale)
            similar = builder.add("similarity", doubled, product)
        else:
            total = builder.add("query.sum", Sum(), driven)
            rows = builder.add("query.sum.rows", Axis(1), total)
            odd = Add((np.asarray(2), np.asarray(1)), np.asarray(0), scale)
            similar = builder.add("similarity", odd, product, rows)
        factor = 2 * step**2 * known.gain(bits.query) * quotients(x, values)
        own = -2.0 * (video["mu"] @ self.of_query) + self.of_items(video)
        return self.distances(builder, similar, factor, own, values @ centre, -1)

    def _whole_query(self, builder: Builder, bits: int) -> tuple[str, IntArray]:
        """The value of whole `mu` that drives the arrays, and what of it [d] is the centre."""
        known = self.query
        if bits >= known.bits:
            return "text.mu", self.of_query
        less = Add((np.asarray(1),), -self.of_query, known.scale)
        centred = builder.add("query.centred", less, "text.mu")
        driven = self._rounded(builder, centred, self.whole.gain(bits), bits)
        return driven, np.zeros_like(self.of_query)

    def _rounded(self, builder: Builder, value: str, gain: float, bits: int) -> str:
        known = builder.types[value]
        step = ratio(1 / Fraction(gain), int(known.magnitude))
        lo, hi = integer_limits(bits, signed=True)
        factor = np.asarray(step.multiplier), np.asarray(step.shift)
        rounded = Requant(*factor, lo, hi, np.asarray(known.unit * gain))
        return builder.add("query", rounded, value)

    def _mvm(
        self,
        builder: Builder,
        name: str,
        driven: str,
        weight: IntArray,
        bias: IntArray,
        unit: float,
        weight_bits: int | None,
    ) -> str:
        """Add a product of what drives it with `weight`, in units of it times `unit`.

        Raises CimError if no array can hold weights of `weight_bits`, or of those in settings.
        """
        layer = f"{SHORTLIST}.{name}"
        own = self.settings.of_layer(layer)
        own = own if weight_bits is None else own.with_weights(weight_bits)
        try:
            own.check_hardware()
        except ValueError as error:
            raise CimError(f"{layer}: {error}") from None
        known = builder.types[driven]
        crossbar = own.crossbar(own.input_code(known))
        scale = np.asarray(known.unit * unit)
        op = CrossbarMvm(StoredWeights(weight, crossbar), bias, scale, crossbar.no_references)
        return builder.add(name, op, driven)


def quotients(x: Array, values: IntArray) -> FloatArray:
    """|x|^2 / x.r of each row; 0 if its codes say nothing of it."""
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
