"""Bit widths of layers, the cost of any choice of them on the target, and the search for fewer.

The search lowers the width that adds the least error per saved cost. The squared error of the logit
is measured once per width, with PROBE_BITS fewer bits. We assume that it grows fourfold with each
bit, as rounding errors do; this gives the order of all moves. The budget is checked on the compiled
model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, get_args

from cimtool.base.progress import PartDone, Say
from cimtool.costs.charges import layer_cost
from cimtool.costs.rates import Rates, rates_at
from cimtool.experiments.compiled import Outcome
from cimtool.experiments.objectives import CostName
from cimtool.experiments.points import nested
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.keys import WIDEST
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.placement import Floorplan, Placement, floorplan, placed, stored_cells
from cimtool.hardware.settings import LEFT_OUT, LayerSettings
from cimtool.ir.format import integer_limits
from cimtool.ir.integer import Quantize
from cimtool.ir.program import Program
from cimtool.ir.types import Type, integer, rows_of_item

LayerCostName = Literal["arrays", "conversions", "energy"]
COST_NAMES: tuple[LayerCostName, ...] = get_args(LayerCostName)

LOWEST_BITS = 2
"""The fewest bits of a weight, of an input, and of a feature."""

SCORE = "score"


@dataclass(frozen=True, order=True)
class Width:
    """One bit width of one layer: `weight_bits`, or `activation_bits` of its input.

    For a product of a score in the memory, they are the bits of an item and of a query.
    """

    layer: str
    key: str

    def __str__(self) -> str:
        return f"{self.layer} {self.key}"


BitAssignment = Mapping[Width, int]

MU, VARIANCE = Width("features", "feature_bits"), Width("features", "variance_bits")
FEATURES = (MU, VARIANCE)
"""The widths of what is stored of an item, which no layer has."""


def of_layers(bits: BitAssignment) -> BitAssignment:
    """The bits of layers alone."""
    return {width: own for width, own in bits.items() if width not in FEATURES}


def of_features(bits: BitAssignment) -> dict[str, int]:
    """The bits of features by the names of their settings, if there are any."""
    return {width.key: bits[width] for width in FEATURES if width in bits}


def by_layer(bits: BitAssignment) -> dict[str, dict[str, int]]:
    """Bits by layer and key, as in the table `layers` of a settings file."""
    left_out = {
        width.layer
        for width, value in bits.items()
        if width.key == "weight_bits" and value == LEFT_OUT
    }
    return nested(
        {
            (width.layer, width.key): value
            for width, value in bits.items()
            if width.key == "weight_bits" or width.layer not in left_out
        }
    )


WidthChoice = tuple[str, int, int]
"""A layer with its bits of weights and of activations."""


def chosen(layer: str, bits: BitAssignment) -> WidthChoice:
    """A layer with its bits in an assignment."""
    return layer, bits[Width(layer, "weight_bits")], bits[Width(layer, "activation_bits")]


class LayerCost(NamedTuple):
    """The cost of a layer's products for one item; energy in pJ, NaN if a part has no price."""

    conversions: int
    energy: float
    basis: str


