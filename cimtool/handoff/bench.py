"""The bench in SystemVerilog: the kinds of macro that it drives, its steps, and its sources.

All layers of a kind of macro have the same parameters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.escapes import c_string
from cimtool.handoff.c.operations import layer_definition
from cimtool.handoff.c.writer import ConstantTables
from cimtool.handoff.coverage import coverage
from cimtool.handoff.faults import (
    ADAPTER,
    ARRAY,
    BOUNDARY,
    COLUMN,
    FAULTS,
    MACRO,
    OUTPUT,
    faulty,
    layer_facts,
)
from cimtool.handoff.layers import DrivenLayer, HandoffPart, HandoffSource, Lanes
from cimtool.handoff.requantiser import DIRECTED
from cimtool.handoff.steps import STEPS_VERSION, step_line
from cimtool.handoff.stimuli import input_limits
from cimtool.hardware.converters import StaircaseLaw
from cimtool.hardware.crossbar import Crossbar
from cimtool.report.page import render_text

COCOTB = "array_cocotb.py"
DEVICE = (ADAPTER, ARRAY, COLUMN, MACRO, OUTPUT)
PARTS_OF_BENCH = tuple(
    f"tb_{part}.svh" for part in ("references", "answers", "images", "layer", "converter", "taps")
)
WITH_FAULTS = (*DEVICE, BOUNDARY)
SOURCES = (*WITH_FAULTS, "lanes.svh", "tb_array.sv", *PARTS_OF_BENCH, "waivers.vlt", "bench.sh")
UNDER_TEST = " ".join(
    f"{name}='$({name})'" for name in ("MACRO", "ADAPTER", "LATENCY", "MULTIPLEXED", "TIMEOUT")
)
VERILATOR_SETTINGS = "OPTIMIZE='$(OPTIMIZE)' VERILATED='$(VERILATED)'"
FAULTY, NOWHERE = "faulty", "none"
VECTORS, DPI = "tb_random.svh", "dpi.c"
HEADER, TABLES = "layers.h", "layers.bin"
COVERAGE = "coverage.json"

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


def steps_text(layers: list[DrivenLayer], lanes: Lanes) -> str:
    """The text of `steps.txt` for these layers."""
    layout = layers[0].layout
    lines = [
        step_line("handoff", STEPS_VERSION),
        step_line("array", layout.rows, layout.columns),
        step_line("lanes", lanes.inputs, lanes.digits, lanes.sums),
    ]
    kinds = {layer: kind.number for kind in macro_kinds(layers) for layer in kind.layers}
    for layer in layers:
        lines += [*_settings(layer, kinds[layer]), *_reads(layer)]
    return "\n".join([*lines, "end"]) + "\n"


def _settings(layer: DrivenLayer, kind: int) -> Iterator[str]:
    """The lines with the settings that all reads of a layer share."""
    name, image, crossbar = layer.name, layer.image, layer.op.crossbar
    rows, columns = layer.op.weight.shape
    held, cycles = layer.op.layer.cells, crossbar.cycles
    extents = rows, columns, len(layer.x), len(held.groups), len(held.slices), len(cycles)
    yield step_line("layer", name, kind, *extents)
    # A macro has one register for the complement and one for the offset. The converted layer has
    # a factor for each column, so these two come from the image.
    yield step_line(
        *("cells", name, image.cell_bits, image.polarities, layer.layout.rows_per_weight),
        *(layer.layout.across, image.baseline, image.complement, image.offset),
        *(image.unit_column, image.reference_column, image.flips),
        crossbar.columns_by_polarity,
    )
    code = crossbar.inputs
    yield step_line("inputs", name, code.bits, code.lift, code.sign_magnitude)
    *limits, places = law_numbers(crossbar)
    fine = held.fraction_bits, crossbar.reference_bits, places
    yield step_line("converter", name, *limits, *fine, crossbar.reference_cycles, held.leak)
    for k, one in enumerate(held.slices):
        signed = image.slices[k // layer.polarities].signed
        yield step_line("slice", name, k, one.shift, one.sign, signed, one.factor)
    for c, (cycle, zero) in enumerate(zip(cycles, crossbar.zero_digits, strict=True)):
        yield step_line("cycle", name, c, cycle.shift, cycle.bits or 0, cycle.sign, int(zero))


def _reads(layer: DrivenLayer) -> Iterator[str]:
    """The lines of a layer's arrays, written one after another and read group by group."""
    image, name = layer.image, layer.name
    idle = layer.op.layer.cells.idle_rows
    by_row: dict[int, list[tuple[int, int, slice]]] = {}
    for g, (row, within, group) in enumerate(layer.groups()):
        by_row.setdefault(row, []).append((g, within, group))
    for row, groups in by_row.items():
        first = row * image.array_rows
        for c, array in enumerate(layer.arrays(row)):
            start = c * image.array_columns
            columns = start, min(start + image.array_columns, image.columns)
            yield step_line("program", f"{layer.cells}/{array}", *columns)
            for g, within, group in groups:
                rows = group.start - first, group.stop - first
                paths = f"{name}/{array}", f"g{within}", f"{name}/r{row}"
                yield step_line("read", *paths, *rows, int(idle[g]), *columns)
    yield step_line("sum", name)
    for place, after in layer.requantisations.items():
        yield step_line("requantise", place, after.name, len(after.affine))


