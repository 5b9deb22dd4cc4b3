"""The numbers that a hand-off's vectors reach, and why they reach no others."""

from __future__ import annotations

from typing import Any

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.handoff.directed import converter_inputs, population_counts
from cimtool.handoff.layers import DrivenLayer
from cimtool.handoff.stimuli import input_limits
from cimtool.handoff.taps import column_places, taps
from cimtool.hardware.mvm import CrossbarMvm

SWEPT = 256
"""Inputs of each row that the first vectors of `make random` step through (`dpi.c`)."""

PROVED = "proved: no input within the proved ranges gives it"
NOT_FOUND = "not found: no vector gives it, and no proof says that none can"
APART = (
    "not found: the bounds take each slice and each cycle at its own extreme, and no vector gives "
    "all of these at once"
)
MOST_DIGIT = 15
"""The largest digit for which the sums of rows are bounded: their number grows with it."""


def coverage(layer: DrivenLayer) -> dict[str, Any]:
    """The codes, counts of rows, inputs and carries of a layer that vectors reach, as JSON.

    Codes of each converter are those of `taps/` and `directed/`.
    """
    seen = taps(layer.op, layer.x)
    return {
        "codes": list(_codes(layer, seen.codes)),
        "counts": _counts(layer),
        "inputs": _inputs(layer),
        "carries": _carries(layer, seen.shift_add),
    }


def _codes(layer: DrivenLayer, codes: IntArray) -> Any:
    """Yield the codes that each converter reaches, and those that it does not."""
    op, crossbar = layer.op, layer.op.crossbar
    directed = converter_inputs(layer)
    for at, (column, place) in enumerate(
        zip(op.layer.columns, column_places(op.layer), strict=True)
    ):
        k, c = divmod(at, crossbar.reference_cycles)
        if column.law is None:
            continue
        cycles = range(c, codes.shape[2], crossbar.reference_cycles)
        by_taps = set(np.unique(codes[:, :, list(cycles), place]).tolist())
        by_lines = {one.code for one in directed if (one.slice, one.cycle) == (k, c)}
        law = column.law
        missing = sorted(set(range(law.lo, law.hi + 1)) - by_taps - by_lines)
        # Directed sums reach every code within the proved bounds of a converter's columns.
        why = PROVED if by_lines else NOT_FOUND
        yield {
            "converter": k,
            "cycle": c,
            "codes": law.hi - law.lo + 1,
            "reached_by_taps": len(by_taps),
            "reached": law.hi - law.lo + 1 - len(missing),
            **({"missing": missing, "why": why} if missing else {}),
        }


def _counts(layer: DrivenLayer) -> dict[str, Any]:
    """The numbers of rows that conduct in one bit of the cells."""
    counts, height = population_counts(layer), int(layer.op.layer.cells.heights.max())
    reached = {(one.slice, one.cell, one.rows) for one in counts}
    largest: dict[int, int] = {}
    for slice_, _, rows in reached:
        largest[slice_] = max(largest.get(slice_, 0), rows)
    of_slice = [largest.get(k, 0) for k in range(layer.op.crossbar.slices)]
    why = "larger counts are left out where the sum would exceed the proved bounds"
    return {
        "rows": height,
        "reached": len(reached),
        "largest_of_slice": of_slice,
        **({"why": why} if min(of_slice) < height else {}),
    }


def _inputs(layer: DrivenLayer) -> dict[str, Any]:
    """The inputs of rows that the swept vectors of `make random` reach."""
    lo, hi = input_limits(layer.graph, layer.node, layer.op)
    ranges = (hi - lo + 1).astype(np.int64)
    rows = enumerate(zip(lo.tolist(), hi.tolist(), strict=True))
    reached = np.array([len(np.unique(swept(*ends, row))) for row, ends in rows])
    why = f"rows of more than {SWEPT} inputs get as many, spread over their range"
    return {
        "vectors": SWEPT,
        "possible": int(ranges.sum()),
        "reached": int(reached.sum()),
        **({"why": why} if reached.sum() < ranges.sum() else {}),
    }


def swept(lo: int, hi: int, row: int) -> IntArray:
    """The inputs [SWEPT] of a layer's row in the first vectors of `make random`, as in `dpi.c`."""
    count = hi - lo + 1
    step = (count - 1) // SWEPT + 1
    inputs: IntArray = lo + (np.arange(SWEPT) * step + row * 97) % count
    return inputs