@dataclass(frozen=True, eq=False)
class LayerCosts:
    """The layers of a program compiled for `start`; they give the cost of any bits.

    `layers` has each layer's graph, its product and the type of its input. `bits` are the compiled
    bits of all widths; `kept` widths belong to trained integers. For each product of a score in the
    memory, `matrices` names the first product that stores the same values of an item: with the same
    bits, they share cells. These have columns for `items` (None: for those that they hold).
    """

    start: Configuration
    layers: Mapping[str, tuple[str, CrossbarMvm, Type]]
    bits: BitAssignment
    matrices: Mapping[str, str]
    kept: Collection[Width] = ()
    items: int | None = None
    _placed: dict[WidthChoice, Placement] = field(default_factory=dict)
    _priced: dict[tuple[WidthChoice, str | None, int], LayerCost] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        program: Program,
        start: Configuration,
        kept: Collection[Width] = (),
        items: int | None = None,
    ) -> LayerCosts:
        """Collect the layers of both projectors of a compiled program, and of a gallery in it."""
        layers: dict[str, tuple[str, CrossbarMvm, Type]] = {}
        bits: dict[Width, int] = {}
        for graph in (program.text, program.video):
            for name, op in graph.operations(CrossbarMvm).items():
                (read,) = graph.by_name[name].inputs
                layer = f"{graph.name}.{name}"
                own = start.settings.of_layer(layer)
                layers[layer] = graph.name, op, graph.types[read]
                bits[Width(layer, "weight_bits")] = own.weight_bits
                from_outside = isinstance(graph.by_name[read].op, Quantize)
                input_bits = own.input_bits if from_outside else own.activation_bits
                bits[Width(layer, "activation_bits")] = input_bits
        score = program.score
        for name, op in score.operations(CrossbarMvm).items():
            (read,) = score.by_name[name].inputs
            layer = f"{SCORE}.{name}"
            layers[layer] = SCORE, op, score.types[read]
            bits[Width(layer, "weight_bits")] = op.crossbar.weights.bits
            bits[Width(layer, "activation_bits")] = min(score.types[read].bits, WIDEST)
        return cls(start, layers, bits, stored_cells(score), kept, items)

    def below(self, width: Width, bits: int) -> tuple[int, ...]:
        """The bits that a width can be lowered to, most first; a product can also be left out."""
        if width in self.kept:
            return ()
        may_go = width.key == "weight_bits" and width.layer in self.matrices and bits != LEFT_OUT
        lower: Iterable[int] = range(bits - 1, LOWEST_BITS - 1, -1)
        if width.key == "weight_bits":
            lower = filter(self.start.settings.weight_code.takes, lower)
        return *lower, *((LEFT_OUT,) if may_go else ())

    def configured(self, bits: BitAssignment) -> Configuration:
        """The configuration with these bits, which override its settings of layers."""
        settings = self.start.settings
        added = (LayerSettings(pattern=layer, **own) for layer, own in by_layer(bits).items())
        layers = (*settings.layers, *added)
        return replace(self.start, settings=settings.model_copy(update={"layers": layers}))

    def cost(self, bits: BitAssignment) -> dict[LayerCostName, float]:
        """Arrays of both projectors; conversions and energy in pJ to encode a text and a video.

        A gallery in the arrays adds its arrays, and one query against it. Energy is NaN if a part
        has no price, or if layers are priced on different bases.
        """
        places = self.places(bits)
        plan = floorplan(places, self.start.target)
        costs = [self._price(one, bits, plan) for one in places]
        whole = len({one.basis for one in costs}) <= 1
        return {
            "arrays": sum(place.arrays for place in places if place.shares is None),
            "conversions": sum(one.conversions for one in costs),
            "energy": float(sum(one.energy for one in costs)) if whole else math.nan,
        }

    @cached_property
    def _rates(self) -> Rates:
        return rates_at(self.start.target, None, self.start.settings)

    def places(self, bits: BitAssignment) -> list[Placement]:
        """The placement of each layer that is not left out."""
        places, owners = list[Placement](), dict[tuple[str, int], str]()
        for layer in self.layers:
            stored = bits[Width(layer, "weight_bits")]
            if stored == LEFT_OUT:
                continue
            owner = owners.setdefault((self.matrices.get(layer, layer), stored), layer)
            place = self._place(layer, bits)
            places.append(place if owner == layer else replace(place, shares=owner))
        return places

    def _price(self, place: Placement, bits: BitAssignment, plan: Floorplan) -> LayerCost:
        """The cost of a layer; it depends on its bits, shared cells and passes, and is cached."""
        key = chosen(place.layer, bits), place.shares, plan.passes(place)
        if key not in self._priced:
            settings = self.configured(bits).settings
            _, _, x = self.layers[place.layer]
            products = rows_of_item(x.shape[0])[0]  # one for each row of an item
            cost = layer_cost(place, self._rates, settings, plan).times(products)
            energy = cost.energy_pj.value
            if energy is None or cost.energy_pj.lower_bound:
                energy = math.nan
            self._priced[key] = LayerCost(cost.conversions, energy, cost.basis)
        return self._priced[key]

    def _place(self, layer: str, bits: BitAssignment) -> Placement:
        """The placement of a layer; it depends only on its bits, and each choice is placed once."""
        key = chosen(layer, bits)
        if key not in self._placed:
            graph, op, x = self.layers[layer]
            lo, hi = integer_limits(key[2], x.signed)
            own = self.configured(bits).settings.of_layer(layer)
            crossbar = own.crossbar(own.input_code(integer(x.shape, lo, hi, 1.0)))
            rows, columns = op.stored.shape
            if graph == SCORE and self.items is not None:
                columns = self.items
            self._placed[key] = placed(graph, layer, (rows, columns), crossbar, own)
        return self._placed[key]


PROBE_BITS = 4
"""Bits by which one width at a time is lowered to measure the added error."""

STRIDE = 8
"""The most moves between two checks of the budget; the search starts with as many."""

Evaluate = Callable[[BitAssignment], Outcome]


@dataclass(frozen=True)
class Move:
    """A width lowered from `was` bits to `now`."""

    width: Width
    was: int
    now: int

    def __str__(self) -> str:
        return f"{self.width}: {self.was} -> {self.now}"


