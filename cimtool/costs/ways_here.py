"""The ways of a query on the bundle's target that need no other gallery than it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cimtool.costs.estimate import Estimate
from cimtool.costs.raw_rows import raw_query
from cimtool.costs.totals import Cost
from cimtool.costs.ways import GalleryWay, WayKind, WayOfSize


def ways_here(found: Estimate) -> Iterator[WayOfSize]:
    """Raw rows, Monte Carlo, and the compiled model with its gallery as it is."""
    yield lambda items: raw_way(found.with_gallery(items))
    yield lambda items: sampled_way(found.with_gallery(items))
    program = found.program
    if program.shortlist is None and program.gallery_items is None:
        yield lambda items: built_way(found.with_gallery(items), "digital", "build, digital")
        return
    if program.shortlist is None:
        yield lambda items: built_way(found, "in the memory", "build, in the memory")
        yield lambda items: GalleryWay(
            "digital", "build, digital", items, refused="the gallery is in the arrays"
        )
        return
    where = "the memory" if found.cam is None else found.cam.name
    length = found.shortlist or found.gallery or 0
    name = f"build, shortlist of {length:,}"
    yield lambda items: replace(
        built_way(found, "shortlist", name), note=f"the shortlist is drawn up by {where}"
    )
    digital = replace(found, program=replace(program, shortlist=None), shortlist=None, cam=None)
    yield lambda items: built_way(digital, "digital", "build, digital")


def raw_way(found: Estimate) -> GalleryWay:
    """Raw rows in 8 bits in the digital unit."""
    name, items = "raw int8 rows, here", found.gallery or 0
    cost = raw_query(found)
    if cost is None:
        return GalleryWay("raw rows", name, items, refused="rows of two widths have no product")
    place = "DRAM" if cost.digital.count("dram") else "SRAM"
    note = f"read from {place}, products in digital"
    return GalleryWay(
        "raw rows", name, items, energy_pj=cost.energy_pj, latency_ns=cost.latency_ns,
        note=note,
    )  # fmt: skip


def sampled_way(found: Estimate) -> GalleryWay:
    """Monte Carlo in place of the score, with stored samples; the text is encoded alike."""
    sampled = found.montecarlo
    assert sampled is not None
    text, items = found.text, found.gallery or 0
    return GalleryWay(
        "Monte Carlo",
        f"Monte Carlo, K={sampled.samples}",
        items,
        energy_pj=text.energy_pj + sampled.stored.energy_pj,
        latency_ns=text.latency_ns + sampled.stored.latency_ns,
        chips=found.floorplan.chips,
    )


def built_way(found: Estimate, kind: WayKind, name: str) -> GalleryWay:
    """The compiled model with its gallery as the estimate has it."""
    query = found.query or Cost()
    return GalleryWay(
        kind,
        name,
        found.gallery or 0,
        energy_pj=query.energy_pj,
        latency_ns=query.latency_ns,
        chips=found.floorplan.chips,
        conversions=query.conversions - found.text.conversions,
    )
