"""The tasks of one graph: products on the arrays of a layer, digital operations, loads from DRAM.

A layer that stays holds arrays that nothing else uses. Other layers pass through the chip's
remaining arrays: their tiles, in the order of use, fill one part of these after another, and a
part is loaded again once all items of a wave have been multiplied with what it held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Literal, NamedTuple

from cimtool.costs.charges import row_time
from cimtool.costs.operations import elements, width
from cimtool.costs.rates import Rates
from cimtool.costs.schedule import TICKS, HardwareTask, Pattern, Resource
from cimtool.costs.schedule_once import listed, once
from cimtool.costs.totals import NOTHING, Quantity
from cimtool.hardware.placement import Floorplan, Placement
from cimtool.ir.program import MODALITIES, Graph, Node

DIGITAL, DRAM, SEARCH = map(Resource, ("digital unit", "DRAM channel", "search memory"))

LOADED, WRITING, BESIDE = "loaded arrays", "write ports", "beside in loaded arrays"
"""Kinds of resources of each part of the arrays that loads pass through."""

MOST_TASKS = 1_500
"""Tasks of a wave up to which its items are scheduled in groups."""

End = Literal["value", "low", "high"]
"""The end of each time's interval that a schedule is for."""


class WaveKey(NamedTuple):
    """A way to schedule a wave of `items`, by the times at one `end` of their intervals.

    Its loads go to so many `parts` of the free arrays in turn. Its items are scheduled in so many
    `groups` at most, so that one is multiplied with a layer while another is with the one before.
    """

    items: int = 1
    parts: int = 2
    groups: int = 1
    end: End = "value"


@dataclass(frozen=True)
class NodeTimes:
    """The times of a node: all products of an item with the cells of layer `owner`, a search of a
    CAM, and digital work.
    """

    product: Quantity = NOTHING
    owner: str = ""
    search: Quantity = NOTHING
    digital: Quantity = NOTHING


