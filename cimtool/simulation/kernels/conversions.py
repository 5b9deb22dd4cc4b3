"""Layers with converters on every CPU: matrix products give column sums, one pass converts them.

On a die the pass also adds noise and converter errors. Blocks of rows run in parallel threads, each
with a BLAS of one thread. All arithmetic is exact integers, or float32 in one fixed order. So the
numbers equal the readable operations'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.compiled import jit
from cimtool.base.threads import map_rows
from cimtool.hardware.converters import Law, StaircaseLaw, UniformLaw
from cimtool.hardware.noise.fresh import GOLDEN, MIX_1, mix, normal, row_keys
from cimtool.hardware.noise.mvm import (
    CURVE_BITS,
    FACTOR_BITS,
    GAIN_BITS,
    ConverterErrors,
    NoisyMvm,
    converter_span,
)
from cimtool.hardware.references import exponents
from cimtool.simulation.kernels.choice import Kernel
from cimtool.simulation.kernels.products import Factor, weight_product
from cimtool.simulation.kernels.staircases import Tables, look_up, tables_of

EXPONENT_52 = 0x433 << 52
"""The bits of 2^52 as a float64."""

SUMS_IN_CACHE = 1 << 20
"""Column sums that are computed before they are converted."""

GROUP_ROWS = 64
"""Least rows per block: they share the loads of a row group's cells, which are much larger."""

TILE = 256
"""Columns whose Cholesky factors fit the L1 cache."""

NOTHING = np.zeros((0, 0, 0), np.int64)


class Reading(NamedTuple):
    """The conversions of column sums, as compiled code takes them.

    `rise`: binary places by which references are finer than sums. A slice has one reference per
    cycle, or one for all cycles; `cycles` is their number. `steps` [groups, references, N], or
    [.., 1] if the columns of a slice share one, are 0 if a sum is not converted. `shifts` are log2
    of the steps, or -1 if a step is no power of two. `offsets` [groups, references, N] are empty if
    all converters count from zero. Codes of equal steps run from `lo` to `hi`; staircases have
    `tables`. `spans` [groups, references, N or 1, 2] come from `converter_span`. A die adds the
    `scale` of fresh noise, converter `errors` and `multipliers` [groups, slices, N]; those that it
    does not have are empty.
    """

    rise: int
    cycles: int
    steps: IntArray
    shifts: IntArray
    offsets: IntArray
    lo: int
    hi: int
    half: bool
    to_even: bool
    tables: Tables
    spans: IntArray
    scale: np.float32
    errors: ConverterErrors
    multipliers: IntArray


def reading_of(op: NoisyMvm) -> Reading:
    """Collect the conversions of a layer for compiled code."""
    columns, crossbar = op.layer.of_slices, op.crossbar
    law: Law = crossbar.law or UniformLaw(0, 0, "floor")
    steps = np.stack([one.step for one in columns], axis=1)
    if all(one.one_step is not None for one in columns):
        steps = steps[:, :, :1]
    shape = len(steps), steps.shape[2]
    spans = np.ones((2, shape[0], len(columns), shape[1]), np.int64)
    for place, one in zip(range(len(columns)), op.layer.references, strict=False):
        if one is not None:
            for part, of_columns in zip(spans, converter_span(law, one), strict=True):
                part[:, place] = of_columns[:, : shape[1]]
    offset = np.stack([one.offset for one in columns], axis=1)
    half, to_even = (False, False) if isinstance(law, StaircaseLaw) else (law.half, law.to_even)
    return Reading(
        rise=crossbar.reference_bits,
        cycles=crossbar.reference_cycles,
        steps=steps,
        shifts=exponents(steps),
        offsets=offset if offset.any() else NOTHING,
        lo=law.lo,
        hi=law.hi,
        half=half,
        to_even=to_even,
        tables=tables_of([one.law for one in columns]),
        spans=np.moveaxis(spans, 0, -1).copy(),
        scale=np.float32(0) if op.fresh is None else op.fresh.scale,
        errors=op.errors or ConverterErrors(NOTHING, NOTHING, NOTHING),
        multipliers=NOTHING if op.factors is None else op.factors,
    )


