"""Bits of layers whose integers a model brings: a build has those, and no setting says fewer."""

from __future__ import annotations

from cimtool.base.errors import CimError
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import LayerSettings, Settings
from cimtool.ir.program import Program
from cimtool.ir.quantized import QuantizedMvm, quantizer_of

LEAST_BITS, MOST_BITS = 2, 16
"""Bits of a layer's weights or input that settings can say."""


def trained_bits(program: Program, settings: Settings) -> dict[str, dict[str, int]]:
    """The bits of weights, and of inputs that have a quantizer, by layer of whole weights.

    CimError if weights less their zero point need more than MOST_BITS.
    """
    found = {}
    for graph in (program.text, program.video):
        for name, op in graph.operations(QuantizedMvm).items():
            layer = f"{graph.name}.{name}"
            # Cells of magnitudes hold no -128 in 8 bits.
            lowest, highest = int(op.codes.min()), int(op.codes.max())
            reach = max(highest, -lowest if settings.weight_code.symmetric else -lowest - 1, 1)
            bits = {"weight_bits": max(op.weight_bits, reach.bit_length() + 1)}
            if bits["weight_bits"] > MOST_BITS:
                raise CimError(
                    f"{layer}: its weights minus their zero point need {bits['weight_bits']} bits; "
                    f"expected at most {MOST_BITS}"
                )
            quantizer = quantizer_of(graph.by_name, graph.by_name[name].inputs[0])
            if quantizer is not None:
                bits["activation_bits"] = max(quantizer.bits, LEAST_BITS)
            found[layer] = bits
    return found


def with_trained_bits(build: Configuration, program: Program) -> Settings:
    """The settings of a build with the bits that layers of its trained program bring.

    Raises CimError if fewer are asked for, or a code whose rows share exponents. A target's own
    bits are not asked for.
    """
    settings, layers = build.settings, []
    for layer, bits in trained_bits(program, settings).items():
        if settings.weight_code.shared_rows is not None:
            raise CimError(
                f'settings: encoding = "{settings.encoding}": {layer} has trained integers, which '
                'are kept and share no exponents; expected encoding = "twos-complement", or a '
                "model of real numbers"
            )
        own = settings.of_layer(layer)
        for key, most in bits.items():
            asked = getattr(own, key)
            if asked < most and asked != getattr(build.target.keys, key):
                raise CimError(
                    f"settings: {key} = {asked}: {layer} has trained integers of {most} bits, "
                    f"which are kept; expected {most}, or a model of real numbers"
                )
        layers.append(LayerSettings(pattern=layer, **bits))
    return settings.model_copy(update={"layers": (*settings.layers, *layers)})


def trained_bits_notes(program: Program, settings: Settings) -> list[str]:
    """A sentence on the layers that keep their integers, if there are any."""
    found = trained_bits(program, settings)
    if not found:
        return []
    layers = ", ".join(
        f"{layer} ({' x '.join(map(str, bits.values()))})" for layer, bits in found.items()
    )
    return [
        f"{len(found)} layers keep their trained integers, which rounding, equalisation and bias "
        f"correction leave as they are (bits of weights x inputs): {layers}"
    ]
