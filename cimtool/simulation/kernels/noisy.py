"""`NoisyMvm` fast: column sums by matrix products, then one pass that reads them as the die does.

Blocks of rows run side by side in threads, each with a BLAS of one thread. Everything is an exact
integer, or float32 arithmetic in one fixed order: the numbers are those of the readable operation.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.compiled import jit, map_rows
from cimtool.hardware.converters import THRESHOLD_BITS
from cimtool.hardware.noise.converter_errors import CURVE_BITS, GAIN_BITS, converter_span
from cimtool.hardware.noise.gaussian import GOLDEN, MIX_1, mix, normal, row_keys
from cimtool.hardware.noise.mvm import FACTOR_BITS, NoisyMvm
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.types import integer
from cimtool.simulation.kernels.choice import Kernel, fused_cells
from cimtool.simulation.kernels.portable import formula_of, steps_below
from cimtool.simulation.kernels.products import weight_product

SUMS_IN_CACHE = 1 << 20
"""So many column sums are made before they are read."""

GROUP_ROWS = 64
"""Rows for which a row group's cells are kept near: they are much larger than the rows."""

TILE = 256
"""Columns whose Cholesky factors stay in the first cache while they are made."""

NOTHING = np.zeros((0, 0, 0), np.int64)


def noisy_kernel(op: NoisyMvm) -> Callable[..., Array]:
    """The fastest form of a layer on a die.

    Where arrays are all that differs, its cells are integers like any others: the fused kernels
    take them.
    """
    fused = None
    if op.plain:
        fused = fused_cells(op.cells, op.crossbar, op.steps, op.offset)
    if fused is None:
        return NoisyKernel(op)
    sums = fused

    def run(x: Array) -> Array:
        return np.clip(sums(x), op.lo, op.hi)

    return run


