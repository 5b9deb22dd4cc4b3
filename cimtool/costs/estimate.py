"""The cost of a compiled program on its target: operations, latency, energy and area.

The target's figures at one operating point come first, then reference prices (`prices.py`). A total
that lacks a part is a lower bound; it comes with the share of operations that are priced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from cimtool.base.errors import Argument, ArgumentError
from cimtool.base.modality_names import TEXT_VIDEO, Modalities
from cimtool.base.options import FILE, Record, option, optional, takes
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.matcher import open_bundle
from cimtool.costs.cam_search import CamUse, search_cost
from cimtool.costs.charges import digital_cost, layer_cost, loading, programming
from cimtool.costs.operations import Operations, digital, elements, traffic, width
from cimtool.costs.rates import Rates, rates_at
from cimtool.costs.sampling import SampledItems, SamplingCost, sampling_cost
from cimtool.costs.totals import Cost, Quantity
from cimtool.hardware.cam import Cam
from cimtool.hardware.cell_distance import CellDistance
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.placement import Floorplan, Placement, floorplan, placements
from cimtool.hardware.settings import Settings
from cimtool.hardware.target import Target, with_digital
from cimtool.ir.program import Graph, Program
from cimtool.ir.types import rows_of_item
from cimtool.report.result import Result
from cimtool.verification.references import References

OF_ANY_GALLERY = ("placements", "floorplan", "layers", "products", "text")
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
class Estimate(Result, ScoredQuery, shown_by="cimtool.costs.render"):
    """The cost of a compiled program on a target, at one operating point, and of a query."""

    program: Program
    settings: Settings
    target: Target
    rates: Rates

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
        """The products of each layer per item: one for each of the item's rows, such as tokens.

        The products run one after the other in the same arrays.
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
        """The same query with sampling in place of the score; the shortlist stays."""
        if self.gallery is None:
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
        return sampling_cost(self.samples, sampled, before or Cost(), self.rates, self.settings)

    @cached_property
    def area(self) -> Quantity:
        """Area that the program occupies, in mm2."""
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
        return total + done + loading(graph.name, self.placements, self.floorplan, self.rates)

    def _gallery_reads(self, graph: Graph, extents: Mapping[str, int]) -> Operations:
        """One read of each stored value: from SRAM if it holds the whole gallery, else DRAM."""
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
    rates, gallery = rates_at(build.target, operating_point), query.gallery
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


def estimate_bundle(
    bundle: Bundle,
    samples: int,
    gallery: int | None = None,
    operating_point: str | None = None,
    digital: Path | None = None,
) -> Estimate:
    """Estimate the cost of a bundle on its target, as `cost` does."""
    for name, value in (("gallery", gallery), ("samples", samples)):
        if value is not None and not 1 <= value < 2**63:
            wanted = "at least 1" if value < 1 else "less than 2^63"
            raise ArgumentError("{} is {}; expected {}", Argument(name), value, wanted)
    held = bundle.gallery
    query = ScoredQuery(
        bundle.model.dimension,
        samples,
        gallery,
        None if held is None else held.shortlist,
        None if held is None else held.cam,
        bundle.model.called,
    )
    target = bundle.target if digital is None else with_digital(bundle.target, digital)
    build = Configuration(target, bundle.settings)
    return estimate(bundle.program, build, query, operating_point)


class CostOptions(Record):
    """The options of `cost`."""

    bundle: Path | str = option("The bundle's folder.", FILE, positional=True, argument="BUNDLE")
    gallery: int | None = optional("Items that a query is scored against.", "M", at_least=1)
    samples: int = option(
        "Monte Carlo samples per side.", "K", at_least=1, default=References.samples
    )
    operating_point: str | None = optional("Operating point [default: the first].", "NAME")
    digital: Path | str | None = optional(
        "TOML file of the digital unit: its process, width, clock and prices.", FILE
    )


@takes(CostOptions)
def cost(options: CostOptions) -> Estimate:
    """Place a bundle on its target, and estimate operations, latency, energy and area.

    `gallery` adds a query scored against this many items, beside Monte Carlo. The target's figures
    at the operating point come first, then reference prices. The tables of the file `digital`
    replace the target's `process` and `digital`. Raises CimError for a number below 1 or from 2^63
    on, and for a point that the target does not have.
    """
    file = None if options.digital is None else Path(options.digital)
    bundle = open_bundle(options.bundle)
    return estimate_bundle(bundle, options.samples, options.gallery, options.operating_point, file)
