"""The cost of a compiled program on its target: operations, latency, energy and area.

The target's figures at one operating point come first, then reference prices (`prices.py`). A total
that lacks a part is a lower bound, with the share of operations that is priced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from cimtool.base.errors import ArgumentError
from cimtool.costs.cam_search import CamUse, search_cost
from cimtool.costs.digital import digital_cost
from cimtool.costs.operations import Operations, Tally, digital, elements, traffic, width
from cimtool.costs.rates import Rates, rates_at
from cimtool.costs.sampling import SamplingCost, sampling_cost
from cimtool.costs.totals import NOTHING, Cost, PartShare, Quantity, longest
from cimtool.costs.writing import writing
from cimtool.hardware.cam import Cam
from cimtool.hardware.cell_distance import CellDistance
from cimtool.hardware.placement import Floorplan, Placement, floorplan, placements
from cimtool.hardware.settings import Settings
from cimtool.hardware.target import Target
from cimtool.ir.program import Graph, Program
from cimtool.ir.types import rows_of_item
from cimtool.reference.modality_names import TEXT_VIDEO, Modalities
from cimtool.report.result import Result

OF_ANY_GALLERY = ("placements", "floorplan", "layers", "products", "text")
"""Properties of an estimate that are the same for galleries of all sizes."""


@dataclass(frozen=True, repr=False)
class Estimate(Result):
    """The cost of a compiled program on a target, at one operating point.

    `gallery` is the number of items that a query is scored against (None: no query is estimated),
    all of them digitally or in the memory; of a hybrid score the best `shortlist` digitally, which
    a `cam` draws up where there is one.
    `samples` and `dimension` are those of the Monte Carlo score beside it. `called` names
    the two modalities.
    """

    program: Program
    settings: Settings
    target: Target
    rates: Rates
    gallery: int | None
    shortlist: int | None
    samples: int
    dimension: int
    cam: Cam | None = None
    called: Modalities = TEXT_VIDEO

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        """The placement of each layer."""
        return placements(self.program, self.settings)

    @cached_property
    def floorplan(self) -> Floorplan:
        """The arrays of all layers in macros, cores and chips."""
        return floorplan(self.placements, self.target)

    @cached_property
    def layers(self) -> dict[str, Cost]:
        """The cost of one product of each layer."""
        return {
            place.layer: layer_cost(place, self.rates, self.settings, self.floorplan)
            for place in self.placements
        }

    @cached_property
    def products(self) -> dict[str, int]:
        """The products of each layer that an item takes: one for each of its rows, as tokens are.

        Its arrays are driven one after the other.
        """
        return {
            graph.layer(node): rows_of_item(graph.types[node.name].shape[0])[0]
            for graph in self.program.graphs
            for node in graph.nodes
            if graph.layer(node) in self.layers
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
        """The same against so many items; what does not depend on them is taken over."""
        found = replace(self, gallery=items)
        vars(found).update({name: getattr(self, name) for name in OF_ANY_GALLERY})
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
        graph = self.program.shortlist
        if graph is None:
            return self.walk(self.program.score, self.gallery)
        scored = self.shortlist or self.gallery
        return self.walk(graph, self.gallery) + self.walk(self.program.score, scored)

    @cached_property
    def programming(self) -> Cost:
        """Writing all weights once, row by row, all arrays of a chip side by side."""
        cells = sum(place.cells for place in self.placements if place.shares is None)
        rows = (
            max(self.floorplan.loads, 1) * self.floorplan.weight_sets * (self.rates.own.rows or 0)
        )
        return writing(cells, rows, self.rates)

    @property
    def gallery_bytes(self) -> int | None:
        """The features of all items, each in the bits that it needs."""
        if self.gallery is None:
            return None
        graph = self.program.video
        stored = [graph.types[value] for value in graph.outputs.values()]
        bits = sum(elements(known, {"n": 1}) * known.bits for known in stored)
        return -(-self.gallery * bits // 8)

    @property
    def montecarlo(self) -> SamplingCost | None:
        """Sampling for the same query."""
        if self.gallery is None:
            return None
        return sampling_cost(self.samples, self.gallery, self.dimension, self.rates, self.settings)

    @cached_property
    def area(self) -> Quantity:
        """Area of what the program occupies, in mm2."""
        rates, arrays = self.rates, self.floorplan.arrays
        figure = rates.figure("area")
        each = None if figure is None else rates.arrays_in(figure.scope)
        if figure is not None and each is not None:
            outside = () if figure.scope == "chip" else (f"all outside the {figure.scope}s",)
            return Quantity(-(-arrays // each) * figure.value, outside)
        adc, count = rates.figure("adc_area"), rates.figure("adc_count")
        shared = None if count is None else rates.arrays_in(count.scope)
        if adc is None or count is None or shared is None:
            return Quantity(None, ("all of it",))
        return Quantity(
            arrays * count.value / shared * adc.value / 1e6, ("arrays", "digital units")
        )

    def walk(self, graph: Graph, items: int = 0) -> Cost:
        """The cost of one walk through a graph, layers one after another."""
        extents, total = {"n": 1, "m": items}, Cost()
        work = []
        for node in graph.nodes:
            work += [digital(graph, node, extents), traffic(graph, node, extents)]
            if (layer := graph.layer(node)) in self.layers:
                total += self.layers[layer].times(self.products[layer])
            if self.cam is not None and isinstance(node.op, CellDistance):
                total += search_cost(CamUse.of(node.op, self.cam))
        work.append(self._gallery_reads(graph, extents))
        done = digital_cost(Operations.sum(work), self.rates.prices)
        return total + done + self._loading(graph)

    def _gallery_reads(self, graph: Graph, extents: Mapping[str, int]) -> Operations:
        """Reads of the items' stored values, once each, from what holds the whole gallery."""
        used = {name for node in graph.nodes for name in node.inputs}
        read = [
            known for name, known in graph.inputs.items() if name in used and "m" in known.shape
        ]
        whole = {**extents, "m": self.gallery or 0}
        bits = sum(elements(known, whole) * width(known) for known in read)
        kind = "sram" if bits <= self.rates.prices.buffer_bits else "dram"
        found = Operations()
        for known in read:
            found += Operations.of(kind, elements(known, extents), width(known))
        return found

    def _loading(self, graph: Graph) -> Cost:
        """The cost of writing all weights of a graph, round by round, the arrays side by side."""
        rounds = self.floorplan.rounds.get(graph.name, 0)
        if not rounds:
            return Cost()
        stored = [place for place in self.placements if place.shares is None]
        own = [one for one in stored if one.graph == graph.name]
        rows = rounds * self.floorplan.weight_sets * (self.rates.own.rows or 0)
        written = writing(sum(one.cells for one in own), rows, self.rates)
        bits = sum(one.rows * one.columns * one.weight_bits for one in own)
        moved = Operations({"dram": Tally(sum(one.macs for one in own), bits)})
        read = digital_cost(moved, self.rates.prices)
        both = written + read
        return replace(both, latency_ns=longest((written.latency_ns, read.latency_ns)))


