"""Errors of conversions at several references: the numbers that converters are fitted by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cimtool.base.arrays import FLOAT_BITS, Array, FloatArray, IntArray
from cimtool.base.compiled import jit
from cimtool.base.threads import map_rows
from cimtool.base.untrusted import NUMBER
from cimtool.hardware.bounds import full_scale, lossless
from cimtool.hardware.converted_layer import ConvertedColumns
from cimtool.hardware.converters import THRESHOLD_BITS, Law, StaircaseLaw
from cimtool.hardware.figures import SettableReference
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.references import REFERENCE_BITS, AdcReferences, ReferenceScope, exponents
from cimtool.simulation.kernels.products import product_kind
from cimtool.simulation.kernels.staircases import tables_of

TRIED_STEPS = 8
"""Powers of two that are tried, down from one whose codes reach beyond every sum that was seen."""

TRIED_OCTAVES = 4
"""Octaves of steps that are tried if any can be set, down from such a one."""

STEPS_PER_OCTAVE = 1 << REFERENCE_BITS
"""Steps of an octave: 4 to 7 quarters, so that a whole digit, which rounds nothing, is one."""

PLACES_OF_MEAN = (1, 2, 3, 4, 5, 1 << 30)
"""Places of the mean sum in a converter's range, in eighths of it; the last is beyond its end.

The last range starts at the least sum that there can be.
"""

MEAN_BITS = 40
"""Bits kept of an error before rows are counted and columns weighted, which takes 16 or so more."""
WEIGHT_STEPS = 255
"""Steps of the largest unit in which the units of columns count."""

MOST_KEPT = 1 << 28
"""Bytes of column sums that are kept; more are computed each time they are read."""

Limits = Mapping[str, SettableReference]
"""A target's word on a "step" or an "offset" that can be set, by these names."""

NO_LIMITS: Limits = {}

SAMPLED_COLUMNS = 128
"""Columns of a layer on which all references are tried; the best few are tried on every column.

References of single cycles, and levels, are tried on these columns only: there are too many.
"""


