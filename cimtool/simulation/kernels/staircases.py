"""Converter laws with thresholds and levels, as tables: compiled code converts by one look-up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.compiled import jit
from cimtool.hardware.converters import Law, StaircaseLaw


class Tables(NamedTuple):
    """The tables of staircase laws, joined in `entries`, which is empty if there are none.

    Entry i of law k is the value, in steps, of sums from `firsts[k]` + i on, in units of
    2^-`places[k]` of a step. `spans` [laws, 2] hold where a law's entries begin, and its last i.
    """

    places: IntArray
    firsts: IntArray
    spans: IntArray
    entries: IntArray


def tables_of(laws: Sequence[Law | None]) -> Tables:
    """Join the tables of the staircase laws. A law that occurs twice is stored once."""
    kept: dict[int, int] = {}
    parts, spans, firsts, places = [np.zeros(0, np.int64)], [], [], []
    for law in laws:
        if not isinstance(law, StaircaseLaw):
            spans.append((0, 0))
            firsts.append(0)
            places.append(0)
            continue
        first, table = law.table
        if id(law) not in kept:
            kept[id(law)] = sum(map(len, parts))
            parts.append(np.asarray(table, np.int64))
        spans.append((kept[id(law)], len(table) - 1))
        firsts.append(first)
        places.append(law.places)
    ends = np.array(spans, np.int64).reshape(-1, 2)
    return Tables(np.array(places), np.array(firsts), ends, np.concatenate(parts))


@jit
def look_up(p, tables, law, step, shift):  # type: ignore[no-untyped-def]
    """Replace sums `p` [N] by their values. If `shift` is not negative, `step` is 2^shift."""
    places, first = tables.places[law], tables.firsts[law]
    start, last = tables.spans[law]
    for j in range(len(p)):
        fine = p[j] << places
        entry = (fine >> shift if shift >= 0 else fine // step) - first
        p[j] = tables.entries[start + min(max(entry, 0), last)] * step
