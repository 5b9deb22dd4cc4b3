"""The cost of a query against more items in the arrays than a program holds.

The products are placed with a column for each item. The digital operations beside them, and the
time of each, are linear in the items, so two galleries of the same bits give those of any size, to
the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property

from cimtool.costs.charges import layer_cost
from cimtool.costs.estimate import Estimate
from cimtool.costs.operations import Operations, Tally
from cimtool.costs.periodic_loads import (
    excerpts,
    loading_period,
    repeats_soon,
    settled_periods,
    settled_time,
    tiles_of,
)
from cimtool.costs.schedule import TICKS
from cimtool.costs.schedule_batch import key_of, spread
from cimtool.costs.schedule_tasks import End, GraphWork, WaveKey
from cimtool.costs.totals import Cost, Quantity
from cimtool.hardware.placement import Placement, floorplan, item_products
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
    def held(self) -> frozenset[str]:
        """The layers whose columns are items."""
        return frozenset(f"{self.graph}.{name}" for name in item_products(self.graph_of(self.two)))

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
    def times(self) -> tuple[Mapping[str, Quantity], Mapping[str, Quantity]]:
        """The time that each node holds the digital unit, of each gallery."""
        few, many = (one.digital_times(self.graph_of(one)) for one in (self.one, self.two))
        return few, many

    @cached_property
    def _kept(self) -> dict[object, Cost]:
        """Costs of products that do not depend on the items, by what they depend on."""
        return {}

    @cached_property
    def _texts(self) -> dict[object, tuple[WiderGallery, Cost]]:
        """The cost of a text by what it depends on, with the first estimate that has it."""
        return {}

    @cached_property
    def settled(self) -> dict[object, int]:
        """The periods from which on loads of items have settled, by what they depend on."""
        return {}

    @cached_property
    def excerpts(self) -> dict[object, tuple[int, int]]:
        """The ticks of two excerpts of many loads, by what they depend on."""
        return {}

    def product(self, place: Placement, found: WiderGallery) -> Cost:
        """The cost of one product of a layer."""
        key = place, found.floorplan.passes(place)
        if place.layer in self.held:
            return layer_cost(place, found.rates, found.settings, found.floorplan)
        if key not in self._kept:
            cost = layer_cost(place, found.rates, found.settings, found.floorplan)
            self._kept[key] = cost
        return self._kept[key]

    def text(self, found: WiderGallery) -> Cost:
        """The cost of a text, the same on all floorplans that place it and its loads alike.

        What is scheduled of it is kept, too.
        """
        plan, graph = found.floorplan, found.program.text
        own, two = (
            tuple(one for one in placed.placements if one.graph == graph.name)
            for placed in (found, self.two)
        )
        held = plan.chips, plan.kept, plan.streaming, found.area.leaking
        key = own, tuple(map(plan.passes, own)), held
        if own == two and plan.resident and self.two.floorplan.resident:
            self.two.work(graph)
            found.reuse(self.two, self.graph)
        elif key in self._texts:
            found.reuse(self._texts[key][0], self.graph)
        if key not in self._texts:
            self._texts[key] = found, found.walk(graph)
        return self._texts[key][1]

    def at(self, items: int) -> WiderGallery:
        """The estimate for a number of items."""
        own = {one.name: getattr(self.two, one.name) for one in fields(Estimate)}
        found = WiderGallery(**{**own, "gallery": items, "pair": self})
        vars(found)["products"] = self.two.products
        return found


@dataclass(frozen=True, repr=False, kw_only=True)
class WiderGallery(Estimate):
    """An estimate for another number of items than the `program` holds, extrapolated of `pair`."""

    pair: GalleryPair

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        """The placement of each layer, of products that hold items with all of them."""
        held = self.pair.held
        return tuple(
            self._wider(one) if one.layer in held else one for one in self.pair.two.placements
        )

    def _wider(self, place: Placement) -> Placement:
        """A product with a column for each item."""
        items, own = self.gallery or 0, self.settings.of_layer(place.layer)
        if own.columns is not None:
            return replace(place, columns=items, column_parts=-(-items // place.array_columns))
        auxiliary = place.unit_columns + place.reference_columns
        whole = (own.rows or place.rows) * (items * place.cells_per_weight + auxiliary)
        return replace(place, columns=items, array_columns=items, cells_per_array=whole)

    @cached_property
    def layers(self) -> dict[str, Cost]:
        """The cost of one product of each layer."""
        return {place.layer: self.pair.product(place, self) for place in self.placements}

    @cached_property
    def periodic(self) -> bool:
        """True if the items are loaded for each query, load after load."""
        return not (self.floorplan.resident or self.pair.held & {*self.floorplan.kept})

    @property
    def stored(self) -> list[Placement]:
        """The layers whose columns are items."""
        return [one for one in self.placements if one.layer in self.pair.held]

    def excerpt(self, items: int) -> GraphWork:
        """The tasks with fewer of the items; the same layers stay."""
        found, graph = self.pair.at(items), self.pair.graph_of(self)
        vars(found)["floorplan"] = floorplan(found.placements, self.target, self.floorplan.kept)
        return found.work(graph, items)

    def latency(self, graph: Graph, items: int, serial: Quantity) -> Quantity:
        """The time of a walk by its schedule, or by that of fewer items."""
        if graph.name != self.pair.graph or not self.periodic or serial.value is None:
            return super().latency(graph, items, serial)
        return self.wave_time(1, serial.missing)

    def wave_time(self, wave: int, missing: tuple[str, ...]) -> Quantity:
        """The time of a wave of queries with the items, all with a load before the next.

        It is that of the full schedule if loads repeat soon, else to a thousandth, about.
        """
        work = self.work(self.pair.graph_of(self), self.gallery or 0)
        if repeats_soon(self.stored, self.floorplan):
            return self._settled_time(work, wave, missing)
        if (self.gallery or 0) <= excerpts(self.stored, self.floorplan)[1]:
            key = key_of(work, wave)
            return spread(lambda end: work.pattern(key._replace(end=end)).length / TICKS, missing)
        key = key_of(work, wave, self._ticks_by_tiles)
        return spread(lambda end: self._ticks_by_tiles(key._replace(end=end)) / TICKS, missing)

    def _settled_time(self, work: GraphWork, wave: int, missing: tuple[str, ...]) -> Quantity:
        """The time of a wave by that of a few periods of its loads."""
        items, period = self.gallery or 0, loading_period(self.stored, self.floorplan)
        plan = self.floorplan

        @cache
        def excerpt(fewer: int) -> GraphWork:
            """With as many bits in a tile as all items have."""
            return replace(self.excerpt(fewer), tile_bits=work.tile_bits, patterns={})

        def ticks(key: WaveKey) -> Callable[[int], int]:
            return lambda fewer: excerpt(fewer).pattern(key).length

        # The time of the first periods tells numbers of parts apart.
        best = key_of(work, wave, lambda key: settled_time(ticks(key), items, period, 1))

        def time(end: End) -> float:
            key = best._replace(end=end)
            known, held_in = self.pair.settled, (key, plan.kept, plan.streaming)
            if held_in not in known:
                least = known.get((best, plan.kept, plan.streaming), 1)
                found = settled_periods(ticks(key), items, period, least)
                if found is None:
                    return ticks(key)(items) / TICKS
                known[held_in] = found
            return settled_time(ticks(key), items, period, known[held_in]) / TICKS

        return spread(time, missing)

    def _ticks_by_tiles(self, key: WaveKey) -> float:
        """The time of a wave, by the tiles of two excerpts, the same for all numbers of items."""
        few, many = excerpts(self.stored, self.floorplan)
        known, held_in = self.pair.excerpts, (key, self.floorplan.kept, self.floorplan.streaming)
        if held_in not in known:
            first, second = (self.excerpt(items).pattern(key).length for items in (few, many))
            known[held_in] = first, second
        first, second = known[held_in]
        before, after, tiles = (
            tiles_of(self.stored, items) for items in (few, many, self.gallery or 0)
        )
        return first + (second - first) * (tiles - before) / (after - before)

    @cached_property
    def text(self) -> Cost:
        """One text encoded."""
        return self.pair.text(self)

    def digital_work(self, graph: Graph, items: int = 0) -> Operations:
        """The digital operations of one walk; those of the items grow with their number."""
        if graph.name != self.pair.graph:
            return super().digital_work(graph, items)
        few, many = (work.tallies for work in self.pair.beside)
        first, second = self.pair.counts
        steps, of = (self.gallery or 0) - first, second - first

        def at(less: int, more: int) -> int:
            return less + (more - less) * steps // of

        found = {}
        for kind, more in many.items():
            less = few.get(kind, Tally())
            found[kind] = Tally(at(less.count, more.count), at(less.size, more.size))
        return Operations(found)

    def digital_times(self, graph: Graph, items: int = 0) -> Mapping[str, Quantity]:
        """The time that each node holds the digital unit; that of the items grows with them."""
        if graph.name != self.pair.graph:
            return super().digital_times(graph, items)
        few, many = self.pair.times
        first, second = self.pair.counts
        share = ((self.gallery or 0) - first) / (second - first)
        return {name: few[name].times(1 - share) + many[name].times(share) for name in many}
