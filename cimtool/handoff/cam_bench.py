"""The bench of a search in a content-addressable memory: its parameters and its facts."""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.handoff.faults import CAM, RANK
from cimtool.handoff.searches import DrivenSearch
from cimtool.hardware.cell_distance import DONT_CARE

CAM_KIND = "cam"
CAM_SOURCES = (CAM, RANK, "tb_cam.sv", "tb_cam_taps.svh")


def cam_parameters(search: DrivenSearch) -> dict[str, int]:
    """The parameters of the array and of its bench, by name."""
    return {
        "WORDS": search.height,
        "WORD_BITS": max(1, (search.height - 1).bit_length()),
        "CELLS": search.op.cells,
        "CELL_LANE": search.cell_bits,
        "LANE": search.distance_bits,
        "DISTANCE": search.op.distance_number,
        "STEP": search.op.step,
        "TOP": search.top,
        "ITEMS": search.items,
        "QUERIES": len(search.queries),
        "LENGTH": search.length,
    }


def search_facts(search: DrivenSearch) -> set[str]:
    """The facts that hold for the queries of a search, by their names in `FAULTS`."""
    op, stored = search.op, search.op.stored
    rounds = tops = False
    for _, column, items in search.arrays():
        distances = search.distances(column, items)[:, : items.stop - items.start]
        codes = op.converted(distances)
        rounds |= bool((op.converted(distances + op.step // 2) != codes).any())
        tops |= bool((distances // op.step > search.top).any())
    ranked = search.estimates[:, ::-1].argsort(axis=1, kind="stable")[:, : search.length]
    higher_first: IntArray = search.items - 1 - ranked
    first = op.table[search.queries[:, :1], stored[None, :, 0]]
    facts = {
        "WORDS": search.items > 1 and bool((stored[0] != stored[1]).any()),
        "X": bool((stored == DONT_CARE).any()),
        "FIRST_CELL": bool(first.any()),
        "HAMMING": op.distance == "hamming" and bool(first.any()),
        "CAM_ROUNDS": rounds,
        "CAM_TOP": tops,
        "LINE": bool(search.offsets.any()),
        "CAM_MOVES": bool((np.diff(search.shortlist, axis=1) < 0).any()),
        "CAM_TIES": bool((higher_first != search.shortlist).any()),
    }
    return {name for name, holds in facts.items() if holds}