class NoisyKernel:
    """Packs a layer's cells once; called with inputs [n, K] it returns what `NoisyMvm.run` does."""

    def __init__(self, op: NoisyMvm):
        self.op = op
        crossbar, slices, stored = op.crossbar, op.cells.slices, op.perfect.stored
        self.groups, self.idle = stored.groups, stored.idle_rows
        self.cycles, self.zero = crossbar.cycles, crossbar.zero_digits
        lo, hi = crossbar.digit_limits
        reach = max(-lo, hi)
        self.sums = _products([s.digits for s in slices], self.groups, (lo, hi))
        self.pairs: tuple[tuple[int, int], ...] = ()
        if op.fresh is not None:
            self.pairs = op.fresh.pairs(crossbar)
            ends = (-(reach**2) if lo < 0 and op.fresh.shared else 0), reach**2
            self.variances = _products(list(op.fresh.variance), self.groups, ends)
        per_row = max(len(self.cycles), len(self.pairs)) * len(slices) * op.offset.size
        self.height = max(1, SUMS_IN_CACHE // per_row)
        self._constants()

    def _constants(self) -> None:
        op, crossbar = self.op, self.op.crossbar
        slices, fraction = op.cells.slices, op.cells.fraction_bits
        self.steps = np.array([-1 if s is None else s for s in op.fine_steps], np.int64)
        law = crossbar.law
        self.formula = formula_of(law)
        self.span = (0, 0) if law is None else converter_span(law, 0)
        counts = np.array([s.sign << s.shift for s in slices], np.int64)
        self.factors = crossbar.cycle_factors[:, None] * counts
        self.flipped = np.stack([s.flipped for s in slices], axis=1)
        self.top = crossbar.cell_maximum << fraction
        self.scale = np.float32(0) if op.fresh is None else op.fresh.scale
        self.multipliers = NOTHING if op.factors is None else op.factors
        errors = op.errors
        self.errors = (NOTHING,) * 3 if errors is None else (errors.offset, errors.gain, errors.bow)

    def __call__(self, x: Array) -> Array:
        """The layer's outputs int64 [n, N]."""
        op = self.op
        total = np.zeros((len(x), op.offset.size), np.int64)
        fraction = op.cells.fraction_bits

        def work(block: slice) -> None:
            part = total[block]
            self._add(x[block], part)
            part += 1 << fraction >> 1
            part >>= fraction
            part += op.offset
            np.clip(part, op.lo, op.hi, out=part)

        map_rows(work, len(x), max(self.height, GROUP_ROWS))
        return total

    def _add(self, x: IntArray, total: IntArray) -> None:
        op, crossbar = self.op, self.op.crossbar
        digits = crossbar.digits(x)
        keys = np.zeros(len(x), np.uint64)
        if op.fresh is not None:
            keys = row_keys(x, op.fresh.key)
        for r in range(len(self.groups)):
            row_sums = digits[:, :, self.groups[r]].sum(axis=2)
            leaks = op.cells.leak * (row_sums + (self.idle[r] * self.zero)[:, None])
            tops, flipped = self.top * row_sums, self.flipped[r]
            for start in range(0, len(x), self.height):
                part = slice(start, start + self.height)
                own = digits[:, part], keys[part], r, leaks[:, part], tops[:, part]
                self._group(*own, flipped, self.factors, total[part])
        if crossbar.weights.offset:
            weighted = crossbar.cycle_factors @ digits.sum(axis=2)
            total -= (weighted * crossbar.weights.offset << op.cells.fraction_bits)[:, None]

    def _group(
        self,
        digits: IntArray,
        keys: Array,
        r: int,
        leaks: IntArray,
        tops: IntArray,
        flipped: Array,
        factors: IntArray,
        total: IntArray,
    ) -> None:
        """Add what row group `r` makes of its digits [cycles, rows, K] to `total` [rows, N]."""
        driven = np.ascontiguousarray(digits[:, :, self.groups[r]])
        _read(
            self._summed(driven, self.sums[r]),
            self._varied(driven, r),
            keys,
            r,
            self.scale,
            self.op.cells.leak * self.idle[r] * self.zero,
            leaks,
            tops,
            *self.errors,
            self.multipliers,
            flipped,
            self.steps,
            self.formula,
            self.span,
            factors,
            total,
        )

    def readings(self, x: IntArray) -> IntArray:
        """What converters say [groups, slices, n, N] of inputs [n, K], their cycles added up."""
        op = self.op
        digits = op.crossbar.digits(x)
        keys = np.zeros(len(x), np.uint64) if op.fresh is None else row_keys(x, op.fresh.key)
        slices, width = len(op.cells.slices), op.offset.size
        found = np.zeros((len(self.groups), slices, len(x), width), np.int64)
        nothing = np.zeros((len(self.cycles), len(x)), np.int64)
        weights = op.crossbar.cycle_factors
        plain = np.zeros_like(self.flipped[0])

        def work(place: int) -> None:
            r, k = divmod(place, slices)
            factors = np.zeros_like(self.factors)
            factors[:, k] = weights
            self._group(digits, keys, r, nothing, nothing, plain, factors, found[r, k])

        map_rows(lambda block: work(block.start), len(self.groups) * slices, 1)
        return found

    def clipped(self, x: IntArray) -> float:
        """The share of column sums of inputs [n, K] that lie outside their converters' range."""
        if not self.converts or self.op.crossbar.law is None:
            return 0.0
        lo, hi = self.op.crossbar.law.ends
        digits = self.op.crossbar.digits(x)
        steps = self.steps[:, None]
        shares = []
        for r, group in enumerate(self.groups):
            sums = self._summed(np.ascontiguousarray(digits[:, :, group]), self.sums[r])
            shares.append(np.mean((sums < lo << steps) | (sums > hi << steps)))
        return float(np.mean(shares))

    @property
    def converts(self) -> bool:
        """Whether column sums are converted at all."""
        return bool((self.steps >= 0).all())

    def _summed(self, driven: IntArray, product: Kernel) -> Array:
        """Column sums [cycles, rows, slices, N] of what a row group's cycles drive."""
        count, rows, width = driven.shape
        sums = product(driven.reshape(-1, width))
        return sums.reshape(count, rows, len(self.op.cells.slices), self.op.offset.size)

    def _varied(self, driven: IntArray, r: int) -> Array:
        if self.op.fresh is None:
            return np.zeros((0, 0, 0, 0), np.int32)
        squares = np.stack([driven[a] * driven[b] for a, b in self.pairs])
        return self._summed(squares, self.variances[r])


def _products(
    parts: list[IntArray], groups: tuple[slice, ...], inputs: tuple[int, int]
) -> list[Kernel]:
    """Exact products with slices side by side, one a row group, of digits within limits."""
    found: list[Kernel] = []
    for group in groups:
        cells = np.hstack([part[group] for part in parts]).astype(np.int64)
        largest = int(np.abs(cells).sum(axis=0).max()) * max(-inputs[0], inputs[1])
        kind = np.int32 if largest < 1 << 31 else np.int64
        columns = cells.shape[1]
        layer = Mvm(cells, np.zeros(columns, np.int64), np.ones(columns))
        known = integer(("n", len(cells)), *inputs, 1.0)
        found.append(weight_product(layer, known, kind))
    return found


@jit
def _read(  # type: ignore[no-untyped-def]
    sums, variances, keys, group, scale, unused, leaks, tops, offset, gain, bow, multipliers,
    flipped, steps, formula, span, factors, total,
):  # fmt: skip
    """Add to `total` [rows, N] what the digital side makes of a row group's column sums."""
    cycles, rows, slices, width = sums.shape
    lowest, bits = span
    p = np.empty(width, np.int64)
    noise = np.empty((cycles, width), np.float32)
    for i in range(rows):
        for k in range(slices):
            if variances.shape[0]:
                _noise(variances, keys[i], group * slices + k, i, k, noise)
            for c in range(cycles):
                for j in range(width):
                    p[j] = np.int64(sums[c, i, k, j]) + unused[c]
                if variances.shape[0]:
                    for j in range(width):
                        p[j] += np.int64(np.floor(noise[c, j] * scale + np.float32(0.5)))
                if steps[k] >= 0:
                    step = steps[k]
                    if offset.shape[0]:
                        _err(
                            p,
                            offset[group, k],
                            gain[group, k],
                            bow[group, k],
                            lowest << step,
                            bits + step,
                        )
                    if len(formula.levels):
                        _tabled(p, formula, step)
                    else:
                        _rounded(p, formula, step)
                if multipliers.shape[0]:
                    for j in range(width):
                        half = 1 << FACTOR_BITS >> 1
                        p[j] = (p[j] * multipliers[group, k, j] + half) >> FACTOR_BITS
                leak, top, factor = leaks[c, i], tops[c, i], factors[c, k]
                for j in range(width):
                    value = p[j] - leak
                    total[i, j] += factor * (top - value if flipped[k, j] else value)


@jit
def _rounded(p, formula, step):  # type: ignore[no-untyped-def]
    half = (1 << step) >> 1 if formula.half else 0
    for j in range(len(p)):
        code = (p[j] + half) >> step
        if formula.to_even and step > 0 and (code << step) == p[j] + half:
            code &= -2
        p[j] = min(max(code, formula.lo), formula.hi) << step


@jit
def _tabled(p, formula, step):  # type: ignore[no-untyped-def]
    for j in range(len(p)):
        below = steps_below(formula.thresholds, p[j] << THRESHOLD_BITS, step)
        p[j] = formula.levels[below] << step


@jit
def _err(p, offset, gain, bow, lowest, span_bits):  # type: ignore[no-untyped-def]
    shift = CURVE_BITS - span_bits
    for j in range(len(p)):
        place = min(max(p[j] - lowest, 0), 1 << span_bits)
        u = place << shift if shift >= 0 else place >> -shift
        risen = (u * ((1 << CURVE_BITS) - u)) >> (CURVE_BITS - 2)
        bent = (bow[j] * risen + (1 << CURVE_BITS >> 1)) >> CURVE_BITS
        scaled = (p[j] * gain[j] + (1 << GAIN_BITS >> 1)) >> GAIN_BITS
        p[j] += scaled + offset[j] + bent


@jit
def _noise(variances, key, conversion, i, k, noise):  # type: ignore[no-untyped-def]
    """The noise [cycles, N] of one row and slice, still in the units of the variances' roots."""
    cycles, width = noise.shape
    zero = np.float32(0)
    if variances.shape[0] == cycles:
        for c in range(cycles):
            own = mix(key + np.uint64(conversion * cycles + c + 1) * MIX_1)
            for j in range(width):
                root = np.sqrt(np.float32(variances[c, i, k, j]))
                noise[c, j] = root * normal(own + np.uint64(j) * GOLDEN)
        return
    factor = np.empty((cycles, cycles, TILE), np.float32)
    z = np.empty((cycles, TILE), np.float32)
    rest = np.empty(TILE, np.float32)
    for start in range(0, width, TILE):
        count, pair = min(TILE, width - start), 0
        for a in range(cycles):
            own = mix(key + np.uint64(conversion * cycles + a + 1) * MIX_1)
            for j in range(count):
                z[a, j] = normal(own + np.uint64(start + j) * GOLDEN)
                noise[a, start + j] = zero
            for b in range(a + 1):
                for j in range(count):
                    rest[j] = np.float32(variances[pair, i, k, start + j])
                for n in range(b):
                    left, right = factor[a, n], factor[b, n]
                    for j in range(count):
                        rest[j] -= left[j] * right[j]
                found, pivots = factor[a, b], factor[b, b]
                if b < a:
                    for j in range(count):
                        pivot = pivots[j]
                        found[j] = rest[j] / pivot if pivot > zero else zero
                else:
                    for j in range(count):
                        found[j] = np.sqrt(max(rest[j], zero))
                for j in range(count):
                    noise[a, start + j] += found[j] * z[b, j]
                pair += 1