@dataclass(frozen=True)
class Attempt:
    """Moves made at once: the bits after them, the compiled model's outcome, and `kept`."""

    moves: tuple[Move, ...]
    bits: BitAssignment = field(repr=False)
    cost: Mapping[CostName, float] = field(repr=False)
    outcome: Outcome = field(repr=False)
    kept: bool

    def to_json(self) -> dict[str, Any]:
        """Plain values by name; moves as `layer key: was -> now`."""
        return {
            "moves": [str(move) for move in self.moves],
            "cost": dict(self.cost),
            "metrics": dict(self.outcome.metrics),
            "error": self.outcome.error,
            "kept": self.kept,
        }


class BitCosts(Protocol):
    """The costs of any bits, and their prices: what a search lowers, the first of them first."""

    def below(self, width: Width, bits: int) -> tuple[int, ...]:
        """The bits that a width can be lowered to, most first."""

    def cost(self, bits: BitAssignment) -> Mapping[CostName, float]:
        """Costs by name."""

    def prices(self, bits: BitAssignment) -> tuple[float, ...]:
        """Prices; NaN if these bits have none."""


@dataclass
class Search:
    """A search in progress: its present bits, and the widths that broke the budget, with the bits.

    `weights` are the squared errors of `probe`; only these widths are lowered.
    """

    costs: BitCosts
    weights: Mapping[Width, float]
    bits: BitAssignment
    refused: dict[Width, int] = field(default_factory=dict)

    def run(
        self, evaluate: Evaluate, within: Callable[[Outcome], bool], say: Say
    ) -> Sequence[Attempt]:
        """Lower widths as long as the compiled model is `within` the budget.

        The search starts with several moves at once. If they break the budget, it tries half as
        many; if they keep it, twice as many. A single move that breaks it is not tried again.
        """
        attempts, stride = list[Attempt](), STRIDE
        while True:
            moves, bits = self.ahead(stride)
            if not moves:
                return attempts
            outcome = evaluate(bits)
            kept = within(outcome)
            attempts.append(Attempt(moves, bits, self.costs.cost(bits), outcome, kept))
            kept_or_not = "kept" if kept else "not kept"
            say(PartDone(f"{len(moves)} moves, {len(attempts)}. check: {kept_or_not}"))
            if kept:
                self.bits, stride = bits, min(2 * len(moves), STRIDE)
            elif len(moves) == 1:
                self.refused[moves[0].width] = moves[0].now
            else:
                stride = len(moves) // 2

    def ahead(self, count: int) -> tuple[tuple[Move, ...], BitAssignment]:
        """The next moves, at most `count`, and the bits after them."""
        bits, moves = dict(self.bits), list[Move]()
        while len(moves) < count:
            move = self._best(bits)
            if move is None:
                break
            bits[move.width] = move.now
            moves.append(move)
        return tuple(moves), bits

    def _best(self, bits: BitAssignment) -> Move | None:
        """The move with the least added error per saved price; further prices are fallbacks."""
        before = self.costs.prices(bits)
        for n in range(len(before)):
            found = [one for width in self.weights for one in self._cheaper(width, n, bits, before)]
            if found:
                return min(found, key=lambda one: (one[0], one[1].width))[1]
        return None

    def _cheaper(
        self, width: Width, n: int, bits: BitAssignment, before: Sequence[float]
    ) -> Iterator[tuple[float, Move]]:
        """The move to the most bits of a lower price `n`, with its error per saved price."""
        refused = self.refused.get(width, -1)
        for now in self.costs.below(width, bits[width]):
            if now <= refused:
                return
            saved = before[n] - self.costs.prices({**bits, width: now})[n]
            if saved > 0:
                added = self.weights[width] * (4.0**-now - 4.0 ** -bits[width])
                yield added / saved, Move(width, bits[width], now)
                return


def probes(start: BitAssignment) -> dict[Width, BitAssignment]:
    """For each width, the bits to measure what it adds: its own are PROBE_BITS fewer."""
    return {
        width: {**start, width: max(bits - PROBE_BITS, LOWEST_BITS)}
        for width, bits in start.items()
    }


def probe(
    start: BitAssignment, outcome: Outcome, probed: Mapping[Width, Outcome]
) -> dict[Width, float]:
    """The mean squared error of the logit that each width adds, times 4 to its bits.

    `outcome` is of `start`, `probed` of each of its `probes`. The mean difference of each query is
    left out, because it changes no rank. Values have a floor, a share of the largest, so that a
    width that seems free is not lowered without end.
    """
    least, added = outcome.metrics["centred_rmse"] ** 2, {}
    for (width, bits), low in zip(start.items(), probes(start).values(), strict=True):
        found, now = probed[width], low[width]
        error = found.metrics["centred_rmse"] ** 2 - least if found.error is None else 0.0
        added[width] = error / (4.0**-now - 4.0**-bits) if now < bits else 0.0
    floor = max(added.values()) / 2**20
    return {width: max(value, floor) for width, value in added.items()}
