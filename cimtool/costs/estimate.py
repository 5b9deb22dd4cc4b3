"""The cost of a compiled program on its target: operations, latency, energy and area.

The target's figures at one operating point come first, then reference prices (`prices.py`). A total
that lacks a part is a lower bound; it comes with the share of operations that are priced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add

from cimtool.base.errors import ArgumentError
from cimtool.base.modality_names import TEXT_VIDEO, Modalities
from cimtool.costs.area import OccupiedArea, occupied_area
from cimtool.costs.cam_search import CamUse, search_cost
from cimtool.costs.charges import NOT_TIMED, digital_cost, layer_cost, loading, programming
from cimtool.costs.operations import Operations, digital, elements, traffic, width
from cimtool.costs.overheads import around, with_leakage
from cimtool.costs.rates import Rates, rates_at
from cimtool.costs.sampling import SampledItems, SamplingCost, sampling_cost
from cimtool.costs.schedule_batch import (
    BatchSchedule,
    ItemCost,
    Walked,
    item_latency,
    scheduled,
)
from cimtool.costs.schedule_residents import with_residents
from cimtool.costs.schedule_tasks import GraphWork, NodeTimes
from cimtool.costs.totals import NOTHING, Cost, Quantity
from cimtool.hardware.cam import Cam
from cimtool.hardware.cell_distance import CellDistance
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.placement import Floorplan, Placement, placements
from cimtool.hardware.settings import Settings
from cimtool.hardware.target import Target
from cimtool.ir.program import Graph, Program
from cimtool.ir.types import Type, rows_of_item
from cimtool.verification.references import References

OF_ANY_GALLERY = ("placements", "products", "floorplan", "layers", "text", "area", "_works")
"""Properties of an estimate that are the same for galleries of all sizes."""


@dataclass(frozen=True)
class ScoredQuery:
    """A query and the items that it is scored against.

    `gallery` is the number of items (None: no query is estimated). All are scored, digitally or in
    the memory. A hybrid score scores only the best `shortlist` digitally; a `cam`, if given, draws
    it up. `samples` and `dimension` are for the Monte Carlo score beside it. `called` names the
    two modalities.
    """

    dimension: int
    samples: int = References.samples
    gallery: int | None = None
    shortlist: int | None = None
    cam: Cam | None = None
    called: Modalities = TEXT_VIDEO


@dataclass(frozen=True, repr=False, kw_only=True)
class Estimate(ScoredQuery):
    """The cost of a compiled program on a target, at one operating point, and of a query.

    `batch` items are scheduled together.
    """

    program: Program
    settings: Settings
    target: Target
    rates: Rates
    batch: int = 1

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        """The placement of each layer."""
        return placements(self.program, self.settings)

    @cached_property
    def floorplan(self) -> Floorplan:
        """The arrays of all layers in macros, cores and chips, and the layers that stay there."""
        return with_residents(self.placements, self.target, self._energy_and_time)

    def _energy_and_time(self, plan: Floorplan) -> float:
        """Energy times time of all loads and products, one after another."""
        total = self._products_on(plan)
        for graph in plan.rounds:
            total += loading(graph, self.placements, plan, self.rates)
        return (total.energy_pj.value or 1.0) * (total.latency_ns.value or 1.0)

    def _products_on(self, plan: Floorplan) -> Cost:
        total = Cost()
        for place in self.placements:
            one = layer_cost(place, self.rates, self.settings, plan)
            total += one.times(self.products[place.layer])
        return total

    @cached_property
    def layers(self) -> dict[str, Cost]:
        """The cost of one product of each layer."""
        return {
            place.layer: layer_cost(place, self.rates, self.settings, self.floorplan)
            for place in self.placements
        }

    @cached_property
    def products(self) -> dict[str, int]:
        """The products of each layer per item: one for each of the item's rows, such as tokens.

        The products run one after the other in the same arrays.
        """
        return {
            graph.layer(node): rows_of_item(graph.types[node.name].shape[0])[0]
            for graph in self.program.graphs
            for node in graph.nodes
            if isinstance(node.op, CrossbarMvm)
        }

    @cached_property
    def text(self) -> Cost:
        """One text encoded."""
        return self.walk(self.program.text)

    @cached_property
    def video(self) -> Cost:
        """One video encoded."""
        return self.walk(self.program.video)

    def with_gallery(self, items: int) -> Estimate:
        """The same estimate against `items`; it keeps all costs that do not depend on them."""
        found = replace(self, gallery=items)
        vars(found).update({name: getattr(self, name) for name in OF_ANY_GALLERY})
        return found

    def placed(self, places: Sequence[Placement], settings: Settings) -> Estimate:
        """The same program with its layers placed otherwise, as with other bits of these."""
        found = replace(self, settings=settings)
        vars(found)["placements"] = tuple(places)
        return found

    @cached_property
    def query(self) -> Cost | None:
        """One text encoded and scored against a gallery whose items are encoded already."""
        return None if self.score is None else self.text + self.score

    @cached_property
    def score(self) -> Cost | None:
        """The score of one encoded text against the gallery."""
        if self.gallery is None:
            return None
        before = self._shortlisting
        if before is None:
            return self.walk(self.program.score, self.gallery)
        return before + self.walk(self.program.score, self.shortlist or self.gallery)

    @property
    def conversions(self) -> int:
        """Conversions of a text and a video that are encoded, and of a score."""
        # By places alone: energies of layers take long, and nobody asks for them here.
        return sum(
            one.conversions * (1 if isinstance(one, Cost) else self.products[one.layer])
            for graph in self.program.graphs
            for one in self._array_work(graph)
        )

    @cached_property
    def _shortlisting(self) -> Cost | None:
        """The cost of drawing up the shortlist; None if all items are scored."""
        graph = self.program.shortlist
        return None if graph is None or self.gallery is None else self.walk(graph, self.gallery)

    @cached_property
    def programming(self) -> Cost:
        """Writing all weights once, row by row, all arrays of a chip side by side."""
        cells = sum(place.cells for place in self.placements if place.shares is None)
        return programming(cells, self.floorplan.loads, self.floorplan, self.rates)

    @property
    def gallery_bytes(self) -> int | None:
        """The features of all items, each in the bits that it needs."""
        if self.gallery is None:
            return None
        graph = self.program.video
        stored = [graph.types[value] for value in graph.outputs.values()]
        bits = sum(elements(known, {"n": 1}) * known.bits for known in stored)
        return -(-self.gallery * bits // 8)

    @cached_property
    def montecarlo(self) -> SamplingCost | None:
        """The same query with sampling in place of the score; the shortlist stays.

        None for items of several tokens, of which no sampled distance is defined.
        """
        if self.gallery is None or self.program.score.numbers_of_pair > 1:
            return None
        others = (one for one in self.placements if one.graph != self.program.score.name)
        before = self._shortlisting
        sampled = SampledItems(
            self.dimension,
            self.gallery,
            self.gallery if before is None else self.shortlist or self.gallery,
            None if self.program.gallery_items is None else tuple(others),
            bool(self.floorplan.rounds.get(self.program.score.name)),
        )
        before = before or Cost()
        leaking = self.area.leaking
        return sampling_cost(self.samples, sampled, before, self.rates, self.settings, leaking)

    @cached_property
    def area(self) -> OccupiedArea:
        """Area that the program occupies, by part."""
        return occupied_area(self.rates, self.floorplan)

    def in_arrays(self, graph: Graph) -> Cost:
        """The products and searches of one walk, one after another: its cost without the rest."""
        total = Cost()
        for one in self._array_work(graph):
            if isinstance(one, Cost):
                total += one
            else:
                total += self.layers[one.layer].times(self.products[one.layer])
        return total

    def _array_work(self, graph: Graph) -> Iterator[Placement | Cost]:
        """The places of the layers of a walk, and the costs of its searches, in its order."""
        places = {place.layer: place for place in self.placements}
        for node in graph.nodes:
            if (layer := graph.layer(node)) in places:
                yield places[layer]
            if self.cam is not None and isinstance(node.op, CellDistance):
                yield search_cost(CamUse.of(node.op, self.cam))

    def walk(self, graph: Graph, items: int = 0) -> Cost:
        """The cost of one walk through a graph; its latency is that of its schedule."""
        total = self.in_arrays(graph)
        moved = around(graph, self.digital_work(graph, items), self.floorplan)
        total += digital_cost(moved, self.rates.prices)
        total += loading(graph.name, self.placements, self.floorplan, self.rates)
        total = replace(total, latency_ns=self.latency(graph, items, total.latency_ns))
        return with_leakage(total, self.area.leaking, self.rates.prices.node)

    def latency(self, graph: Graph, items: int, serial: Quantity) -> Quantity:
        """The time of a walk by its schedule; `serial` is the sum of the times of its tasks."""
        return item_latency(self.work(graph, items), serial)

    def digital_work(self, graph: Graph, items: int = 0) -> Operations:
        """The digital operations of one walk, with moves of numbers and reads of a gallery."""
        extents = {"n": 1, "m": items}
        work = [*self._node_operations(graph, items).values()]
        work += [traffic(graph, node, extents) for node in graph.nodes]
        return Operations.sum([*work, self._gallery_reads(graph, extents)])

    def _node_operations(self, graph: Graph, items: int) -> Mapping[str, Operations]:
        """The digital operations of each node of a walk."""
        key = graph.name, items
        if key not in self._counted:
            extents = {"n": 1, "m": items}
            found = {node.name: digital(graph, node, extents) for node in graph.nodes}
            self._counted[key] = found
        return self._counted[key]

    @cached_property
    def _counted(self) -> dict[tuple[str, int], Mapping[str, Operations]]:
        return {}

    @cached_property
    def _works(self) -> dict[tuple[str, int, bool], GraphWork]:
        return {}

    def work(self, graph: Graph, items: int = 0) -> GraphWork:
        """The tasks of one walk through a graph, to be scheduled; they are kept."""
        key = graph.name, items, self.in_buffer(graph)
        if key not in self._works:
            self._works[key] = self._work(graph, items)
        return self._works[key]

    def reuse(self, other: Estimate, but: str) -> None:
        """Keep what is scheduled of another estimate of the same layers, but for the graph `but`.

        The layers must stay in their arrays in both.
        """
        self._works.update({key: one for key, one in other._works.items() if key[0] != but})

    def _work(self, graph: Graph, items: int) -> GraphWork:
        spent = self.digital_times(graph, items)
        owners = {place.layer: place.shares or place.layer for place in self.placements}
        times: dict[str, NodeTimes] = {}
        for node in graph.nodes:
            layer, search, product = graph.layer(node), NOTHING, NOTHING
            if layer in self.layers:
                product = self.layers[layer].latency_ns.times(self.products[layer])
            if self.cam is not None and isinstance(node.op, CellDistance):
                search = search_cost(CamUse.of(node.op, self.cam)).latency_ns
            times[node.name] = NodeTimes(product, owners.get(layer, ""), search, spent[node.name])
        layers = tuple(place for place in self.placements if place.shares is None)
        return GraphWork(
            graph=graph,
            layers=layers,
            times=times,
            plan=self.floorplan,
            rates=self.rates,
            tile_bits={place.layer: place.held_bits / place.arrays for place in layers},
            gallery_bits=self._read_of_dram(graph, items),
        )

    def digital_times(self, graph: Graph, items: int = 0) -> Mapping[str, Quantity]:
        """The time that each node of a walk holds the digital unit."""
        found = {}
        for name, work in self._node_operations(graph, items).items():
            tallies = work.tallies.items()
            cycles = sum(one.count for kind, one in tallies if kind not in NOT_TIMED)
            found[name] = self.rates.prices.cycles_ns(cycles) if cycles else NOTHING
        return found

    def _read_of_dram(self, graph: Graph, items: int) -> int:
        reads = self._gallery_reads(graph, {"n": 1, "m": items}).tallies
        return reads["dram"].size if "dram" in reads else 0

    @cached_property
    def schedules(self) -> dict[str, BatchSchedule]:
        """The schedule of a batch of texts, one of videos, and one of queries if there are items.

        Their keys are `text`, `video` and `query`.
        """
        program = self.program
        kinds = {"text": [(program.text, 0)], "video": [(program.video, 0)]}
        if self.gallery is not None:
            kinds["query"] = self._graphs_of_query()
        return {name: self._scheduled(name, walks) for name, walks in kinds.items()}

    def _graphs_of_query(self) -> list[tuple[Graph, int]]:
        program, items = self.program, self.gallery or 0
        if program.shortlist is None:
            return [(program.text, 0), (program.score, items)]
        listed = self.shortlist or items
        return [(program.text, 0), (program.shortlist, items), (program.score, listed)]

    def _scheduled(self, name: str, walks: Sequence[tuple[Graph, int]]) -> BatchSchedule:
        shared = reduce(add, (self._shared(*walk) for walk in walks))
        works = [self.work(*walk) for walk in walks]
        return scheduled(works, self.batch, ItemCost(getattr(self, name), shared))

    def _shared(self, graph: Graph, items: int) -> Cost:
        """The loads of a walk, and its read of a gallery in DRAM."""
        found = loading(graph.name, self.placements, self.floorplan, self.rates)
        if bits := self._read_of_dram(graph, items):
            found += digital_cost(Operations.of("dram", bits, 1), self.rates.prices)
        return found

    def walked(self, graph: Graph, items: int = 0) -> Walked:
        """A walk with its tasks, and with what of its cost a wave shares."""
        cost = self.text if graph == self.program.text else self.walk(graph, items)
        return Walked(cost, lambda: (self.work(graph, items), self._shared(graph, items)))

    @property
    def query_walks(self) -> tuple[Walked, ...]:
        """The walks of a query one after another: a text, a shortlist if there is one, a score."""
        return tuple(self.walked(*one) for one in self._graphs_of_query())

    def _gallery_reads(self, graph: Graph, extents: Mapping[str, int]) -> Operations:
        """One read of each stored value: from SRAM if it holds the whole gallery, else DRAM."""
        kind = "sram" if self.in_buffer(graph) else "dram"
        found = Operations()
        for known in _stored_values(graph):
            found += Operations.of(kind, elements(known, extents), width(known))
        return found

    def in_buffer(self, graph: Graph) -> bool:
        """True if SRAM holds the values of the whole gallery that a graph reads."""
        whole = {"n": 1, "m": self.gallery or 0}
        bits = sum(elements(known, whole) * width(known) for known in _stored_values(graph))
        return bits <= self.rates.prices.buffer_bits


def _stored_values(graph: Graph) -> list[Type]:
    """The values of items that a graph reads."""
    used = {name for node in graph.nodes for name in node.inputs}
    return [known for name, known in graph.inputs.items() if name in used and "m" in known.shape]


def estimate(
    program: Program,
    build: Configuration,
    query: ScoredQuery,
    operating_point: str | None = None,
) -> Estimate:
    """Place a compiled program on its target and count what it costs.

    Raises CimError if the target lacks the operating point, or if `query.gallery` is not the
    number of items that a score in the memory holds.
    """
    rates = rates_at(build.target, operating_point, build.settings)
    gallery = query.gallery
    held = program.gallery_items
    if program.shortlist is not None:
        (distance,) = program.shortlist.outputs.values()
        held = int(program.shortlist.types[distance].shape[1])
    if held is not None and gallery not in (None, held):
        raise ArgumentError(
            "{gallery} is {}; the bundle holds a gallery of {} items", gallery, held
        )
    known = replace(query, gallery=gallery if held is None else held)
    return Estimate(
        program=program, settings=build.settings, target=build.target, rates=rates, **vars(known)
    )
