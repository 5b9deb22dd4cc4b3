"""Kinds of macro that the bench drives: the layers of a kind have the same parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.handoff.layers import DrivenLayer, Lanes
from cimtool.handoff.requantiser import DIRECTED
from cimtool.hardware.converters import StaircaseLaw
from cimtool.hardware.crossbar import Crossbar

ROUNDINGS = ("half-up", "half-even", "floor")
OUT_BITS = 48


@dataclass(frozen=True, eq=False)
class MacroKind:
    """The layers that one macro of the bench takes, and the number of the kind, from 1."""

    number: int
    layers: list[DrivenLayer]

    @property
    def name(self) -> str:
        """The name of its folder in `sv/`."""
        return f"kind{self.number}"

    def parameters(self, lanes: Lanes) -> dict[str, int]:
        """The parameters of the macro, by name."""
        shared = _shared(self.layers[0])
        crossbars = [one.op.crossbar for one in self.layers]
        digits = max(max(abs(d) for d in one.digit_limits) for one in crossbars)
        columns = [column for one in self.layers for column in one.op.layer.columns]
        thresholds = shared["CONVERTER"] == 2
        widest = max(int(column.step.max()) for column in columns)
        reaches = [
            int(np.abs(column.offset).max())
            + (int(column.step.max()) * max(map(abs, column.law.ends)) if thresholds else 0)
            for column in columns
            if column.law is not None
        ]
        places = shared["REFERENCE_BITS"]
        fine = max([lanes.sums + places, *(n.bit_length() + 1 for n in reaches)]) + 1
        known = [one.graph.types[one.node.name] for one in self.layers]
        sums = [abs(int(end)) for one in known for end in (one.lo.min(), one.hi.max())]
        after = [r for one in self.layers for r in one.requantisations.values()]
        own = {
            "KIND": self.number,
            "INPUT_BITS": lanes.inputs,
            "DIGIT_BITS": max(digits.bit_length(), 1),
            "DIGIT_LANE": lanes.digits,
            "CYCLES": max(len(one.cycles) for one in crossbars),
            "SUM_BITS": lanes.sums,
            "CODE_BITS": lanes.sums,
            "STEP_BITS": max(1 << places, widest).bit_length() + 1,
            "FINE_BITS": fine,
            "ACC_BITS": max(one.accumulator_bits + one.places for one in crossbars),
            "LAYER_BITS": max(sums).bit_length() + 2,
            "OUT_BITS": OUT_BITS,
            "DIRECTED": DIRECTED,
            "VECTORS": max(len(one.x) for one in self.layers),
            "WIDTH": max(one.image.columns for one in self.layers),
            "STAGES": max([1, *(len(one.affine) for one in after)]),
        }
        return shared | own


def macro_kinds(layers: list[DrivenLayer]) -> list[MacroKind]:
    """The layers by the kind of macro that takes them, in the order of their first layers."""
    kinds: dict[tuple[int, ...], list[DrivenLayer]] = {}
    for layer in layers:
        kinds.setdefault(tuple(_shared(layer).values()), []).append(layer)
    return [MacroKind(number, own) for number, own in enumerate(kinds.values(), 1)]


def _shared(layer: DrivenLayer) -> dict[str, int]:
    """The parameters of a macro that all its layers share."""
    crossbar, image, layout = layer.op.crossbar, layer.image, layer.layout
    held = layer.op.layer.cells
    kind, lo, hi, rounding, _ = law_numbers(crossbar)
    order, lines = layout.order, layout.columns * image.cell_bits
    (words, word_bits), (flag_words, flag_bits) = (
        order.words_of(bits) for bits in (lines, layout.across * crossbar.slices)
    )
    signed = [image.slices[k // layer.polarities].signed for k in range(crossbar.slices)]
    return {
        "ROWS": layout.rows // layout.rows_per_weight,
        "WEIGHTS": layout.across,
        "SLICES": crossbar.slices,
        "SLICE_MAJOR": order.columns == "slice-major",
        "NEGATIVE_FIRST": order.pair == "negative-first",
        "POLARITIES": layer.polarities,
        "CELLS": image.polarities // layer.polarities,
        "CELL_BITS": image.cell_bits,
        "SIGNED_CELLS": sum(one << k for k, one in enumerate(signed)),
        "MULTIPLIES": crossbar.weights.multiplies,
        "UNIT_COLUMN": crossbar.unit_column,
        "REFERENCE_COLUMN": image.reference_column,
        "BESIDE": layout.auxiliary,
        "FRACTION_BITS": held.fraction_bits,
        "LEAK": held.leak,
        "CONVERTER": min(kind, 2),
        "ROUNDING": rounding,
        "REFERENCE_BITS": crossbar.reference_bits,
        "THRESHOLDS": hi - lo if kind > 1 else 1,
        "SET_REFERENCES": crossbar.scope.set and kind > 0,
        "WORD_LINES": layout.rows,
        "HEIGHT": layout.rows_per_weight,
        "DESCENDING": order.rows == "descending",
        "BINARY": order.digits == "binary",
        "MSB_FIRST": order.bit_order == "msb-first",
        "WORDS": words,
        "WORD_BITS": word_bits,
        "FLAG_WORDS": flag_words,
        "FLAG_BITS": flag_bits,
    }


def law_numbers(crossbar: Crossbar) -> tuple[int, int, int, int, int]:
    """Kind, lowest and highest code, rounding and places of thresholds, as `STEPS` has them."""
    law = crossbar.law
    if law is None:
        return 0, 0, 0, 0, 0
    if isinstance(law, StaircaseLaw):
        return 2, law.lo, law.hi, 0, law.places
    return 3 if crossbar.scope.levels else 1, law.lo, law.hi, ROUNDINGS.index(law.rounding), 0