def sampled_columns(op: CrossbarMvm) -> slice:
    """The columns of a layer by which few of all references are chosen."""
    return slice(None, None, -(-op.weight.shape[1] // SAMPLED_COLUMNS))


def tried_columns(op: CrossbarMvm) -> slice:
    """The columns of a layer by which references are chosen in the end."""
    scope = op.crossbar.scope
    return sampled_columns(op) if scope.cycles or scope.levels else slice(None)


@dataclass(frozen=True)
class Tried:
    """Errors at a layer's output of one kind of column, by the references of its converters.

    `errors` [references, rows, columns], of the `tried_columns`, are whole numbers of 2^-places of
    the layer's unit. The first `free` references need converters whose references can be set.
    """

    references: tuple[AdcReferences, ...]
    errors: IntArray
    free: int = 0

    def at_steps(self, steps: Sequence[int]) -> Tried:
        """The references that have one of these steps."""
        kept = [i for i, one in enumerate(self.references) if one.step[0, 0] in steps]
        free = sum(i < self.free for i in kept)
        return Tried(tuple(self.references[i] for i in kept), self.errors[kept], free)


class GroupSums:
    """Exact column sums of a layer for inputs `x` [n, K], a row group at a time."""

    def __init__(self, op: CrossbarMvm, x: IntArray):
        crossbar, stored = op.crossbar, op.stored
        self.groups = stored.groups
        self.digits = crossbar.digits(x)
        self.counts = crossbar.cycle_factors
        self.idle = stored.cells.idle_sums

    def of_slice(self, conducts: IntArray, bound: int, cycles: range) -> Iterator[Array]:
        """Column sums [cycles, n, N] of every group for cells that conduct `conducts` [K, N]."""
        kind, own = product_kind(bound), slice(cycles.start, cycles.stop)
        digits, packed = self.digits[own].astype(kind), conducts.astype(kind)
        for group, idle in zip(self.groups, self.idle[:, own], strict=True):
            driven = np.ascontiguousarray(digits[:, :, group])
            product = np.matmul(driven.reshape(-1, driven.shape[2]), packed[group])
            sums = product.reshape(*driven.shape[:2], -1)
            yield sums + idle[:, None, None].astype(kind) if idle.any() else sums


def lossy_columns(op: CrossbarMvm) -> list[bool]:
    """True for each slice, and last for a unit column, that is not provably lossless."""
    rows = op.weight.shape[0]
    return [not lossless(column.bounds, op.crossbar, rows) for column in op.layer.columns]


def column_errors(
    op: CrossbarMvm,
    x: IntArray,
    scope: ReferenceScope,
    limits: Limits = NO_LIMITS,
    steps: Sequence[int] = (),
) -> Iterator[Tried | None]:
    """Errors of each slice at the tried references, and last of the unit column if there is one.

    For inputs `x` [n, K], with references that are set for as much as `scope` says, to what the
    `limits` hold, at these `steps` if there are some; None for columns that are provably
    lossless.
    """
    sums, law = GroupSums(op, x), op.crossbar.law
    for column, lossy in zip(op.layer.columns, lossy_columns(op), strict=True):
        if law is None or not lossy:
            yield None
            continue
        tried = Trial(op, law, sums, column, limits, tuple(steps))
        if not scope.chosen:
            step = full_scale(law, op.crossbar, op.weight.shape[0])
            yield tried.tried([AdcReferences.from_zero(step)])
        elif scope.set:
            yield tried.near_the_best(scope)
        else:
            yield tried.powers_of_two()


@dataclass(frozen=True)
class Trial:
    """The conversions of one kind of column of a layer, tried at several references."""

    op: CrossbarMvm
    law: Law
    sums: GroupSums
    column: ConvertedColumns
    limits: Limits
    steps: tuple[int, ...]

    def parts(self, columns: slice) -> Iterator[Array]:
        """Column sums [cycles, n, columns] of every row group."""
        if columns == slice(None) and self._kept is not None:
            return iter(self._kept)
        return self._parts(columns)

    def _parts(self, columns: slice) -> Iterator[Array]:
        cells = self.column.cells.digits[:, columns]
        return self.sums.of_slice(cells, self.column.reach, self.column.cycles)

    @cached_property
    def _kept(self) -> list[Array] | None:
        """The sums of all columns, which are read several times; None if there is no room."""
        rows, width = self.sums.digits.shape[1], self.column.cells.digits.shape[1]
        numbers = len(self.sums.groups) * len(self.column.cycles) * rows * width
        return [*self._parts(slice(None))] if NUMBER * numbers <= MOST_KEPT else None

    @property
    def counts(self) -> IntArray:
        """The weights of the cycles' sums in the output [cycles]."""
        own: IntArray = self.sums.counts[self.column.cycles.start : self.column.cycles.stop]
        return own

    def powers_of_two(self) -> Tried:
        """The errors at steps that are powers of two, from zero."""
        seen = max(int(np.abs(part).max()) for part in self.parts(slice(None)))
        return self.tried(self.fixed(seen))

    def fixed(self, seen: int) -> list[AdcReferences]:
        """The fixed references to try, for sums of at most `seen`."""
        last = max(1, seen.bit_length() - self.law.ends[1].bit_length() + 1)
        exponents = range(max(0, last + 1 - TRIED_STEPS), last + 1)
        places = self.op.crossbar.reference_bits
        return [AdcReferences.from_zero(1 << e + places) for e in exponents]

    def near_the_best(self, scope: ReferenceScope) -> Tried:
        """The errors at the references that are best for some columns, and at their neighbours."""
        means, lowest, (least, highest) = self.means()
        fixed = self.fixed(max(-least, highest))
        shares = self.shares(means) if scope.gains else np.ones((1, 1))
        if not scope.columns:
            middle = int(means.sum()) // means.size
            means, lowest = np.full((1, 1), middle), np.full((1, 1), lowest.min())
        lo, hi = self.law.ends
        wide = max(-(-(highest - int(lowest.min())) // (hi - lo)), 1).bit_length()
        octaves = range(max(wide - TRIED_OCTAVES, 0), wide + 1)
        tried = [m << e for e in octaves for m in range(STEPS_PER_OCTAVE, 2 * STEPS_PER_OCTAVE)]
        steps = list(self.steps) or sorted(set(self.settable("step", np.array(tried)).tolist()))
        fixed = [self.as_settable(one) for one in fixed]
        if self.steps:
            fixed = [one for one in fixed if one.step[0, 0] in steps]
        grid = [(i, j) for i in range(len(steps)) for j in range(len(PLACES_OF_MEAN))]
        made = {
            (i, j): self.around(means, lowest, self.shared(steps[i], shares), PLACES_OF_MEAN[j])
            for i, j in grid
        }
        some = sampled_columns(self.op)
        sampled = self.tried([*(made[place] for place in grid), *fixed], some).errors
        scale = np.broadcast_to(self.op.scale, self.op.weight.shape[1])[some]
        scatter = [np.dot(vector, vector) for vector in scatter_of(sampled, scale)]
        i, j = grid[int(np.argmin(scatter[: len(grid)]))]
        end = len(PLACES_OF_MEAN) - 1
        few = dict.fromkeys([(i, j), (i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1), (i, end)])
        free = [made[place] for place in few if place in made]
        if self.steps:  # the best place of each
            ranked = sorted(grid, key=lambda place: scatter[grid.index(place)])
            free = [made[next(p for p in ranked if p[0] == i)] for i in range(len(steps))]
        best = int(np.argmin(scatter[len(grid) :])) if fixed else 0
        few_fixed = fixed[max(best - 1, 0) : best + 2]
        if scope.levels:
            free = [one.with_equal_levels(self.law) for one in free]
            free += [fitted_levels(one, self.weighted_sums) for one in free]
            few_fixed = [one.with_equal_levels(self.law) for one in few_fixed]
        found = self.tried([*free, *few_fixed], tried_columns(self.op))
        return replace(found, free=len(free))

    def weighted_sums(self, references: AdcReferences) -> Iterator[tuple[IntArray, FloatArray]]:
        """Column sums [cycles, n, N] of some columns less their offsets, a row group at a time.

        Each has its weight: the square of its factor in an output, in the unit of the output.
        """
        width, outputs = self.column.cells.digits.shape[1], self.op.weight.shape[1]
        alike = width < outputs  # one column, which counts in all outputs
        some = slice(None) if alike else sampled_columns(self.op)
        scale = np.broadcast_to(self.op.scale, outputs)
        units = np.ones(1) if alike else np.square(scale[some] / scale.max())
        weights = np.square(self.counts.astype(np.float64))[:, None, None] * units
        for r, part in enumerate(self.parts(some)):
            fine = part.astype(np.int64) << self.op.crossbar.reference_bits
            fine -= np.broadcast_to(references.of_group(r)[1], width)[some]
            yield fine, np.broadcast_to(weights, fine.shape)

    def means(self) -> tuple[IntArray, IntArray, tuple[int, int]]:
        """The mean and the least possible sum [groups, N] of each column, and the ends of all sums.

        A cycle weighs as its errors do: by the square of its factor.
        """
        weights = np.square(self.counts)
        found, ends = [], [0]
        for part in self.parts(slice(None)):
            summed = np.tensordot(weights, part.astype(np.int64).sum(axis=1), 1)
            found.append(summed // (int(weights.sum()) * part.shape[1]))
            ends += [int(part.min()), int(part.max())]
        return np.stack(found), self.column.bounds[0], (min(ends), max(ends))

    def shares(self, means: IntArray) -> FloatArray:
        """The mean distance [groups, N] of each column's sums from their mean, by that of all.

        A cycle weighs as in `means`. Columns whose sums are all the same are as wide as the mean.
        """
        weights, found = np.square(self.counts), []
        for part, mean in zip(self.parts(slice(None)), means, strict=True):
            apart = np.abs(part.astype(np.int64) - mean).sum(axis=1)
            found.append(np.tensordot(weights, apart, 1))
        apart = np.stack(found)
        return np.where(apart > 0, apart / max(apart.sum() / apart.size, 1), 1.0)

    def shared(self, step: int, shares: FloatArray) -> IntArray:
        """Steps that can be set, in these shares of one."""
        whole = np.maximum(np.rint(step * shares), 1).astype(np.int64)
        return self.settable("step", whole)

    def around(
        self, means: IntArray, lowest: IntArray, step: IntArray, eighths: int
    ) -> AdcReferences:
        """Steps, and whole offsets that put the mean at a place of the range.

        The lowest code never lies below the least possible sum.
        """
        lo, hi = self.law.ends
        below = lo * step + (hi - lo) * step * eighths // 8
        offset = means - (below >> REFERENCE_BITS)
        least = lowest - (lo * step >> REFERENCE_BITS)
        found = np.maximum(offset, least) << REFERENCE_BITS
        return AdcReferences(step, self.settable("offset", found))

    def settable(self, reference: str, values: IntArray) -> IntArray:
        """The values of a reference that can be set that are nearest to these."""
        limit = self.limits.get(reference)
        return values if limit is None else limit.nearest(values, 1 << self.op.crossbar.places)

    def as_settable(self, one: AdcReferences) -> AdcReferences:
        """The references that can be set that are nearest to one."""
        return AdcReferences(self.settable("step", one.step), self.settable("offset", one.offset))

    def tried(self, references: Sequence[AdcReferences], columns: slice = slice(None)) -> Tried:
        """The errors of some columns at these references."""
        factors = self.column.factors
        width = self.column.cells.digits.shape[1]
        shared = width < factors.shape[1]  # one column, which counts in all outputs
        shape = len(references), self.sums.digits.shape[1], factors[:, columns].shape[1]
        errors = np.zeros(shape, np.int64)
        for r, part in enumerate(self.parts(slice(None) if shared else columns)):
            rows = [one.of_group(r) for one in references]
            offsets = np.stack([np.broadcast_to(offset, width) for _, offset in rows])
            each = max(len(step) for step, _ in rows)
            steps = np.stack([np.broadcast_to(step, each) for step, _ in rows])
            if shared:
                own, once = np.zeros((*shape[:2], 1), np.int64), np.ones(1, np.int64)
                self._add(part, once, references, (steps, offsets), own)
                errors += own * factors[r, columns]
            else:
                some = (steps if each == 1 else steps[:, columns]), offsets[:, columns]
                self._add(part, factors[r, columns], references, some, errors)
        return Tried(tuple(references), errors)

    def _add(
        self,
        sums: Array,
        factor: IntArray,
        references: Sequence[AdcReferences],
        set_to: tuple[IntArray, IntArray],
        errors: IntArray,
    ) -> None:
        """Add the errors of a row group whose columns count `factor` [N] times.

        The references are `set_to` steps [references, N or 1] and offsets [references, N] there.
        """
        law, rise = self.law, self.op.crossbar.reference_bits
        lo, hi = law.lo, law.hi
        laws, (steps, offsets) = [one.law(law) for one in references], set_to
        ends = (max(map(abs, own.ends)) for own in laws)
        largest = max(end * int(own.max()) for end, own in zip(ends, steps, strict=True))
        reach = (self.column.reach << rise) + 2 * int(np.abs(offsets).max()) + largest
        whole = reach * int(np.abs(self.counts).sum())
        integer = np.int32 if whole << THRESHOLD_BITS < 1 << 31 else np.int64
        half, to_even = False, False
        if not isinstance(law, StaircaseLaw):
            half, to_even = law.half, law.to_even
        tables = tables_of(laws)

        def part(index: slice) -> None:
            row = np.zeros(sums.shape[2], integer)
            rounding = lo, hi, half, to_even
            _errors(
                sums[:, index], rise, self.counts, factor, steps, exponents(steps),
                offsets.astype(integer), rounding, tables, row, errors[:, index],
            )  # fmt: skip

        map_rows(part, sums.shape[1], sums.shape[1])


@jit
def _errors(  # type: ignore[no-untyped-def]
    sums, rise, counts, factor, steps, shifts, offsets, rounding, tables, row, errors
):
    """Add to `errors` [references, rows, N]: by `tables` if they have entries, else by rounding."""
    cycles, rows, width = sums.shape
    alike = width // steps.shape[1]  # columns that share a step: all or one
    integer = row.dtype.type
    lo, hi = integer(rounding[0]), integer(rounding[1])
    entries, tabled = tables.entries, len(tables.entries) > 0
    for i in range(rows):
        for k in range(errors.shape[0]):
            offset, places, low = offsets[k], tables.places[k], tables.firsts[k]
            place, last = tables.spans[k]
            row[:] = 0
            for m in range(steps.shape[1]):
                # Without a sign: LLVM computes in vectors if no place can be below 0.
                some = range(np.uint64(m * alike), np.uint64((m + 1) * alike))
                step, shift = integer(steps[k, m]), integer(shifts[k, m])
                half = integer(steps[k, m] >> 1) if rounding[2] else integer(0)
                even = rounding[3] and step % 2 == 0
                inverse = 1.0 / steps[k, m]
                first, top = integer(lo * step), integer(integer(hi + 1 - lo) * step - 1)
                for c in range(cycles):
                    column = sums[c, i]
                    count = integer(counts[c])
                    if tabled:
                        for j in some:
                            x = (np.int64(column[j]) << rise) - offset[j]
                            x <<= places
                            entry = (x >> shift if shift >= 0 else x // step) - low
                            x >>= places
                            level = integer(entries[place + min(max(entry, 0), last)])
                            row[j] += integer(integer(level * step) - integer(x)) * count
                    elif shift >= 0:
                        for j in some:
                            x = integer(integer(integer(column[j]) << rise) - offset[j])
                            code = integer(integer(x + half) >> shift)
                            if even and integer(code << shift) == integer(x + half):
                                code = integer(code & integer(-2))
                            code = min(max(code, lo), hi)
                            row[j] += integer(integer(code << shift) - x) * count
                    else:  # integers have no division in vectors; half is less than float64 errs by
                        for j in some:
                            x = integer(integer(integer(column[j]) << rise) - offset[j])
                            above = integer(integer(x + half) - first)
                            held = min(max(above, integer(0)), top)
                            code = integer((held + 0.5) * inverse)
                            if even and integer(code * step) == above and (code + lo) & 1:
                                code = max(integer(code - 1), integer(0))
                            value = integer(integer(integer(code + lo) * step) - x)
                            row[j] += integer(value * count)
            for j in range(width):
                errors[k, i, j] += factor[j] * row[j]


def scatter_of(errors: IntArray, scale: Array) -> Array:
    """Errors [steps, n, N] less their mean over rows, in real units: a vector a step.

    Whole numbers in float64, few enough bits of each that every inner product of two is exact,
    and so the same on every machine; the largest has all these bits.
    """
    _, rows, width = errors.shape
    wide = max(int(np.abs(errors).max()).bit_length() - MEAN_BITS, 0)
    narrowed = errors >> wide
    weights = np.rint(scale / scale.max() * WEIGHT_STEPS).astype(np.int64)
    centred = (narrowed * rows - narrowed.sum(axis=1, keepdims=True)) * weights
    room = (FLOAT_BITS - (rows * width).bit_length()) // 2
    excess = max(int(np.abs(centred).max()).bit_length() - room, 0)
    vectors: Array = (centred >> excess).astype(np.float64).reshape(len(errors), -1)
    return vectors


ROUNDS = 100
"""Turns after which levels stay, even if they still move."""

WeightedSums = Callable[[AdcReferences], Iterable[tuple[IntArray, FloatArray]]]
"""Column sums less their offsets at some references, in parts, and the weight of each."""


@dataclass(frozen=True)
class Histogram:
    """Weights [B] of sums by whole steps from `first` on, and the same times the sum."""

    first: int
    weights: FloatArray
    moments: FloatArray

    @classmethod
    def of(cls, start: AdcReferences, law: StaircaseLaw, sums: WeightedSums) -> Histogram:
        """The sums about the range of equal levels, three times as long; others at its ends."""
        lowest, highest = int(law.thresholds[0]), int(law.thresholds[-1])
        span, step = max(highest - lowest, len(law.levels)), int(start.step[0, 0])
        first, count = lowest - span, highest - lowest + 2 * span
        weights, moments = np.zeros(count), np.zeros(count)
        for fine, weight in sums(start):
            place = np.clip(fine // step - first, 0, count - 1).ravel()
            held = np.clip(fine, first * step, (first + count) * step).ravel()
            weights += np.bincount(place, weight.ravel(), count)
            moments += np.bincount(place, weight.ravel() * held, count)
        return cls(first, weights, moments)

    @property
    def count(self) -> int:
        """The number of whole steps that it holds."""
        return len(self.weights)

    def moved(
        self, edges: IntArray, values: FloatArray, step: int
    ) -> tuple[float, IntArray, FloatArray]:
        """(gain, edges, values) if both stay, for `edges` of codes to start from.

        The gain is what of the sums' squares the values take off; values of codes without sums stay
        as they are.
        """
        below = np.concatenate([[0.0], np.cumsum(self.weights)])
        moments = np.concatenate([[0.0], np.cumsum(self.moments)])
        gain = 0.0
        for _ in range(ROUNDS):
            ends = np.concatenate([[0], edges, [self.count]])
            weight, moment = np.diff(below[ends]), np.diff(moments[ends])
            mean = moment / np.where(weight > 0, weight, 1)
            values = np.maximum.accumulate(np.where(weight > 0, mean, values))
            gain = float((mean * moment).sum())
            middle = np.ceil((values[1:] + values[:-1]) / (2 * step)).astype(np.int64)
            moved = _rising(middle - self.first, self.count)
            if np.array_equal(moved, edges):
                break
            edges = moved
        return gain, edges, values


def fitted_levels(start: AdcReferences, sums: WeightedSums) -> AdcReferences:
    """References whose levels are moved from the equal levels of `start` to the sums.

    It is the better of two searches: one starts from equal steps, one from codes as dense as the
    cube root of the weights, which is best for many codes.
    """
    law, step = start.levels, int(start.step[0, 0])
    assert law is not None
    seen = Histogram.of(start, law, sums)
    roots = np.cbrt(seen.weights)
    above = np.cumsum(roots)
    parts = np.arange(1, len(law.levels)) * (above[-1] / len(law.levels))
    starts = law.thresholds - seen.first, np.searchsorted(above - roots / 2, parts)
    values = law.levels.astype(np.float64) * step
    tried = [seen.moved(_rising(edges, seen.count), values, step) for edges in starts]
    _, edges, values = max(tried, key=lambda one: one[0])
    levels = np.rint(values / step).astype(np.int64) - seen.first
    found = _rising(levels, seen.count + 1) + seen.first
    made = StaircaseLaw(law.lo, edges + seen.first, found, places=0)
    return AdcReferences(start.step, start.offset, made)


def _rising(numbers: IntArray, end: int) -> IntArray:
    """Whole numbers from 0 to below `end`, each at least one above the one before."""
    place = np.arange(len(numbers))
    raised = np.maximum.accumulate(np.maximum(numbers, 0) - place)
    return np.minimum(raised, end - len(numbers)) + place
