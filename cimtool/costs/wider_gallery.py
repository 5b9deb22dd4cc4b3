"""The cost of a query against more items in the arrays than a program holds.

The products are placed with a column for each item. The digital operations beside them, and the
time of each, are linear in the items, so two galleries of the same bits give those of any size, to
the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property

from cimtool.costs.estimate import Estimate
from cimtool.costs.operations import Operations, Tally
from cimtool.costs.schedule_tasks import GraphWork, NodeTimes
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
        few, many = (one.digital_work(self.graph_of(one)) for one in (self.one, self.two))
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
        if not found.loaded and self.two.floorplan.resident:
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

    @cached_property
    def loaded(self) -> bool:
        """True if the chip does not hold all layers and items at once, and loads them."""
        return not floorplan(self.placements, self.target).resident

    def digital_work(self, graph: Graph, items: int = 0) -> Operations:
        """The digital operations of one walk; those of the items grow with their number."""
        if graph.name != self.pair.graph:
            return super().digital_work(graph, items)
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