def layer_cost(place: Placement, rates: Rates, settings: Settings, plan: Floorplan) -> Cost:
    """The cost of one product of a layer, all of its arrays working side by side."""
    own = settings.of_layer(place.layer)
    energies = rates.energies(place, own)
    counts = {
        "arrays": (place.macs, "MACs in arrays"),
        "converters": (place.conversions, "conversions"),
        "shift-and-add": (place.column_sums, "shift-and-add"),
    }
    passes, time = plan.passes(place), rates.latency(place, own)
    converting = rates.conversion_time(place)
    converted = converting * place.reads * place.cycles * passes if converting else None
    # Without a time of the arrays their converters' is the least that a product takes.
    latency = Quantity(converted, ("arrays",)) if time is None else Quantity(time * passes)
    parts: dict[str, PartShare] = {}
    for name, (count, called) in counts.items():
        energy = energies[name]
        missing = Quantity(None, (called,)) if count else NOTHING
        parts[name] = PartShare(missing if energy is None else energy)
    parts["arrays"] += PartShare(time=Quantity(None, ("arrays",)) if time is None else latency)
    if converted is not None:
        parts["converters"] += PartShare(time=Quantity(converted))
    return Cost(
        macs=place.macs,
        drive_cycles=place.drive_cycles * place.reads * passes,
        conversions=place.conversions,
        shift_adds=place.column_sums,
        latency_ns=latency,
        parts=parts,
        known=sum(counts[name][0] for name, one in energies.items() if one is not None),
    )


def estimate(
    program: Program,
    settings: Settings,
    target: Target,
    *,
    samples: int,
    dimension: int,
    gallery: int | None = None,
    shortlist: int | None = None,
    operating_point: str | None = None,
    cam: Cam | None = None,
    called: Modalities = TEXT_VIDEO,
) -> Estimate:
    """Place a compiled program on its target and count what it costs.

    Raises CimError for an operating point that the target does not have, or for another number of
    items than a score in the memory holds.
    """
    rates = rates_at(target, operating_point)
    held = program.gallery_items
    if program.shortlist is not None:
        (distance,) = program.shortlist.outputs.values()
        held = int(program.shortlist.types[distance].shape[1])
    if held is not None and gallery not in (None, held):
        raise ArgumentError(
            "{gallery} is {}; the bundle holds a gallery of {} items", gallery, held
        )
    items = gallery if held is None else held
    sizes = items, shortlist, samples, dimension
    return Estimate(program, settings, target, rates, *sizes, cam, called)
