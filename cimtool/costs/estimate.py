"""The cost of a compiled program on its target: operations, latency, energy and area.

Only the target's figures at one operating point are used. A total that lacks a part is a lower
bound, with the share of operations that its figures cover.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from cimtool.base.errors import ArgumentError
from cimtool.costs.operations import Operations, digital, elements
from cimtool.costs.rates import Rates, rates_at
from cimtool.costs.sampling import SamplingCost, sampling_cost
from cimtool.costs.totals import NOTHING, Cost, Quantity
from cimtool.hardware.placement import Floorplan, Placement, floorplan, placements
from cimtool.hardware.settings import Settings
from cimtool.hardware.target import Target
from cimtool.ir.program import Graph, Program

DIGITAL = "digital operations outside the arrays"
LOADING = "loading of weights"


@dataclass(frozen=True)
class Estimate:
    """The cost of a compiled program on a target, at one operating point.

    `gallery` is the number of items that a query is scored against (None: no query is estimated),
    all of them digitally or in the memory; of a hybrid score the best `shortlist` digitally.
    `samples` and `dimension` are those of the Monte Carlo score beside it.
    """

    program: Program
    settings: Settings
    target: Target
    rates: Rates
    gallery: int | None
    shortlist: int | None
    samples: int
    dimension: int

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
    def text(self) -> Cost:
        """One text encoded."""
        return self._walk(self.program.text)

    @cached_property
    def video(self) -> Cost:
        """One video encoded."""
        return self._walk(self.program.video)

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
            return self._walk(self.program.score, self.gallery)
        scored = self.shortlist or self.gallery
        return self._walk(graph, self.gallery) + self._walk(self.program.score, scored)

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

    def _walk(self, graph: Graph, items: int = 0) -> Cost:
        """The cost of one walk through a graph, layers one after another."""
        extents, work, total = {"n": 1, "m": items}, Operations(), Cost()
        for node in graph.nodes:
            # What has no row of the query in it is computed once, for the gallery.
            if "n" in graph.types[node.name].shape:
                work += digital(graph, node, extents)
            total += self.layers.get(graph.layer(node), Cost())
        unknown = Quantity(None, (DIGITAL,)) if work.total else NOTHING
        total += Cost(digital=work, latency_ns=unknown, energy_pj=unknown)
        return total + self._loading(graph)

    def _loading(self, graph: Graph) -> Cost:
        """The cost of writing all weights of a graph, round by round, the arrays side by side."""
        rounds = self.floorplan.rounds.get(graph.name, 0)
        if not rounds:
            return Cost()
        stored = [place for place in self.placements if place.shares is None]
        cells = sum(one.cells for one in stored if one.graph == graph.name)
        energy, row = self.rates.value("write_energy"), self.rates.value("write_latency")
        rows = rounds * self.floorplan.weight_sets * (self.rates.own.rows or 0)
        missing = Quantity(None, (LOADING,))
        return Cost(
            cells_written=cells,
            energy_pj=missing if energy is None else Quantity(cells * energy),
            latency_ns=missing if row is None else Quantity(rows * row),
            known=0 if energy is None else cells,
        )


def layer_cost(place: Placement, rates: Rates, settings: Settings, plan: Floorplan) -> Cost:
    """The cost of one product of a layer, all of its arrays working side by side."""
    own = settings.of_layer(place.layer)
    energy = rates.energies(place, own)
    parts = (
        ("MACs in arrays", place.macs, energy.macs),
        ("conversions", place.conversions, energy.conversions),
        ("shift-and-add", place.column_sums, energy.shift_adds),
    )
    known = [(count, value) for _, count, value in parts if value is not None]
    missing = tuple(name for name, count, value in parts if value is None and count)
    total = sum(value for _, value in known)
    passes, time = plan.passes(place), rates.latency(place, own)
    return Cost(
        macs=place.macs,
        drive_cycles=place.drive_cycles * place.reads * passes,
        conversions=place.conversions,
        shift_adds=place.column_sums,
        latency_ns=Quantity(None, ("arrays",)) if time is None else Quantity(time * passes),
        energy_pj=Quantity(total or None, missing),
        known=sum(count for count, _ in known),
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
    return Estimate(program, settings, target, rates, items, shortlist, samples, dimension)
