"""The test bench in SystemVerilog: its sources, and the parameters of the macro that it drives."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.emit.handoff.directed import (
    DIRECTED,
    low_bits_show,
    requantiser_inputs,
    requantiser_range,
    ties_show,
)
from cimtool.emit.handoff.faults import COLUMN, FAULTS, MACRO, OUTPUT, Fault, MacroFacts, faulty
from cimtool.emit.handoff.layers import DrivenLayer, Lanes
from cimtool.emit.handoff.part import HandoffPart, HandoffSource
from cimtool.hardware.converters import StaircaseLaw, UniformLaw

COCOTB = "column_cocotb.py"
SOURCES = (COLUMN, MACRO, OUTPUT, "tb_macro.sv", "tb_converter.svh", "waivers.vlt")
RUN, FAULTY, NOT_COVERED = "bench.sh", "faulty", "NOT_COVERED"
FLAGS = (
    *("SLICE_MAJOR", "NEGATIVE_FIRST", "UNIT_COLUMN", "REFERENCE_COLUMN", "SET_REFERENCES"),
    *("DESCENDING", "BINARY", "MSB_FIRST"),
)
ROUNDINGS = ("half-up", "half-even", "floor")
OUT_BITS = 48


def uncovered(layers: list[DrivenLayer]) -> str | None:
    """A reason why one macro of the bench cannot take these layers; None where it can."""
    first = _shared(layers[0])
    for layer in layers[1:]:
        for name, value in _shared(layer).items():
            if value != first[name]:
                return (
                    f"{layers[0].name} has {name} = {first[name]} and {layer.name} {value}; one "
                    "macro has one: choose layers"
                )
    return None


def _shared(layer: DrivenLayer) -> dict[str, Any]:
    """The parameters of a macro that all of its layers share."""
    crossbar, image, layout = layer.op.crossbar, layer.image, layer.layout
    law = crossbar.law
    kind, thresholds, rounding = 0, 1, 0
    if law is not None:
        kind = 2 if isinstance(law, StaircaseLaw) or crossbar.scope.levels else 1
        thresholds = law.hi - law.lo if kind == 2 else 1
    if isinstance(law, UniformLaw):
        rounding = ROUNDINGS.index(law.rounding)
    order, lines = layout.order, layout.columns * image.cell_bits
    (words, word_bits), (flag_words, flag_bits) = (
        order.words_of(bits) for bits in (lines, layout.across * crossbar.slices)
    )
    signed = [image.slices[k // layer.polarities].signed for k in range(crossbar.slices)]
    return {
        "ROWS": layout.rows // layout.rows_per_weight,
        "WEIGHTS": layout.across,
        "SLICES": crossbar.slices,
        "SLICE_MAJOR": int(order.columns == "slice-major"),
        "NEGATIVE_FIRST": int(order.pair == "negative-first"),
        "POLARITIES": layer.polarities,
        "CELLS": image.polarities // layer.polarities,
        "CELL_BITS": image.cell_bits,
        "SIGNED_CELLS": sum(one << k for k, one in enumerate(signed)),
        "UNIT_COLUMN": int(crossbar.unit_column),
        "REFERENCE_COLUMN": int(image.reference_column),
        "BESIDE": layout.auxiliary,
        "FRACTION_BITS": crossbar.fraction_bits,
        "LEAK": crossbar.column_leak,
        "CONVERTER": kind,
        "ROUNDING": rounding,
        "REFERENCE_BITS": crossbar.reference_bits,
        "THRESHOLDS": thresholds,
        "SET_REFERENCES": int(crossbar.scope.set and law is not None),
        "WORD_LINES": layout.rows,
        "HEIGHT": layout.rows_per_weight,
        "DESCENDING": int(order.rows == "descending"),
        "BINARY": int(order.digits == "binary"),
        "MSB_FIRST": int(order.bit_order == "msb-first"),
        "WORDS": words,
        "WORD_BITS": word_bits,
        "FLAG_WORDS": flag_words,
        "FLAG_BITS": flag_bits,
    }


def parameters(layers: list[DrivenLayer], lanes: Lanes) -> dict[str, int]:
    """The parameters of a macro that takes these layers, by name."""
    shared = _shared(layers[0])
    crossbars = [one.op.crossbar for one in layers]
    digits = max(max(abs(d) for d in one.digit_limits) for one in crossbars)
    steps = [r.step for one in layers for r in one.op.references if r is not None]
    reaches = [
        int(abs(r.offset).max())
        + (r.step * max(map(abs, r.law(law).ends)) if shared["CONVERTER"] == 2 else 0)
        for one in layers
        if (law := one.op.crossbar.law) is not None
        for r in one.op.references
        if r is not None
    ]
    places = shared["REFERENCE_BITS"]
    fine = max([lanes.sums + places, *(n.bit_length() + 1 for n in reaches)]) + 1
    sums = [abs(int(bound)) for one in layers for bound in _layer_limits(one)]
    return shared | {
        "INPUT_BITS": lanes.inputs,
        "DIGIT_BITS": max(digits.bit_length(), 1),
        "DIGIT_LANE": lanes.digits,
        "CYCLES": max(len(one.cycles) for one in crossbars),
        "SUM_BITS": lanes.sums,
        "CODE_BITS": lanes.sums,
        "STEP_BITS": max([1 << places, *steps]).bit_length() + 1,
        "FINE_BITS": fine,
        "ACC_BITS": max(one.accumulator_bits + one.places for one in crossbars),
        "LAYER_BITS": max(sums).bit_length() + 2,
        "OUT_BITS": OUT_BITS,
        "DIRECTED": DIRECTED,
        "VECTORS": max(len(one.x) for one in layers),
        "WIDTH": max(one.image.columns for one in layers),
        "STAGES": max(
            [1, *(len(r.affine) for one in layers if (r := one.requantisation) is not None)]
        ),
    }


def _layer_limits(layer: DrivenLayer) -> tuple[int, int]:
    known = layer.graph.types[layer.node.name]
    return int(known.lo.min()), int(known.hi.max())


def _reaches_top(layer: DrivenLayer) -> bool:
    """The largest column sum, which a vector reaches, has the highest code or would lie beyond."""
    op, law = layer.op, layer.op.crossbar.law
    tops = [int(bounds[1].max()) for bounds in op.stored.bounds]
    k = tops.index(max(tops))
    one = op.references[op.crossbar.reference_of(k, 0)] or op.crossbar.finest_references
    if law is None:
        return False
    top = np.array(tops[k] << op.crossbar.reference_bits) - int(one.offset.max())
    return int(one.law(law).codes(top - one.step, one.step)) >= law.hi


def _largest_group_sum(layer: DrivenLayer) -> int:
    """The largest size of what a row group adds for the vectors, but for roundings."""
    op = layer.op
    x = layer.x + op.crossbar.inputs.lift
    sums = (np.abs(x[:, group] @ op.weight[group]).max() for group in op.stored.groups)
    return int(max(sums)) << op.crossbar.places


def faults_that_show(layers: list[DrivenLayer], found: MacroFacts) -> list[Fault]:
    """The faults that change a number of these layers on a macro of these parameters."""
    crossbars = [one.op.crossbar for one in layers]
    digit = 1 << found["REFERENCE_BITS"]
    references = [r for one in layers for r in one.op.references if r is not None]
    directed = [
        (after, requantiser_inputs(after, *requantiser_range(layer, after)))
        for layer in layers
        if (after := layer.requantisation) is not None
    ]
    facts = dict(found) | {
        "COARSE": int(found["CONVERTER"] == 1 and any(r.step > digit for r in references)),
        "NEGATIVE": int(any(cycle.sign < 0 for one in crossbars for cycle in one.cycles)),
        "FLIPS": int(any(s.flipped.any() for one in layers for s in one.op.stored.slices)),
        "APART": max(s.shift for one in layers for s in one.op.stored.slices),
        "OFFSET": max(one.weights.offset for one in crossbars),
        "TIES": int(any(ties_show(*one).any() for one in directed)),
        "LOW_BITS": int(any(low_bits_show(*one, 6).any() for one in directed)),
        "TOP": int(any(map(_reaches_top, layers))),
        "REACH": max(map(_largest_group_sum, layers)),
    }
    return [one for one in FAULTS if one.shows(facts)]


def write_bench(source: HandoffSource, folder: Path) -> None:
    """Write the sources, `parameters.svh`, and the sources with faults, into a folder.

    Of layers that one macro of the bench cannot take, it writes the reason in their place.
    """
    layers = source.layers
    (folder / RUN).write_text(_source(RUN), "utf-8")
    if (reason := uncovered(layers)) is not None:
        (folder / NOT_COVERED).write_text(reason + "\n", "utf-8")
        return
    found = parameters(layers, source.lanes)
    kinds = {"SIGNED_CELLS": f"bit [{found['SLICES'] - 1}:0]"} | dict.fromkeys(FLAGS, "bit")
    lines = [f"localparam {kinds.get(name, 'int')} {name} = {n};" for name, n in found.items()]
    lines.append("localparam int LANES = WEIGHTS * SLICES;")
    (folder / "parameters.svh").write_text("\n".join(lines) + "\n", "utf-8")
    # Not a module of this package: it runs in a hand-off's folder.
    (folder / COCOTB).write_text(_source(f"{COCOTB}.in"), "utf-8")
    faults = faults_that_show(layers, found)
    (folder / FAULTY).mkdir()
    for name in SOURCES:
        text = _source(name)
        (folder / name).write_text(text, "utf-8")
        if name in (COLUMN, MACRO, OUTPUT):
            (folder / FAULTY / name).write_text(faulty(name, text, faults), "utf-8")
    table = [f"{n}\t{one.tap}\t{one.name}\n" for n, one in enumerate(faults, 1)]
    (folder / "faults.txt").write_text("".join(table), "utf-8")


def _source(name: str) -> str:
    return (files(__package__) / "sv" / name).read_text("utf-8")


BENCH_PART = HandoffPart(
    folder="sv",
    title="The bench in SystemVerilog, and one macro, the reference device, that takes all arrays",
    write=write_bench,
    files={
        COLUMN: "a column and its converter, the analog part: replace it by your own, "
        "`make icarus COLUMN=...`",
        MACRO: "the array of columns, and its digital periphery: cycles, shift-and-add",
        OUTPUT: "row groups and bias, requantisation",
        "tb_macro.sv": "programs each array, reads it as `steps.txt` says, and compares every tap",
        "tb_converter.svh": "a column by itself, with the sums of `directed/`",
        COCOTB: "the same in cocotb, with the references of each converter from `constants/`",
        "parameters.svh": "the widths and extents of this hand-off",
        "waivers.vlt": "rules of Verilator's lint that the bench, not the macro, does not keep",
        RUN: "builds and runs it in Icarus Verilog or Verilator, and with faults",
        "faults.txt": "the faults that must be found, a number, a tap and a name a line",
        f"{FAULTY}/*.sv": "the macro with these faults, each chosen at run time",
        NOT_COVERED: "in place of the sources, the reason why one macro does not take these layers",
    },
    uncovered=(
        "layers that one macro does not take: `cimtool export --layers` chooses those of a kind",
        "`make icarus`, `make verilator` and `make mutants` need the simulators of their names, "
        "`make cocotb` Icarus Verilog and cocotb 2",
    ),
    goals={
        "icarus": ("@sh sv/bench.sh icarus '$(COLUMN)'",),
        "verilator": ("@sh sv/bench.sh verilator '$(COLUMN)'",),
        "cocotb": ("@PYTHON='$(PYTHON)' sh sv/bench.sh cocotb '$(COLUMN)'",),
        "mutants": ("@sh sv/bench.sh mutants",),
    },
    settings={"COLUMN": f"sv/{COLUMN}", "PYTHON": "python3"},
)
