"""The numbers that a hand-off's vectors reach, and why they reach no others."""

from __future__ import annotations

from typing import Any

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.handoff.carries import carry_bound, carry_reached
from cimtool.handoff.directed import converter_inputs, population_counts
from cimtool.handoff.layers import DrivenLayer
from cimtool.handoff.stimuli import input_limits
from cimtool.handoff.taps import column_places, taps

SWEPT = 256
"""Inputs of each row that the first vectors of `make random` step through (`dpi.c`)."""

PROVED = "proved: no input within the proved ranges gives it"
NOT_FOUND = "not found: no vector gives it, and no proof says that none can"
BELOW = "not found: neither a search for digits nor the bound of row groups decides it"


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
    op = layer.op
    bound = carry_bound(layer.graph, layer.node, op).bit_length()
    reached = carry_reached(shift_add).bit_length()
    accumulator = op.crossbar.accumulator_bits + op.crossbar.places
    missing = max(bound - reached, 0)
    return {
        "bits": accumulator,
        "reached": reached,
        "proved_unreachable": max(accumulator - 1 - bound, 0),
        "not_found": missing,
        "why": BELOW if missing else PROVED,
    }
