"""Laws of thresholds and levels for compiled code: a conversion is one look-up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.compiled import jit
from cimtool.hardware.converters import Law, StaircaseLaw


class Tables(NamedTuple):
    """The tables of laws one behind the other in `entries`; these are empty where none has one.

    Entry i of law k stands for the sums from `firsts[k]` + i on, in 2^-`places[k]` of a step, and
    is a value in steps; `spans` [laws, 2] are where those of a law begin, and its last i.
    """

    places: IntArray
    firsts: IntArray
    spans: IntArray
    entries: IntArray


def tables_of(laws: Sequence[Law | None]) -> Tables:
    """The tables of those laws that are staircases; a common one is kept once."""
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
    """Put the values at a step, 2^shift where that is not negative, in place of sums `p` [N]."""
    places, first = tables.places[law], tables.firsts[law]
    start, last = tables.spans[law]
    for j in range(len(p)):
        fine = p[j] << places
        entry = (fine >> shift if shift >= 0 else fine // step) - first
        p[j] = tables.entries[start + min(max(entry, 0), last)] * step