class ConversionKernel:
    """Packs a layer's cells once. A call computes `NoisyMvm.run` for inputs [n, K]."""

    def __init__(self, op: NoisyMvm):
        self.op, self.layer = op, op.layer
        crossbar, cells = op.crossbar, op.cells
        self.groups, self.idle, self.counts = cells.groups, cells.idle_sums, cells.counts
        lo, hi = crossbar.digit_limits
        self.sums = _products([s.digits for s in cells.slices], self.groups, (lo, hi))
        self.pairs: tuple[tuple[int, int], ...] = ()
        if op.fresh is not None:
            self.pairs = op.fresh.pairs(crossbar)
            reach = max(-lo, hi) ** 2
            ends = (-reach if lo < 0 and op.fresh.shared else 0), reach
            self.variances = _products(op.fresh.variance, self.groups, ends)
        per_row = max(len(crossbar.cycles), len(self.pairs)) * self.counts[0].size
        self.height = max(1, SUMS_IN_CACHE // per_row)
        self.reading = reading_of(op)
        columns = list(zip(op.layer.columns, op.layer.references, strict=True))
        self.unit = columns[len(op.layer.of_slices) :]
        self.row_factors, self.start = op.layer.row_factors, op.layer.start
        self.start += 1 << cells.places >> 1

    def __call__(self, x: Array) -> Array:
        """The layer's outputs int64 [n, N]."""
        op, bias, places = self.op, self.layer.bias, self.op.cells.places
        total = np.zeros((len(x), len(bias)), np.int64)

        def work(block: slice) -> None:
            part = total[block]
            self._add(x[block], part)
            part += self.start
            part >>= places
            part += bias
            np.clip(part, op.lo, op.hi, out=part)

        map_rows(work, len(x), max(self.height, GROUP_ROWS))
        return total

    def _add(self, x: Array, total: IntArray) -> None:
        """Add the arrays' values for inputs [n, K] to `total` [n, N]."""
        crossbar, cycle_factors = self.op.crossbar, self.op.crossbar.cycle_factors
        digits, keys = crossbar.digits(x), self._keys(x)
        for r, group in enumerate(self.groups):
            for start in range(0, len(x), self.height):
                part = slice(start, start + self.height)
                own = digits[:, part], keys[part]
                self._group(r, *own, self.counts[r], cycle_factors, total[part])
            row_sums = digits[:, :, group].sum(axis=2)
            if self.row_factors[r].any():
                total += (cycle_factors @ row_sums)[:, None] * self.row_factors[r]
            for column, references in self.unit:
                read = crossbar.read(row_sums[column.cycles, :, None], references, r)
                total += (cycle_factors[column.cycles] @ read[..., 0])[:, None] * column.factors[r]

    def _keys(self, x: Array) -> Array:
        fresh = self.op.fresh
        return np.zeros(len(x), np.uint64) if fresh is None else row_keys(x, fresh.key)

    def _group(
        self, r: int, digits: IntArray, keys: Array, counts: IntArray, factors: IntArray,
        total: IntArray,
    ) -> None:  # fmt: skip
        """Convert the sums of row group `r` and add them to `total` [rows, N].

        `digits` [cycles, rows, K] drive the group. `counts` [slices, N] and `factors` [cycles]
        weight the converted sums.
        """
        driven = np.ascontiguousarray(digits[:, :, self.groups[r]])
        variances: Array = np.zeros((0, 0, 0, 0), np.float32)
        if self.op.fresh is not None:
            squares = np.stack([driven[a] * driven[b] for a, b in self.pairs])
            variances = self._summed(squares, self.variances[r]).astype(np.float32, copy=False)
        sums = self._summed(driven, self.sums[r])
        _read(sums, variances, keys, r, self.reading, self.idle[r], counts, factors, total)

    def readings(self, x: IntArray) -> IntArray:
        """Converted sums [groups, slices, n, N] of inputs [n, K], added over cycles."""
        digits, keys = self.op.crossbar.digits(x), self._keys(x)
        groups, slices, width = self.counts.shape
        found = np.zeros((groups, slices, len(x), width), np.int64)

        def work(place: int) -> None:
            r, k = divmod(place, slices)
            counts = np.zeros_like(self.counts[r])
            counts[k] = 1
            self._group(r, digits, keys, counts, self.op.crossbar.cycle_factors, found[r, k])

        map_rows(lambda block: work(block.start), groups * slices, 1)
        return found

    def clipped(self, x: IntArray) -> float:
        """The share of column sums outside the converters' range, for inputs [n, K]."""
        columns = self.layer.of_slices
        ends = [one.law.ends for one in columns if one.law is not None]
        if len(ends) < len(columns):
            return 0.0
        # [2, groups, references, N or 1]
        limits = np.array(ends, np.int64).T[:, None, :, None] * self.reading.steps
        digits, offsets = self.op.crossbar.digits(x), self.reading.offsets
        shares = []
        for r, (group, product) in enumerate(zip(self.groups, self.sums, strict=True)):
            sums = self._summed(np.ascontiguousarray(digits[:, :, group]), product)
            sums = sums.astype(np.int64) << self.reading.rise
            sums = sums - self._by_cycle(offsets[r]) if len(offsets) else sums
            lo, hi = (self._by_cycle(end[r]) for end in limits)
            shares.append(np.mean((sums < lo) | (sums > hi)))
        return float(np.mean(shares))

    def _by_cycle(self, values: IntArray) -> IntArray:
        """Values [references, ..] as [cycles, 1, slices, ..]; one cycle if they share one."""
        own = values.reshape(-1, self.reading.cycles, *values.shape[1:])
        return own.swapaxes(0, 1)[:, None]

    def _summed(self, driven: IntArray, product: Kernel) -> Array:
        """Column sums [cycles, rows, slices, N] for `driven` [cycles, rows, K] of a row group."""
        sums = product(driven.reshape(-1, driven.shape[2]))
        return sums.reshape(*driven.shape[:2], *self.counts.shape[1:])


def _products(
    parts: Sequence[IntArray], groups: tuple[slice, ...], inputs: tuple[int, int]
) -> list[Kernel]:
    """One exact product per row group, slices side by side, for inputs within limits."""
    found: list[Kernel] = []
    for group in groups:
        cells = np.hstack([part[group] for part in parts]).astype(np.int64)
        lo, hi = (np.full(len(cells), edge) for edge in inputs)
        found.append(weight_product(cells, np.zeros(cells.shape[1], np.int64), Factor(lo, hi)))
    return found


@jit
def _read(  # type: ignore[no-untyped-def]
    sums, variances, keys, group, reading, unused, counts, factors, total
):
    """Convert a row group's column sums and add their values to `total` [rows, N]."""
    cycles, rows, slices, width = sums.shape
    errors, multipliers, offsets = reading.errors, reading.multipliers, reading.offsets
    p, none, added = np.empty(width, np.int64), np.zeros(width, np.int64), np.empty(width, np.int64)
    noise = np.empty((cycles, width), np.float32)
    fresh, scaled = variances.shape[0] > 0, multipliers.shape[0] > 0
    steps, shifts, spans = reading.steps, reading.shifts, reading.spans
    shared = steps.shape[2] == 1 or errors.offset.shape[0] > 0 or len(reading.tables.entries) > 0
    narrow = (reading.hi + 1 - reading.lo) * steps.max() < 1 << 50
    in_vectors = not shared and narrow and not reading.to_even
    alike = width // steps.shape[2]  # columns that share a step: all or one
    for i in range(rows):
        for k in range(slices):
            added[:] = 0
            if fresh:
                _noise(variances, keys[i], group * slices + k, i, k, noise)
            for c in range(cycles):
                at = k * reading.cycles + c % reading.cycles
                converts = steps[group, at, 0] > 0
                start = offsets[group, at] if converts and offsets.shape[0] else none
                if fresh:
                    for j in range(width):
                        read = noise[c, j] * reading.scale
                        p[j] = np.int64(sums[c, i, k, j]) + unused[c]
                        p[j] += np.int64(np.floor(read + np.float32(0.5)))
                        p[j] = (p[j] << reading.rise) - start[j]
                else:
                    for j in range(width):
                        p[j] = (np.int64(sums[c, i, k, j]) + unused[c] << reading.rise) - start[j]
                if converts and in_vectors:
                    _divided_by_each(p, reading, steps[group, at])
                for m in range(steps.shape[2] if converts and not in_vectors else 0):
                    some = slice(m * alike, (m + 1) * alike)
                    of, step, shift = p[some], steps[group, at, m], shifts[group, at, m]
                    if errors.offset.shape[0]:
                        offset, gain = errors.offset[group, at, some], errors.gain[group, at, some]
                        lowest, span = spans[group, at, m]
                        _err(of, offset, gain, errors.bow[group, at, some], lowest, span)
                    if len(reading.tables.entries):
                        look_up(of, reading.tables, at, step, shift)
                    elif shift >= 0:
                        _shifted(of, reading, shift)
                    else:
                        divided(of, reading, step)
                if scaled:
                    half = 1 << FACTOR_BITS >> 1
                    for j in range(width):
                        p[j] = ((p[j] + start[j]) * multipliers[group, k, j] + half) >> FACTOR_BITS
                    start = none
                factor = factors[c]
                for j in range(width):
                    added[j] += factor * (p[j] + start[j])
            for j in range(width):
                total[i, j] += counts[k, j] * added[j]


@jit
def _shifted(p, reading, shift):  # type: ignore[no-untyped-def]
    """Convert with the step 2^shift."""
    half = (1 << shift) >> 1 if reading.half else 0
    even = 1 if reading.to_even and shift > 0 else 0
    lo, hi = reading.lo, reading.hi
    for j in range(len(p)):
        code = (p[j] + half - even + ((p[j] >> shift) & even)) >> shift
        p[j] = min(max(code, lo), hi) << shift


@jit
def divided(p, reading, step):  # type: ignore[no-untyped-def]
    """Convert with any step; in vectors if the converter's range is below 2^50.

    Then (p + 1/2) / step is farther from a whole number than the rounding error of float64.
    Otherwise, for sums below 2^53, the quotient is off by at most 1 and is corrected. AVX2 cannot
    convert 64-bit integers to float64. But an integer from 0 to 2^52 is the fraction of a float64
    with the exponent of 2^52.
    """
    half = step >> 1 if reading.half else 0
    even = 1 if reading.to_even and step % 2 == 0 else 0
    inverse, lo, hi = 1.0 / step, reading.lo, reading.hi
    if not even and (hi + 1 - lo) * step < 1 << 50:
        least, most, wide = lo * step, (hi + 1) * step - 1, np.float64(step)
        above = p.view(np.float64)
        for j in range(len(p)):
            p[j] = min(max(p[j] + half, least), most) - least + EXPONENT_52
        for j in range(len(p)):
            code = np.floor((above[j] - 2.0**52 + 0.5) * inverse)
            above[j] = code * wide + 2.0**52
        for j in range(len(p)):
            p[j] += least - EXPONENT_52
        return
    for j in range(len(p)):
        moved = p[j] + half
        code = np.int64(np.floor(moved * inverse))
        rest = moved - code * step
        code += np.int64(rest >= step) - np.int64(rest < 0)
        if even and code * step == moved:
            code &= -2
        p[j] = min(max(code, lo), hi) * step


@jit
def _divided_by_each(p, reading, steps):  # type: ignore[no-untyped-def]
    """Convert with a step of each column, as `divided` does in vectors."""
    lo, codes, half = reading.lo, reading.hi + 1 - reading.lo, 1 if reading.half else 0
    above = p.view(np.float64)
    for j in range(len(p)):
        moved = p[j] - lo * steps[j] + half * (steps[j] >> 1)
        p[j] = min(max(moved, 0), codes * steps[j] - 1) + EXPONENT_52
    for j in range(len(p)):
        wide = np.float64(steps[j])
        above[j] = np.floor((above[j] - 2.0**52 + 0.5) / wide) * wide + 2.0**52
    for j in range(len(p)):
        p[j] += lo * steps[j] - EXPONENT_52


@jit
def _err(p, offset, gain, bow, lowest, span):  # type: ignore[no-untyped-def]
    inverse = 1.0 / span
    for j in range(len(p)):
        place = min(max(p[j] - lowest, 0), span) << CURVE_BITS
        u = np.int64(np.floor(place * inverse))
        rest = place - u * span
        u += np.int64(rest >= span) - np.int64(rest < 0)
        risen = (u * ((1 << CURVE_BITS) - u)) >> (CURVE_BITS - 2)
        bent = (bow[j] * risen + (1 << CURVE_BITS >> 1)) >> CURVE_BITS
        scaled = (p[j] * gain[j] + (1 << GAIN_BITS >> 1)) >> GAIN_BITS
        p[j] += scaled + offset[j] + bent


@jit
def _noise(variances, key, conversion, i, k, noise):  # type: ignore[no-untyped-def]
    """Draw the noise [cycles, N] of one row and slice, in units of the root of a variance."""
    cycles, width = noise.shape
    zero = np.float32(0)
    if variances.shape[0] == cycles:
        for c in range(cycles):
            own = mix(key + np.uint64(conversion * cycles + c + 1) * MIX_1)
            for j in range(width):
                root = np.sqrt(variances[c, i, k, j])
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
                    rest[j] = variances[pair, i, k, start + j]
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
