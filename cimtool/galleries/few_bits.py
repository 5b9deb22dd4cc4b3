"""Shortlists of few bits: the code that an item stores of `mu`, and the estimate of its distance.

Let t be a query and x = v - m an item minus the centre m of all items. The code of x has values r:
odd numbers of half steps, or even numbers in pairs of cells, which can store 0. Then

    ed = ed_v - 2 t.v  ~  ed_v - 2 m.v - 2 (|x|^2 / x.r) (t - m).r  + terms equal for all items

The quotient makes the estimate exact for t = v, even if the code is coarse. This is the estimator
of RaBitQ (Gao and Long 2024, arXiv 2405.12497), without its rotation. The quotient is stored as one
factor of FACTOR_BITS bits per item; the digital unit multiplies each product by it.

With fewer dimensions, principal components of the calibration rows are coded. They hold most of the
variance, but unevenly: codes of few bits with one common step would waste bits on the small
components. RaBitQ's rotation within the components, drawn once, spreads the variance evenly and
keeps every product.
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
"""Bits of the largest factor; a factor 32 times smaller is still right to 1 part in 200."""

SHARES = np.linspace(0.5, 1, 21)
"""Candidates for a range, as the share of values inside it; the least loss decides."""

MOST_ROWS = 256
"""Rows of each side on which ranges are chosen; more rows would not change the choice."""


NEGLIGIBLE = 1e-9
"""Share of the largest variance below which a component is only rounding error."""

ROTATION_SEED = 16
"""Any seed would do."""


@dataclass(frozen=True, eq=False)
class Examples:
    """Calibration rows `text` and `video`, integer `mu` [rows, d], on which ranges are chosen."""

    text: IntArray
    video: IntArray


class CentredRows:
    """The centre of a score's calibration rows; items and queries are coded relative to it.

    `query` and `item` are the types of their `mu`; `of_query` and `of_item` [d] are the centre in
    the units of each, and `unit` is the unit of their product.
    """

    def __init__(self, score: Graph, examples: Examples):
        self.query, self.item = (score.inputs[f"{side}.mu"] for side in ("text", "video"))
        units = float(self.query.unit), float(self.item.unit)
        centre = np.concatenate([examples.text * units[0], examples.video * units[1]]).mean(axis=0)
        self.of_query, self.of_item = (round_half_up(centre / unit) for unit in units)
        self.unit = units[0] * units[1]
        self.self_terms = score.inputs.get("video.ed_self")

    def of_items(self, video: Mapping[str, Array]) -> FloatArray:
        """The terms `ed_v` [M] that depend only on items, in units of a product; 0 without any."""
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

        Only the order within a query counts, so terms equal for all items are left out.
        """
        places = FACTOR_BITS - int(np.frexp(factor.max())[1])
        factors = sign * round_half_up(np.ldexp(factor, places))
        offset = round_half_up(np.ldexp(own - own.min(), places)) - factors * centre
        finer = np.asarray(self.unit * 2.0**-places)
        builder.add(DISTANCE, Add((factors,), offset, finer), value)
        return builder.graph({DISTANCE: DISTANCE})


@dataclass(frozen=True, eq=False)
class Components:
    """An integer map `weight` [d, D], in steps, from rows minus their centre to components."""

    weight: IntArray
    step: float

    def of(self, rows: IntArray) -> IntArray:
        """The components [n, D] of integer rows [n, d]; float64 holds the sums exactly."""
        return (rows.astype(np.float64) @ self.weight.astype(np.float64)).astype(np.int64)


class PrincipalComponents:
    """The principal components of centred rows [n, d], by decreasing variance."""

    def __init__(self, rows: FloatArray):
        with one_blas_thread:
            variances, directions = np.linalg.eigh(rows.T @ rows)
        self.directions = directions[:, ::-1]
        differing = int((variances > NEGLIGIBLE * variances.max()).sum())
        self.most = min(differing, rows.shape[1] - 1)
        """The most dimensions of a map: as many as rows differ in, and fewer than d."""

    def of(self, dimensions: int, weight_bits: int) -> Components:
        """The map to `dimensions` dimensions, in weights of `weight_bits` bits.

        Raises ArgumentError unless `dimensions` is 1 to `most`.
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
    """Codes of `bits` bits, in steps; in pairs of cells digits are signed and may be 0."""

    bits: int
    step: float
    paired: bool

    @property
    def weight_bits(self) -> int:
        """Bits of a weight that holds a code, including its sign."""
        return max(self.bits, 2) if self.paired else self.bits

    def codes(self, x: Array) -> IntArray:
        """The codes of rows [M, d] minus their centre."""
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
    """The space in which a shortlist compares: calibration rows minus their centre, and codes.

    `text` and `video` [rows, D] are integers, whole `mu` or its components. If `paired`, items are
    stored in pairs of cells. Queries of `whole_bits` bits or more are driven unrounded.
    """

    def __init__(self, text: Array, video: Array, paired: bool, whole_bits: int | None):
        self.text = text[:MOST_ROWS].astype(np.float64)
        self.video = video[:MOST_ROWS].astype(np.float64)
        self.paired, self.whole_bits = paired, whole_bits
        self._gains: dict[int, float] = {}
        self._codes: dict[int, ItemCodes] = {}

    def gain(self, bits: int) -> float:
        """The step of a query in units of these rows; 1 if it is driven unrounded."""
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
        """The codes of items, with the step that loses least on the examples."""
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

    `score` is a compiled score that uses `ed`; its layers take their settings from `settings`.
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
        """The map to `dimensions` components, and the space of its results.

        Raises ArgumentError as `PrincipalComponents.of` does.
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
        """The value of whole `mu` that drives the arrays, and the centre [d] still in it."""
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
        """Add the product of `driven` and `weight`, in units of `driven` times `unit`.

        Raises CimError if no array can hold weights of `weight_bits` (None: the settings' bits).
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
    """|x|^2 / x.r of each row; 0 if x.r is not above 0."""
    size, held = (x * x).sum(axis=1, dtype=np.float64), (x * values).sum(axis=1, dtype=np.float64)
    found: FloatArray = np.divide(size, held, out=np.zeros_like(size), where=held > 0)
    return found


def _loss(found: FloatArray, exact: FloatArray, other: FloatArray) -> float:
    """The mean squared error of the products with the other side's rows."""
    return float(np.square((found - exact) @ other.T).mean())


def _least(x: FloatArray, top: float, error: Callable[[float], float]) -> float:
    """The step with the least error; a candidate's range of `top` steps holds a share of values."""
    ends = np.unique(np.quantile(np.abs(x), SHARES))
    steps = [float(end) / top for end in ends if end > 0]
    return min(steps, key=error, default=1.0)