def write_bench(source: HandoffSource, folder: Path) -> None:
    """Write the sources, also with faults, and `kindN/parameters.svh` for each kind of macro."""
    kinds = macro_kinds(source.layers)
    for kind in kinds:
        (folder / kind.name).mkdir()
        parameters = kind.parameters(source.lanes)
        signed = f"bit [{parameters['SLICES'] - 1}:0] SIGNED_CELLS"
        lines = [
            f"localparam {'bit' if isinstance(n, bool) else 'int'} {name} = {int(n)};"
            for name, n in parameters.items()
        ]
        text = "\n".join(["package cim;", *lines, '`include "lanes.svh"', "endpackage\n"])
        text = text.replace("int SIGNED_CELLS", signed)
        (folder / kind.name / "parameters.svh").write_text(text, "utf-8")
    for name in SOURCES:
        (folder / name).write_text(_source(name), "utf-8")
    # Not a module of this package: it runs in a hand-off's folder.
    (folder / COCOTB).write_text(_source(f"{COCOTB}.in"), "utf-8")
    (folder / FAULTY).mkdir()
    for name in WITH_FAULTS:
        (folder / FAULTY / name).write_text(faulty(name, _source(name)), "utf-8")
    facts = {kind.name: set[str]().union(*map(layer_facts, kind.layers)) for kind in kinds}
    listed = []
    for number, one in enumerate(FAULTS, 1):
        where = ",".join(name for name, held in facts.items() if one.shows in held)
        listed.append(f"{number}\t{one.tap}\t{one.file}\t{where or NOWHERE}\t{one.name}\n")
    (folder / "faults.txt").write_text("".join(listed), "utf-8")
    found = {one.name: coverage(one) for one in source.layers}
    (folder / COVERAGE).write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def _source(name: str) -> str:
    return (files(__package__) / "sv" / name).read_text("utf-8")


BENCH_PART = HandoffPart(
    folder="sv",
    title="The bench in SystemVerilog, and the reference device, a macro for all arrays of a kind",
    write=write_bench,
    size=lambda source: sum(len(_source(name)) for name in (*SOURCES, *DEVICE)),
    files={
        ADAPTER: "from the bench's ports to those of an array: replace it and the array by your "
        "own, `make all MACRO=... ADAPTER=...`",
        ARRAY: "the reference array: its columns side by side",
        COLUMN: "a column and its converter, the analog part",
        MACRO: "the digital periphery of an array: cycles, shift-and-add",
        OUTPUT: "row groups and bias, requantisation",
        "tb_array.sv": "programs each array, reads it as `steps.txt` says, and compares every tap",
        BOUNDARY: "the ports of the array in the bench",
        "tb_references.svh": "references of converters, from `constants/`",
        "tb_answers.svh": "handshakes: an input is offered, lanes answer and are compared",
        "tb_images.svh": "images: word lines and flags of an array",
        "tb_layer.svh": "the output unit: layer sums, requantised values, the requantiser alone",
        "tb_converter.svh": "the sums of `directed/`",
        "tb_taps.svh": "inputs and right values of `taps/`",
        "lanes.svh": "what follows from the parameters: the lanes of an array, and their order",
        COCOTB: "the array by itself in cocotb, with the sums of `directed/`",
        "kindN/parameters.svh": "the widths and extents of the macro that takes the layers of kind "
        "N in `steps.txt`",
        COVERAGE: "the codes, counts of rows, inputs and bits of accumulators that vectors reach, "
        "and why they reach no others",
        "waivers.vlt": "rules of Verilator's lint that are off for the bench, not for the macro",
        "bench.sh": "builds and runs the bench for each kind, in Icarus Verilog or Verilator, and "
        "with faults",
        "faults.txt": "one fault per line: its number, the tap that must find it, its file, the "
        f"kinds of macro in which it changes a number, or {NOWHERE}, and its name",
        f"{FAULTY}/*": "the macro with these faults, each chosen at run time",
    },
    uncovered=(
        "`make icarus`, `make verilator` and `make mutants` need the simulators that they name, "
        "`make cocotb` Icarus Verilog and cocotb 2",
    ),
    goals={
        "icarus": (f"@{UNDER_TEST} sh sv/bench.sh icarus",),
        "verilator": (f"@{UNDER_TEST} {VERILATOR_SETTINGS} sh sv/bench.sh verilator",),
        "cocotb": (f"@PYTHON='$(PYTHON)' {UNDER_TEST} sh sv/bench.sh cocotb",),
        "mutants": (f"@CC='$(CC)' {UNDER_TEST} {VERILATOR_SETTINGS} sh sv/bench.sh mutants",),
        "all": ("@$(MAKE) -j2 -O icarus verilator random cocotb mutants",),
    },
    settings={
        "MACRO": f"sv/{ARRAY} sv/{COLUMN}",
        "ADAPTER": f"sv/{ADAPTER}",
        "LATENCY": "0",
        "MULTIPLEXED": "1",
        "TIMEOUT": "10000",
        "PYTHON": "python3",
        "OPTIMIZE": "-O1",
        "VERILATED": "build/verilated",
    },
)


