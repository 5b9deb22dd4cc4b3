"""Bit widths of layers, which tuning lowers, and the cost of any choice of them on the target."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from cimtool.base.errors import ArgumentError, CimError
from cimtool.costs.layers import layer_cost
from cimtool.costs.rates import Rates, rates_at
from cimtool.experiments.sweeps.grid import nested
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.placement import Floorplan, Placement, floorplan, placed, stored_cells
from cimtool.hardware.settings import LEFT_OUT, LayerSettings
from cimtool.ir.format import integer_limits
from cimtool.ir.integer import Quantize
from cimtool.ir.program import Program
from cimtool.ir.types import Type, integer, rows_of_item

CostName = Literal["arrays", "conversions", "energy"]
ORDER: dict[CostName, tuple[CostName, CostName]] = {
    "arrays": ("arrays", "conversions"),
    "conversions": ("conversions", "arrays"),
    "energy": ("energy", "arrays"),
}
"""The cost that is lowered first, and the one that follows where no width lowers it further."""

LOWEST_BITS = 2
SCORE = "score"


@dataclass(frozen=True, order=True)
class Width:
    """One bit width of one layer: `weight_bits`, or `activation_bits` of its input.

    Of a product of a score in the memory they are those of an item, and of a query.
    """

    layer: str
    key: str

    def __str__(self) -> str:
        return f"{self.layer} {self.key}"


BitAssignment = Mapping[Width, int]


def by_layer(bits: BitAssignment) -> dict[str, dict[str, int]]:
    """Bits by layer and key, as the table `layers` of a settings file has them."""
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
    """A layer with the bits that an assignment gives it."""
    return layer, bits[Width(layer, "weight_bits")], bits[Width(layer, "activation_bits")]


class LayerCost(NamedTuple):
    """The products of a layer that an item takes; energy in pJ, None where a part has no price."""

    conversions: int
    energy: float | None
    basis: str


@dataclass(frozen=True, eq=False)
class LayerCosts:
    """The layers of a program compiled for `start`, from which any bits are priced.

    `layers` are each layer's graph, its product and the type of its input; `bits` are those of all
    widths as compiled, of which `kept` are of trained integers. `matrices` name for each product of
    a score in the memory the first one that stores the same of an item: with the same bits they
    share cells.
    """

    start: Configuration
    layers: Mapping[str, tuple[str, CrossbarMvm, Type]]
    bits: BitAssignment
    matrices: Mapping[str, str]
    kept: Collection[Width] = ()
    _placed: dict[WidthChoice, Placement] = field(default_factory=dict)
    _priced: dict[tuple[WidthChoice, str | None, int], LayerCost] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program, start: Configuration, kept: Collection[Width] = ()) -> LayerCosts:
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
            bits[Width(layer, "activation_bits")] = score.types[read].bits
        return cls(start, layers, bits, stored_cells(score), kept)

    def below(self, width: Width, bits: int) -> tuple[int, ...]:
        """The bits that a width can be lowered to, the most first; a product can be left out."""
        if width in self.kept:
            return ()
        may_go = width.key == "weight_bits" and width.layer in self.matrices and bits != LEFT_OUT
        return *range(bits - 1, LOWEST_BITS - 1, -1), *((LEFT_OUT,) if may_go else ())

    def configured(self, bits: BitAssignment) -> Configuration:
        """The configuration with these bits, which override its own settings of layers."""
        settings = self.start.settings
        added = (LayerSettings(pattern=layer, **own) for layer, own in by_layer(bits).items())
        layers = (*settings.layers, *added)
        return replace(self.start, settings=settings.model_copy(update={"layers": layers}))

    def cost(self, bits: BitAssignment) -> dict[CostName, float]:
        """Arrays of both projectors; conversions, and energy in pJ, of a text and a video encoded.

        A gallery in the arrays adds its own, and one query against it. Energy is NaN where a part
        has no price, or where layers are priced on different bases.
        """
        places, costs = self._costs(bits)
        whole = len({one.basis for one in costs}) == 1
        energies = [one.energy if whole else None for one in costs]
        return {
            "arrays": sum(place.arrays for place in places if place.shares is None),
            "conversions": sum(one.conversions for one in costs),
            "energy": float(sum(np.nan if value is None else value for value in energies)),
        }

    @property
    def energy_basis(self) -> str:
        """The basis of the energies; those of another are not compared."""
        return "; ".join(dict.fromkeys(one.basis for one in self._costs(self.bits)[1]))

    @cached_property
    def _rates(self) -> Rates:
        return rates_at(self.start.target, None)

    def _costs(self, bits: BitAssignment) -> tuple[list[Placement], list[LayerCost]]:
        """The placement of each layer, and its cost."""
        places, owners = list[Placement](), dict[tuple[str, int], str]()
        for layer in self.layers:
            stored = bits[Width(layer, "weight_bits")]
            if stored == LEFT_OUT:
                continue
            owner = owners.setdefault((self.matrices.get(layer, layer), stored), layer)
            place = self._place(layer, bits)
            places.append(place if owner == layer else replace(place, shares=owner))
        plan = floorplan(places, self.start.target)
        return places, [self._price(one, bits, plan) for one in places]

    def _price(self, place: Placement, bits: BitAssignment, plan: Floorplan) -> LayerCost:
        """The cost of a layer, which its own bits, shared cells and passes decide: each once."""
        key = chosen(place.layer, bits), place.shares, plan.passes(place)
        if key not in self._priced:
            settings = self.configured(bits).settings
            cost = layer_cost(place, self._rates, settings, plan)
            cost = cost.times(self._products(place.layer))
            energy = None if cost.energy_pj.lower_bound else cost.energy_pj.value
            self._priced[key] = LayerCost(cost.conversions, energy, cost.basis)
        return self._priced[key]

    def _products(self, layer: str) -> int:
        """Products of a layer that an item takes, one for each of its rows."""
        _, _, x = self.layers[layer]
        return rows_of_item(x.shape[0])[0]

    def _place(self, layer: str, bits: BitAssignment) -> Placement:
        """The placement of a layer, which its own bits decide: each choice is placed once."""
        key = chosen(layer, bits)
        if key not in self._placed:
            graph, op, x = self.layers[layer]
            lo, hi = integer_limits(key[2], x.signed)
            own = self.configured(bits).settings.of_layer(layer)
            crossbar = own.crossbar(own.input_code(integer(x.shape, lo, hi, 1.0)))
            self._placed[key] = placed(graph, layer, op.stored.shape, crossbar, own)
        return self._placed[key]


def check_cost(costs: LayerCosts, name: CostName) -> None:
    """Raise CimError where the target does not tell this cost, or no bits change it."""
    if not costs.layers:
        raise CimError("the projectors have no layer, so there are no bits to tune")
    if costs.bits.keys() <= set(costs.kept):
        raise CimError(
            "all layers keep trained integers, so there are no bits to tune; expected a model of "
            "real numbers"
        )
    value = costs.cost(costs.bits)[name]
    if np.isnan(value) or not value:
        raise ArgumentError(
            "{cost} {}: target {} {}; expected {cost} arrays",
            name,
            costs.start.target.name,
            "converts nothing" if name == "conversions" else f"gives no {name}",
        )
