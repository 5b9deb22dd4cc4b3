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
from cimtool.hardware.placement import Placement, floorplan, item_products, placements
from cimtool.ir.program import Graph


@dataclass(frozen=True, eq=False)
class GalleryPair:
    """Estimates of one model whose graph `graph` holds two galleries of different sizes.

    The second is the larger. Both have the same bits.
    """

    one: Estimate
    two: Estimate
    graph: str = "score"

    def graph_of(self, estimate: Estimate) -> Graph:
        """The graph that holds the items."""
        return next(one for one in estimate.program.graphs if one.name == self.graph)

    @cached_property
    def counts(self) -> tuple[int, int]:
        """The numbers of items."""
        found = [item_products(self.graph_of(one)).values() for one in (self.one, self.two)]
        few, many = (next(iter(held)).stored.shape[1] for held in found)
        return few, many

    @cached_property
    def beside(self) -> tuple[Operations, Operations]:
        """The digital operations beside the products, of each gallery."""
        few, many = (
            one.placed((), one.settings).walk(self.graph_of(one)).digital
            for one in (self.one, self.two)
        )
        return few, many

    @cached_property
    def times(self) -> tuple[Mapping[str, NodeTimes], Mapping[str, NodeTimes]]:
        """The times of each node, of each gallery."""
        few, many = (one.work(self.graph_of(one)).times for one in (self.one, self.two))
        return few, many

    def at(self, items: int) -> WiderGallery:
        """The estimate for a number of items."""
        own = {one.name: getattr(self.two, one.name) for one in fields(Estimate)}
        found = WiderGallery(**{**own, "gallery": items, "pair": self})
        plain = (floorplan(one.placements, one.target) for one in (found, self.two))
        if all(plan.resident for plan in plain):
            self.two.work(self.two.program.text)
            found.reuse(self.two, self.graph)
        return found


@dataclass(frozen=True, repr=False, kw_only=True)
class WiderGallery(Estimate):
    """An estimate for another number of items than the `program` holds, extrapolated of `pair`."""

    pair: GalleryPair

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        """The placement of each layer, of products that hold items with all of them."""
        return placements(self.program, self.settings, {self.pair.graph: self.gallery or 0})

    def walk(self, graph: Graph, items: int = 0) -> Cost:
        """The cost of one walk through a graph; in the one that holds items, of all of them."""
        if graph.name != self.pair.graph:
            return super().walk(graph, items)
        found = digital_cost(around(graph, self._beside, self.floorplan), self.rates.prices)
        for place in self.placements:
            if place.graph == graph.name:
                found = self.layers[place.layer] + found
        found += loading(graph.name, self.placements, self.floorplan, self.rates)
        found = replace(found, latency_ns=item_latency(self.work(graph), found.latency_ns))
        return with_leakage(found, self.area.leaking, self.rates.prices.node)

    @property
    def _beside(self) -> Operations:
        few, many = (work.tallies for work in self.pair.beside)
        first, second = self.pair.counts

        def at(kind: str, name: str) -> int:
            ends = [int(getattr(of.get(kind, Tally()), name)) for of in (few, many)]
            steps = (self.gallery or 0) - first
            return ends[0] + (ends[1] - ends[0]) * steps // (second - first)

        return Operations({kind: Tally(at(kind, "count"), at(kind, "size")) for kind in many})

    def _work(self, graph: Graph, items: int) -> GraphWork:
        """The tasks of a walk; those of the items take the time of all."""
        found = super()._work(graph, items)
        if graph.name != self.pair.graph:
            return found
        few, many = self.pair.times
        first, second = self.pair.counts
        share = ((self.gallery or 0) - first) / (second - first)
        times = {
            name: replace(
                one, digital=few[name].digital.times(1 - share) + many[name].digital.times(share)
            )
            for name, one in found.times.items()
        }
        return replace(found, times=times)