@dataclass(frozen=True)
class GraphWork:
    """One walk through a graph on a floorplan: the times of its nodes, and what it reads of DRAM.

    `layers` are all layers of the program with cells of their own, in the order of placement;
    `tile_bits` are those of one of a layer's tiles, in the mean over all. `gallery_bits` are read
    once for all queries of a wave. `patterns` keeps what was scheduled.
    """

    graph: Graph
    layers: Sequence[Placement]
    times: Mapping[str, NodeTimes]
    plan: Floorplan
    rates: Rates
    tile_bits: Mapping[str, float]
    gallery_bits: int = 0
    patterns: dict[WaveKey, Pattern] = field(default_factory=dict)

    @property
    def streamed(self) -> list[Placement]:
        """The layers of the graph that are loaded for each wave."""
        own = (one for one in self.layers if one.graph == self.graph.name)
        return [] if self.plan.resident else [p for p in own if p.layer not in self.plan.kept]

    @property
    def shares(self) -> bool:
        """Items can share a read of DRAM."""
        return bool(self.streamed or self.gallery_bits)

    @property
    def read_ticks(self) -> int:
        """The ticks in which DRAM is read for a wave."""
        bits = self.gallery_bits + sum(place.held_bits for place in self.streamed)
        return round((self.rates.prices.read_ns(bits).value or 0.0) * TICKS)

    @property
    def digital_alone(self) -> bool:
        """Only the digital unit has tasks, beside a read of the gallery."""
        timed = self.times.values()
        return all(one.product == NOTHING and one.search == NOTHING for one in timed)

    @property
    def item_bits(self) -> int:
        """Bits of an item that the buffer must hold: the widest node's values, or the inputs."""
        types, one = self.graph.types, {"n": 1}
        values = [[name for name in self.graph.inputs if "m" not in types[name].shape]]
        if self.graph.name in MODALITIES:
            values += [[*node.inputs, node.name] for node in self.graph.nodes]
        return max(
            sum(elements(types[name], one) * width(types[name]) for name in set(names))
            for names in values
        )

    def tasks(self, key: WaveKey) -> list[HardwareTask]:
        """The tasks of a wave of items."""
        return _Listing(self, self.fitted(key)).tasks()

    def fitted(self, key: WaveKey) -> WaveKey:
        """The key with no more parts than there are arrays, and no more groups than are few."""
        parts = max(1, min(key.parts, self.plan.streaming))
        tiles = sum(place.arrays for place in self.streamed)
        room = max(1, self.plan.streaming // parts * self.plan.weight_sets)
        count = 1 + len(self.graph.nodes) + 2 * -(-tiles // room)
        groups = max(1, min(key.items, key.groups, MOST_TASKS // count))
        return key._replace(parts=parts, groups=groups)

    def pattern(self, key: WaveKey) -> Pattern:
        """The schedule of a wave of items.

        Loads of a gallery are list-scheduled, few as many: few tell the time of many.
        """
        key = self.fitted(key)
        if key not in self.patterns:
            alike = self.streamed and self.graph.name not in MODALITIES
            self.patterns[key] = (listed if alike else once)(self.tasks(key))
        return self.patterns[key]


@dataclass(frozen=True)
class Load:
    """The tiles of layers that are loaded together: their number by the layer's name."""

    tiles: Mapping[str, int]
    bits: float
    sets: int


def loads_of(work: GraphWork, arrays: int) -> Iterator[Load]:
    """Loads of so many arrays that hold all tiles of the streamed layers in order."""
    sets = work.plan.weight_sets
    room = arrays * sets
    tiles: dict[str, int] = {}
    bits, free = 0.0, room
    for place in work.streamed:
        left = place.arrays
        while left:
            taken = min(left, free)
            tiles[place.layer] = tiles.get(place.layer, 0) + taken
            bits += work.tile_bits[place.layer] * taken
            left, free = left - taken, free - taken
            if not free:
                yield Load(tiles, bits, sets)
                tiles, bits, free = {}, 0.0, room
    if tiles:
        yield Load(tiles, bits, -(-(room - free) // arrays))


class _Listing:
    """The tasks of one graph as they are listed, node by node."""

    def __init__(self, work: GraphWork, key: WaveKey) -> None:
        self.work, self.end = work, key.end
        plan, streamed, rates = work.plan, work.streamed, work.rates
        self.parts = key.parts
        self.arrays = plan.streaming // key.parts
        self.loads = list(loads_of(work, self.arrays)) if streamed else []
        count, more = divmod(key.items, key.groups)
        self.groups = [count + (group < more) for group in range(key.groups)]
        self.row = row_time(rates).times(rates.own.rows or 0)
        self.streamed = {place.layer: place for place in streamed}
        self.listed: list[HardwareTask] = []
        self.ends: dict[str, list[tuple[int, ...]]] = {}
        self.products: list[list[list[int]]] = [[] for _ in self.loads]
        self.loaded: list[int] = []
        self.held = shared_arrays(work.layers, plan)

    def tasks(self) -> list[HardwareTask]:
        """All tasks, each after those that it needs."""
        work = self.work
        if work.gallery_bits:
            self._add(
                HardwareTask("gallery", ((DRAM, self._read(work.gallery_bits)),), (), shared=True)
            )
        for node in in_order(work):
            times, layer = work.times[node.name], work.graph.layer(node)
            after = [self._inputs(node, group) for group in range(len(self.groups))]
            if times.product != NOTHING:
                after = self._product(layer, times, after)
            for resource, time in ((SEARCH, times.search), (DIGITAL, times.digital)):
                if time != NOTHING:
                    after = self._each(node.name, (resource,), self._ticks(time), after)
            self.ends[node.name] = after
        self._hold_arrays()
        return self.listed

    def _inputs(self, node: Node, group: int) -> tuple[int, ...]:
        """The positions of the tasks that a node waits for, for one group of items."""
        known = (self.ends[name][group] for name in node.inputs if name in self.ends)
        return tuple(dict.fromkeys(position for positions in known for position in positions))

    def _each(
        self,
        name: str,
        held: tuple[Resource, ...],
        time: int,
        after: Sequence[tuple[int, ...]],
        buffer: Resource | None = None,
    ) -> list[tuple[int, ...]]:
        """Add a task for each group of items; their positions."""
        return [
            (
                self._add(
                    HardwareTask(name, tuple((r, time * size) for r in held), before, False, buffer)
                ),
            )
            for size, before in zip(self.groups, after, strict=True)
        ]

    def _add(self, task: HardwareTask) -> int:
        self.listed.append(task)
        return len(self.listed) - 1

    def _ticks(self, time: Quantity) -> int:
        value = getattr(time, self.end)
        return 0 if value is None else round(value * TICKS)

    def _read(self, bits: float) -> int:
        return self._ticks(self.work.rates.prices.read_ns(bits))

    def _product(
        self, layer: str, times: NodeTimes, after: list[tuple[int, ...]]
    ) -> list[tuple[int, ...]]:
        """The products of a layer, after the loads that they need; their positions by group."""
        plan, whole = self.work.plan, self._ticks(times.product)
        place = self.streamed.get(times.owner)
        if place is None:
            return self._each(layer, self.held.get(times.owner, (Resource(layer),)), whole, after)
        found: list[list[int]] = [[] for _ in after]
        for number, load in enumerate(self.loads):
            if place.layer not in load.tiles:
                continue
            while len(self.loaded) <= number:
                self._load(len(self.loaded))
            part = Resource(LOADED, 1 + number % self.parts)
            # Layers of one load lie side by side, unless arrays hold several tiles in turn.
            held = Resource(BESIDE, part.number, place.layer) if plan.weight_sets == 1 else part
            one = whole * -(-load.tiles[place.layer] // self.arrays) // plan.passes(place)
            needed = [(*before, self.loaded[number]) for before in after]
            made = self._each(layer, (held,), one, needed, part)
            for positions, new in zip(found, made, strict=True):
                positions += new
            self.products[number].append([position for (position,) in made])
        return [(self._add(HardwareTask(layer, (), tuple(positions))),) for positions in found]

    def _load(self, number: int) -> None:
        """Load one part of the free arrays: read DRAM, and write row by row beside."""
        load, part = self.loads[number], 1 + number % self.parts
        arrays, read = Resource(LOADED, part), self._read(load.bits)
        write = self._ticks(self.row) * load.sets
        before = self.products[number - self.parts] if number >= self.parts else []
        freed = tuple(position for positions in before for position in positions)
        holds = ((DRAM, read), (Resource(WRITING, part), write), (arrays, max(read, write)))
        self.loaded.append(self._add(HardwareTask("load", holds, freed, True, arrays)))

    def _hold_arrays(self) -> None:
        """Let the longest of the products with each load hold the arrays that it went to."""
        for products in self.products:
            longest = max(products, key=lambda positions: self.listed[positions[0]].ticks)
            for position in longest:
                task = self.listed[position]
                part = Resource(LOADED, task.holds[0][0].number)
                self.listed[position] = replace(task, holds=((part, task.ticks),))


def in_order(work: GraphWork) -> Sequence[Node]:
    """The nodes, each after its inputs; the products with the tiles of a load come together.

    A layer may drive the cells of another one. If these are loaded, the first product waits for
    the inputs of the others.
    """
    graph, times = work.graph, work.times
    sharing: dict[str, list[Node]] = {place.layer: [] for place in work.streamed}
    for node in graph.nodes:
        if times[node.name].owner in sharing:
            sharing[times[node.name].owner].append(node)
    if all(len(nodes) < 2 for nodes in sharing.values()):
        return graph.nodes
    before = {node.name: set(node.inputs) for node in graph.nodes}
    earlier: list[Node] = []
    for nodes in sharing.values():
        for node in nodes:
            before[node.name].update(name for other in nodes for name in other.inputs)
            before[node.name].update(other.name for other in earlier)
        earlier = nodes
    known = graph.by_name
    sorter = TopologicalSorter({n: [o for o in known if o in before[n]] for n in known})
    try:
        return [known[name] for name in sorter.static_order()]
    except CycleError:  # one of them drives the cells with a result of another
        return graph.nodes


def shared_arrays(layers: Sequence[Placement], plan: Floorplan) -> dict[str, tuple[Resource, ...]]:
    """The arrays that each staying layer holds: its own, or ranges that layers share in turn.

    Layers share arrays if these hold several weight sets: an array takes a second tile after every
    array has a first.
    """
    kept = [p for p in layers if plan.resident or p.layer in plan.kept]
    count = plan.arrays_at_once - (0 if plan.resident else plan.streaming)
    if sum(place.arrays for place in kept) <= count:
        return {place.layer: (Resource(place.layer),) for place in kept}
    spans: dict[str, list[tuple[int, int]]] = {}
    first = 0
    for place in kept:
        start, end = first % count, first % count + place.arrays
        first += place.arrays
        if place.arrays >= count:
            spans[place.layer] = [(0, count)]
        elif end > count:
            spans[place.layer] = [(start, count), (0, end - count)]
        else:
            spans[place.layer] = [(start, end)]
    cuts = sorted({at for ranges in spans.values() for span in ranges for at in span})
    pieces = list(pairwise(cuts))
    return {
        layer: tuple(
            Resource(f"arrays {low + 1:,} to {high:,}")
            for low, high in pieces
            if any(start <= low and high <= end for start, end in ranges)
        )
        for layer, ranges in spans.items()
    }