def write_random(source: HandoffSource, folder: Path) -> None:
    """Write the layers as `cim_layer`, their tables, and the sources that draw random inputs.

    c/model.c computes a lossless layer as one product; here every layer is on arrays.
    """
    tables = ConstantTables()
    header = layers_header(source.layers, tables)
    (folder / HEADER).write_text(header, "utf-8")
    with (folder / TABLES).open("wb") as file:
        for _, _, _, table in tables.items():
            file.write(table.tobytes())
    for name in (VECTORS, DPI):
        (folder / name).write_text(_source(name), "utf-8")


def layers_header(layers: list[DrivenLayer], tables: ConstantTables) -> str:
    """The layers in C, their tables in `tables`, with a name for each row group."""
    kinds = macro_kinds(layers)
    definitions = [
        layer_definition(tables, one.name, one.op.layer, wide_input=True) for one in layers
    ]
    reads, lanes = [], []
    for kind in kinds:
        lanes.append((kind.name, *(one.tolist() for one in lane_places(kind.layers))))
        for one in kind.layers:
            limits = zip(
                ("least", "largest"), input_limits(one.graph, one.node, one.op), strict=True
            )
            lo, hi = (tables.add(f"{one.name}.{end}_input", x, "int32_t") for end, x in limits)
            for g, (row, within, _) in enumerate(one.groups()):
                read = c_string(f"{one.name}/r{row}/g{within}")
                layer = f"&{tables.prefix(one.name)}_layer"
                reads.append(f"    {{{read}, {layer}, {g}, {lo}, {hi}, &{kind.name}}}")
    extents = {
        "LAYERS_BYTES": tables.size,
        "LAYER_READS": len(reads),
        "LAYER_ROWS": max(len(one.op.weight) for one in layers),
        "LAYER_COLUMNS": max(one.image.columns for one in layers),
        "LAYER_CYCLES": max(len(one.op.crossbar.cycles) for one in layers),
        "LAYER_SLICES": max(one.op.crossbar.slices for one in layers),
    }
    text = render_text(
        __package__,
        HEADER,
        group_rows=max(int(one.op.layer.cells.heights.max()) for one in layers),
        tables=tables,
        definitions=definitions,
        extents=extents,
        lanes=lanes,
        reads=reads,
    )
    return text + "\n"


def lane_places(layers: list[DrivenLayer]) -> tuple[IntArray, IntArray]:
    """The converted slice and the weight of each lane [lanes] of an array, without unit column.

    Lanes that no layer uses have 0.
    """
    widest = max(layers, key=lambda one: one.image.columns)
    width, slices = widest.image.columns, widest.op.crossbar.slices
    numbers = np.zeros((1, slices * width + widest.op.crossbar.unit_column), np.int64)
    numbers[0, : slices * width] = np.arange(slices * width)
    lanes = widest.of_arrays(numbers)[0, 0, : widest.lanes - widest.op.crossbar.unit_column]
    return lanes // width, lanes % width


RANDOM_PART = HandoffPart(
    folder="random",
    title="Random inputs for the bench, compared with the golden model",
    write=write_random,
    size=lambda source: (
        sum(cells.digits.nbytes for one in source.layers for cells in one.op.layer.cells.slices)
        + len(_source(VECTORS) + _source(DPI))
    ),
    files={
        VECTORS: "draws random inputs, in place of those in `taps/`",
        DPI: "the golden model's taps for these inputs, called by the bench (DPI)",
        HEADER: "every layer on arrays, lossless ones too, as `c/cim.h` describes it",
        TABLES: "their cells, flags, offsets, factors and biases, little-endian",
    },
    uncovered=("`make random` needs Verilator and a C compiler",),
    goals={
        "random": (
            f"@CC='$(CC)' {UNDER_TEST} {VERILATOR_SETTINGS} VECTORS=$(VECTORS) SEED=$(SEED) "
            "FAULT=$(FAULT) sh sv/bench.sh random",
        )
    },
    settings={"VECTORS": "1000", "SEED": "1", "FAULT": "0"},
)
