"""The cost of a query against more items in the arrays than a program holds.

The products are placed with a column for each item. The digital operations beside them, and the
time of each, are linear in the items, so two galleries of the same bits give those of any size, to
the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property

from cimtool.costs.charges import digital_cost, loading
from cimtool.costs.estimate import Estimate
from cimtool.costs.operations import Operations, Tally
from cimtool.costs.overheads import around, with_leakage
from cimtool.costs.schedule_batch import item_latency
from cimtool.costs.schedule_tasks import GraphWork, NodeTimes
from cimtool.costs.totals import Cost
from cimtool.hardware.placement import Placement, placements
from cimtool.ir.program import Graph


@dataclass(frozen=True, repr=False, kw_only=True)
class WiderGallery(Estimate):
    """An estimate for more items than the `program` holds.

    `beside` are the digital operations of its score, `times` the times of each of its nodes.
    """

    beside: Operations
    times: Mapping[str, NodeTimes]

    @classmethod
    def of(cls, one: Estimate, two: Estimate, items: int) -> WiderGallery:
        """Extrapolate two estimates of galleries of different sizes to `items`."""
        counts = [estimate.program.gallery_items or 0 for estimate in (one, two)]
        works = [estimate.placed((), estimate.settings).score or Cost() for estimate in (one, two)]
        first, second = (work.digital.tallies for work in works)

        def at(kind: str, name: str) -> int:
            ends = [int(getattr(of.get(kind, Tally()), name)) for of in (first, second)]
            return ends[0] + (ends[1] - ends[0]) * (items - counts[0]) // (counts[1] - counts[0])

        beside = Operations({kind: Tally(at(kind, "count"), at(kind, "size")) for kind in second})
        share = (items - counts[0]) / (counts[1] - counts[0])
        near, far = (estimate.work(estimate.program.score, count).times
                     for estimate, count in zip((one, two), counts, strict=True))  # fmt: skip
        times = {
            name: replace(
                times, digital=times.digital.times(1 - share) + far[name].digital.times(share)
            )
            for name, times in near.items()
        }
        own = {one_.name: getattr(one, one_.name) for one_ in fields(Estimate)}
        return cls(**{**own, "gallery": items, "beside": beside, "times": times})

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        """The placement of each layer, of products of the score with all items."""
        return placements(self.program, self.settings, self.gallery)

    @cached_property
    def score(self) -> Cost:
        """The score of one encoded text against the gallery."""
        graph = self.program.score
        moved = around(graph, self.beside, self.floorplan)
        found = digital_cost(moved, self.rates.prices)
        for place in self.placements:
            if place.graph == graph.name:
                found = self.layers[place.layer] + found
        found += loading(graph.name, self.placements, self.floorplan, self.rates)
        found = replace(found, latency_ns=item_latency(self.work(graph), found.latency_ns))
        return with_leakage(found, self.area.leaking, self.rates.prices.node)

    def _work(self, graph: Graph, items: int) -> GraphWork:
        """The tasks of a walk; those of the score take the times of all items."""
        found = super()._work(graph, items)
        if graph is not self.program.score:
            return found
        times = {
            name: replace(one, digital=self.times[name].digital)
            for name, one in found.times.items()
        }
        return replace(found, times=times)