def _carries(layer: DrivenLayer, shift_add: IntArray) -> dict[str, Any]:
    """The bits of the accumulator that a product of `taps/` sets, for either sign."""
    bound = max(abs(end) for end in _carry_bounds(layer)).bit_length()
    magnitudes = np.abs(np.concatenate([shift_add.ravel(), shift_add.sum(axis=1).ravel()]))
    reached = int(magnitudes.max()).bit_length()
    accumulator = layer.op.crossbar.accumulator_bits + layer.op.crossbar.places
    missing = max(bound - reached, 0)
    return {
        "bits": accumulator,
        "reached": reached,
        "proved_unreachable": max(accumulator - 1 - bound, 0),
        "not_found": missing,
        "why": APART if missing else PROVED,
    }


def _carry_bounds(layer: DrivenLayer) -> tuple[int, int]:
    """The smallest and the largest number that a layer's accumulators provably hold.

    They are those of all row groups together, in 2^-places of a digit, or of one row group if that
    is further from 0.
    """
    op = layer.op
    if op.exact and not op.layer.cells.leak:
        return _product_bounds(layer)
    known, bias, places = layer.graph.types[layer.node.name], op.layer.bias, op.crossbar.places
    least = np.broadcast_to(known.lo - bias, bias.shape).astype(np.int64) << places
    most = np.broadcast_to(known.hi - bias, bias.shape).astype(np.int64) << places
    groups = [ends for r in range(len(op.stored.groups)) if (ends := group_bounds(op, r))]
    if groups:
        lows, highs = (np.stack(ends) for ends in zip(*groups, strict=True))
        # A row group alone may hold more than all together.
        least = np.minimum(np.maximum(least, lows.sum(axis=0)), lows.min(axis=0))
        most = np.maximum(np.minimum(most, highs.sum(axis=0)), highs.max(axis=0))
    return int(least.min()), int(most.max())


def _product_bounds(layer: DrivenLayer) -> tuple[int, int]:
    """The ends of a lossless layer's products, of all rows and of each row group alone.

    Each is reached: rows get their inputs independently.
    """
    op = layer.op
    weight, lo, hi = op.weight.astype(np.int64), *input_limits(layer.graph, layer.node, op)
    upward, downward = np.maximum(weight, 0), np.minimum(weight, 0)
    rows = [slice(None), *op.stored.groups]
    least = min(int((lo[r] @ upward[r] + hi[r] @ downward[r]).min()) for r in rows)
    most = max(int((hi[r] @ upward[r] + lo[r] @ downward[r]).max()) for r in rows)
    return least << op.crossbar.places, most << op.crossbar.places


def group_bounds(op: CrossbarMvm, group: int) -> tuple[IntArray, IntArray] | None:
    """The smallest and the largest addition [N] of a row group to the sums of a layer.

    For each sum of digits that a cycle drives, a slice's sum lies between those of its smallest
    and of its largest cells, and what is read of it rises with it. None if digits may be negative
    or above MOST_DIGIT, if each cycle has converters of its own, or if cells leak.
    """
    crossbar, held, code = op.crossbar, op.layer.cells, op.crossbar.weights
    lowest, highest = crossbar.digit_limits
    if lowest < 0 or highest > MOST_DIGIT or crossbar.reference_cycles > 1 or held.leak:
        return None

    def read(sums: IntArray, k: int) -> IntArray:
        return crossbar.read(sums, op.layer.references[k], group)

    rows = held.groups[group]
    driven = np.arange((rows.stop - rows.start) * highest + 1)[:, None]
    row_sum = driven << held.places
    if crossbar.unit_column:
        row_sum = read(driven, len(held.slices)) << held.fraction_bits
    least = most = -code.offset * row_sum * np.ones_like(op.weight[:1], np.int64)
    for k, one in enumerate(held.slices):
        # A row of digit D adds its cell D times.
        cells = np.repeat(np.sort(one.digits[rows].astype(np.int64), axis=0), highest, axis=0)
        ends = [read(_sums_of_first(order), k) for order in (cells, cells[::-1])]
        whole = code.complement * row_sum
        parts = [one.worth * np.where(one.flipped[group], whole - end, end) for end in ends]
        least, most = least + np.minimum(*parts), most + np.maximum(*parts)
    low, high = least.min(axis=0), most.max(axis=0)
    up = sum(one.factor for one in crossbar.cycles if one.factor > 0)
    down = sum(one.factor for one in crossbar.cycles if one.factor < 0)
    return up * low + down * high, up * high + down * low


def _sums_of_first(cells: IntArray) -> IntArray:
    """The sums [K + 1, N] of none, one, two and so on of the cells [K, N]."""
    return np.concatenate([np.zeros_like(cells[:1]), cells.cumsum(axis=0)])
