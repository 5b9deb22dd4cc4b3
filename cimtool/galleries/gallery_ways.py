"""Ways to score one query against a gallery, and the costs of each on the target.

Calibration items are programmed into the arrays, then the same items twice. Both galleries have the
same bits, so the energy, latency and conversions of a query are linear in the number of items; two
galleries give the costs of any size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cimtool.base.errors import CimError
from cimtool.bundle.bundle import QUERIES, Bundle
from cimtool.costs.estimate import Estimate
from cimtool.costs.memory_use import memory_use
from cimtool.costs.totals import Quantity
from cimtool.costs.ways import GalleryWay
from cimtool.galleries.gallery_job import GalleryJob, Maker
from cimtool.galleries.programming import DEFAULT_SHORTLIST
from cimtool.passes.gallery import ShortlistBits, distance_graph, program_gallery
from cimtool.simulation.simulator import Simulator

FEW_BITS = (2, 4)
"""Bits of items and of queries for the shortlist of few bits."""

MOST_ITEMS = 128
"""Calibration items that are programmed at most."""

SHARE = 8
"""Features are also reduced to d / SHARE dimensions, if calibration rows differ in that many."""


def gallery_ways(compiled: Bundle, found: Estimate) -> tuple[GalleryWay, ...]:
    """The ways of a bundle; `found` is the estimate with the gallery's size.

    Empty if `found` has no gallery, if the bundle holds its gallery already, and if it keeps no
    calibration items to program, as after compiling for a digital score.
    """
    if found.gallery is None or found.score is None or compiled.gallery is not None:
        return ()
    if QUERIES not in compiled.manifest["files"]:
        return ()
    digital = Simulator(compiled.program)
    job = GalleryJob(compiled, {}, digital)
    if len(job.right.get("mu", ())) < 2:
        return ()
    return tuple(_ways(compiled, job, found))


def _ways(compiled: Bundle, job: GalleryJob, found: Estimate) -> Iterator[GalleryWay]:
    items, score = found.gallery or 0, found.score
    assert score is not None
    shown = (score.conversions, score.energy_pj, score.latency_ns)
    yield GalleryWay("digital", None, 0, 0, *shown)
    settings, program = compiled.settings, compiled.program
    yield _in_arrays("score in the memory", job.whole, job, found, None)
    try:
        distances = distance_graph(program.score)
    except CimError:
        return
    length = min(settings.shortlist or DEFAULT_SHORTLIST, items)
    yield _in_arrays(
        f"shortlist of {length}: whole mu",
        lambda held: program_gallery(distances, held, settings), job, found, length,
    )  # fmt: skip
    few, (item, query) = job.few_bits, FEW_BITS
    width = len(few.of_item)
    for dimensions in (None, width // SHARE):
        bits = ShortlistBits(item, min(query, few.query.bits), dimensions)
        if dimensions is None or 0 < dimensions <= few.principal.most:
            name = f"shortlist of {length}: {bits}"
            yield _in_arrays(name, job.maker(bits), job, found, length)


def _in_arrays(
    way: str,
    make: Maker,
    job: GalleryJob,
    found: Estimate,
    length: int | None,
) -> GalleryWay:
    """A way with its products in arrays; costs are extrapolated from calibration items."""
    once = {name: value[:MOST_ITEMS] for name, value in job.right.items()}
    twice = {name: np.concatenate([value, value]) for name, value in once.items()}
    few, many = len(once["mu"]), len(twice["mu"])
    try:
        graphs = [make(held) for held in (once, twice)]
    except CimError as error:
        return GalleryWay(way, refused=str(error))
    items = found.gallery or 0
    costs = [
        score
        for graph in graphs
        if (score := replace(found, program=job.program_with(graph), shortlist=length).score)
    ]
    share = (items - few) / (many - few)
    use = memory_use(graphs[1], job.compiled.settings, job.compiled.target)
    arrays = sum(matrix.arrays_for(items) for matrix in use.matrices)
    conversions = [one.conversions for one in costs]
    return GalleryWay(
        way,
        use.cells // use.items,
        arrays,
        None if use.arrays_per_chip is None else -(-arrays // use.arrays_per_chip),
        round(conversions[0] + share * (conversions[1] - conversions[0])),
        between(costs[0].energy_pj, costs[1].energy_pj, share),
        between(costs[0].latency_ns, costs[1].latency_ns, share),
    )


def between(first: Quantity, second: Quantity, share: float) -> Quantity:
    """The linear interpolation `first + share (second - first)`; `share` may exceed 1."""
    if first.value is None or second.value is None:
        return second
    return first + (second + first.times(-1)).times(share)
