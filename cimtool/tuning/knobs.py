"""What tuning turns: the bits of each layer, and what a choice of them costs on the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cimtool.base.errors import ArgumentError, CimError
from cimtool.costs.estimate import layer_cost
from cimtool.costs.rates import rates_at
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.placement import layout, placed
from cimtool.hardware.settings import LayerSettings, Settings
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.target import Target
from cimtool.ir.format import integer_limits
from cimtool.ir.integer import Quantize
from cimtool.ir.program import MODALITIES, Program
from cimtool.ir.types import Type, integer

CostName = Literal["arrays", "conversions", "energy"]
ORDER: dict[CostName, tuple[CostName, CostName]] = {
    "arrays": ("arrays", "conversions"),
    "conversions": ("conversions", "arrays"),
    "energy": ("energy", "arrays"),
}
"""What is saved first, and what where nothing more of that can be."""

LOWEST_BITS = 2


@dataclass(frozen=True, order=True)
class Knob:
    """One setting of one layer: `weight_bits`, or `activation_bits` of what it reads."""

    layer: str
    key: str

    @property
    def name(self) -> str:
        """What a table calls it."""
        return f"{self.layer} {self.key}"


Bits = Mapping[Knob, int]


@dataclass(frozen=True, eq=False)
class Hardware:
    """The layers of a model as first compiled, on a target, by which any bits can be priced.

    `layers` are each layer and the type of what it reads; `start` the bits that all of them have.
    """

    target: Target
    settings: Settings
    layers: Mapping[str, tuple[CrossbarMvm, Type]]
    start: Bits

    @classmethod
    def of(cls, program: Program, settings: Settings, target: Target) -> Hardware:
        """From the program that the highest bits compile to."""
        layers: dict[str, tuple[CrossbarMvm, Type]] = {}
        start: dict[Knob, int] = {}
        for graph in program.graphs:
            for node in graph.nodes:
                if graph.name in MODALITIES and isinstance(node.op, CrossbarMvm):
                    (read,) = node.inputs
                    layer = graph.layer(node)
                    own = settings.of_layer(layer)
                    layers[layer] = node.op, graph.types[read]
                    start[Knob(layer, "weight_bits")] = own.weight_bits
                    from_outside = isinstance(graph.by_name[read].op, Quantize)
                    bits = own.input_bits if from_outside else own.activation_bits
                    start[Knob(layer, "activation_bits")] = bits
        return cls(target, settings, layers, start)

    def with_bits(self, bits: Bits) -> Settings:
        """The settings with these bits of layers, after all that they say of layers already."""
        own: dict[str, dict[str, int]] = {}
        for knob, value in bits.items():
            own.setdefault(knob.layer, {})[knob.key] = value
        added = (LayerSettings(pattern=layer, **keys) for layer, keys in own.items())
        return self.settings.model_copy(update={"layers": (*self.settings.layers, *added)})

    def cost(self, bits: Bits) -> dict[CostName, float]:
        """Arrays of both projectors; conversions, and energy in pJ, of a text and a video encoded.

        Energy is NaN where the target gives no figure of it.
        """
        settings = self.with_bits(bits)
        places = []
        for layer, (op, x) in self.layers.items():
            lo, hi = integer_limits(bits[Knob(layer, "activation_bits")], x.signed)
            own = settings.of_layer(layer)
            crossbar = own.crossbar(own.input_code(integer(x.shape, lo, hi, 1.0)))
            stored = StoredWeights(op.weight, crossbar)
            tiled = replace(op, stored=stored, steps=(None,) * crossbar.slices)
            places.append(placed(layer, tiled, own))
        plan, rates = layout(places, self.target), rates_at(self.target, None)
        energies = [
            layer_cost(place, rates, settings.of_layer(place.layer), plan).energy.value
            for place in places
        ]
        known = [np.nan if value is None else value for value in energies]
        return {
            "arrays": sum(place.arrays for place in places),
            "conversions": sum(place.conversions for place in places),
            "energy": float(sum(known)),
        }


def check_cost(hardware: Hardware, cost: CostName) -> None:
    """Raise CimError where the target does not tell this cost, or no bits change it."""
    if not hardware.layers:
        raise CimError("the projectors have no layer, so there are no bits to tune")
    found = hardware.cost(hardware.start)[cost]
    if np.isnan(found) or not found:
        raise ArgumentError(
            "{cost} {}: target {} {}; expected {cost} arrays",
            cost,
            hardware.target.name,
            "converts nothing" if cost == "conversions" else f"gives no {cost}",
        )
