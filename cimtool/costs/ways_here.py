"""The ways of a query on the bundle's target that need no other gallery than it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cimtool.costs.estimate import Estimate
from cimtool.costs.raw_rows import BITS, raw_query, row_width
from cimtool.costs.schedule_batch import BatchOf, batch_of, digital_batch, waves_of_bits
from cimtool.costs.ways import GalleryWay, WayKind, WayOfSize


def ways_here(found: Estimate) -> Iterator[WayOfSize]:
    """Raw rows, Monte Carlo, and the compiled model with its gallery as it is."""
    yield WayOfSize("raw rows", lambda items: raw_way(found.with_gallery(items)))
    program = found.program
    if program.score.numbers_of_pair == 1:
        yield WayOfSize("Monte Carlo", lambda items: sampled_way(found.with_gallery(items)))
    if program.shortlist is None and program.gallery_items is None:
        name = "chip, digital"
        yield WayOfSize(
            "digital", lambda items: built_way(found.with_gallery(items), "digital", name)
        )
        return
    if program.shortlist is None:
        yield WayOfSize(
            "in the memory",
            lambda items: built_way(found, "in the memory", "chip, in the memory"),
        )
        why = "the gallery is in the arrays"
        yield WayOfSize(
            "digital", lambda items: GalleryWay("digital", "chip, digital", items, refused=why)
        )
        return
    where = "the memory" if found.cam is None else found.cam.name
    length = found.shortlist or found.gallery or 0
    named = f"chip, shortlist of {length:,}"
    note = f"the shortlist is drawn up by {where}"
    held = "`cimtool verify` measures the share of best items that its list holds"
    yield WayOfSize(
        "shortlist",
        lambda items: replace(
            built_way(found, "shortlist", named), note=note, unmeasured=held, length=length
        ),
    )
    digital = replace(found, program=replace(program, shortlist=None), shortlist=None, cam=None)
    yield WayOfSize("digital", lambda items: built_way(digital, "digital", "chip, digital"))


def raw_way(found: Estimate) -> GalleryWay:
    """Raw rows in 8 bits in the digital unit, read once for as many queries as the buffer holds."""
    name, items = "raw int8 rows, here", found.gallery or 0
    cost, width = raw_query(found), row_width(found)
    if cost is None or width is None:
        several = found.program.score.numbers_of_pair > 1
        why = "an item is several tokens" if several else "rows of two widths have no product"
        return GalleryWay("raw rows", name, items, refused=why)
    dram = bool(cost.digital.count("dram"))
    waves = waves_of_bits(found.batch, width * BITS, found.rates.prices.buffer_bits)
    batch = digital_batch(cost, found.batch, waves if dram else found.batch)
    note = f"read from {'DRAM' if dram else 'SRAM'}, products in digital"
    return replace(_way(found, "raw rows", name, batch), note=note)


def sampled_way(found: Estimate) -> GalleryWay:
    """Monte Carlo in place of the score, with stored samples; the text is encoded alike.

    Samples in DRAM are read once for as many queries as the buffer holds samples of. Behind a
    shortlist, or in arrays, queries share nothing but what their encoding shares.
    """
    sampled, rates = found.montecarlo, found.rates
    assert sampled is not None
    cost, batch, waves = sampled.stored.cost, found.batch, found.batch
    text = batch_of([found.walked(found.program.text)], batch)
    alone = found.program.shortlist is None and found.program.gallery_items is None
    if alone and cost.digital.count("dram"):
        bits = sampled.samples * found.dimension * found.settings.feature_bits
        waves = waves_of_bits(batch, bits, rates.prices.buffer_bits)
    score = digital_batch(cost, batch, waves)
    if not alone:
        score = BatchOf(cost, cost.latency_ns.times(batch))
    both = BatchOf(text.item + score.item, text.makespan_ns + score.makespan_ns)
    chips = found.floorplan.chips
    way = _way(found, "Monte Carlo", f"Monte Carlo, K={sampled.samples}", both)
    return replace(way, chips=chips)


def built_way(found: Estimate, kind: WayKind, name: str) -> GalleryWay:
    """The compiled model with its gallery as the estimate has it."""
    batch = batch_of(found.query_walks, found.batch)
    conversions = batch.item.conversions - found.text.conversions
    way = _way(found, kind, name, batch)
    return replace(way, chips=found.floorplan.chips, conversions=conversions)


def _way(found: Estimate, kind: WayKind, name: str, batch: BatchOf) -> GalleryWay:
    return GalleryWay(
        kind,
        name,
        found.gallery or 0,
        energy_pj=batch.item.energy_pj,
        by_price=batch.item.energy_by_price,
        latency_ns=batch.makespan_ns,
        batch=found.batch,
    )
