"""Bits of layers whose integers a model brings: a build has those, and no setting says fewer."""

from __future__ import annotations

from cimtool.base.errors import CimError
from cimtool.hardware.keys import Bits
from cimtool.hardware.settings import LayerSettings, Settings
from cimtool.hardware.target import Target
from cimtool.ir.program import Graph, Program
from cimtool.ir.quantized import QuantizedMvm, QuantizedStore

LEAST_BITS = 2
"""Bits of a layer's weights or input that settings can say."""


def with_trained_bits(settings: Settings, target: Target, program: Program) -> Settings:
    """The settings with the bits of every layer of whole weights, of a trained program, as its own.

    Raises CimError where fewer are asked for than a model brings. Bits of the target itself are not
    asked for.
    """
    layers = []
    for graph in (program.text, program.video):
        for name, trained in _trained_bits(graph).items():
            layer = f"{graph.name}.{name}"
            own = settings.of_layer(layer)
            for key, bits in trained.items():
                asked = getattr(own, key)
                if asked < bits and asked != getattr(target.keys, key):
                    raise CimError(
                        f"settings: {key} = {asked}: {layer} was trained with integers of {bits} "
                        f"bits, which are kept; expected {bits}, or a model of real numbers"
                    )
            layers.append(LayerSettings(pattern=layer, **trained))
    return settings.model_copy(update={"layers": (*settings.layers, *layers)})


def _trained_bits(graph: Graph) -> dict[str, dict[str, Bits]]:
    """The bits of weights, and of inputs that have a quantizer, by layer of whole weights."""
    found = {}
    for name, op in graph.operations(QuantizedMvm).items():
        bits = {"weight_bits": op.weight_bits}
        (read,) = graph.by_name[name].inputs
        made = graph.by_name.get(read)
        if made is not None and isinstance(made.op, QuantizedStore):
            bits["activation_bits"] = max(made.op.bits, LEAST_BITS)
        found[name] = bits
    return found


def trained_bits_notes(program: Program) -> list[str]:
    """A sentence on the layers of a trained program that keep their integers, if there are any."""
    layers: list[str] = []
    for graph in (program.text, program.video):
        for name, bits in _trained_bits(graph).items():
            reads = bits.get("activation_bits")
            inputs = f" x {reads}" if reads else ", its input calibrated"
            layers.append(f"{graph.name}.{name} ({bits['weight_bits']}{inputs})")
    if not layers:
        return []
    return [
        f"{len(layers)} layers keep their trained integers, which rounding, equalisation and bias "
        f"correction leave as they are (bits of weights x inputs): {', '.join(layers)}"
    ]
