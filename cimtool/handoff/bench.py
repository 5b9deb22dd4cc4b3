"""The bench in SystemVerilog: its sources, with faults and without, and its random inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.escapes import c_string
from cimtool.handoff.c.operations import layer_definition
from cimtool.handoff.c.writer import ConstantTables
from cimtool.handoff.cam_bench import CAM_KIND, CAM_SOURCES, cam_parameters, search_facts
from cimtool.handoff.coverage import coverage
from cimtool.handoff.fault_facts import layer_facts, unreachable_facts
from cimtool.handoff.faults import (
    ADAPTER,
    ARRAY,
    BOUNDARY,
    CAM,
    COLUMN,
    FAULTS,
    MACRO,
    OUTPUT,
    RANK,
    WRITER,
    faulty,
)
from cimtool.handoff.layers import DrivenLayer, HandoffPart, HandoffSource
from cimtool.handoff.macro_kinds import macro_kinds
from cimtool.handoff.stimuli import input_limits
from cimtool.report.page import render_text

COCOTB = "array_cocotb.py"
DEVICE = (ADAPTER, ARRAY, COLUMN, MACRO, OUTPUT)
PARTS_OF_BENCH = tuple(
    f"tb_{part}.svh"
    for part in ("progress", "references", "answers", "images", "layer", "converter", "taps")
)
WITH_FAULTS = (*DEVICE, BOUNDARY, CAM, RANK, WRITER)
WRITE_SOURCES = (WRITER, "cim_cells.sv", "tb_write.svh")
SOURCES = (
    *DEVICE,
    BOUNDARY,
    "lanes.svh",
    "tb_array.sv",
    *PARTS_OF_BENCH,
    "waivers.vlt",
    "bench.sh",
)
SYNTHESIS = ("cim_layer.sv", "synth.sh")
UNDER_TEST = " ".join(
    f"{name}='$({name})'"
    for name in (
        *("MACRO", "ADAPTER", "CAM", "LATENCY", "MULTIPLEXED"),
        *("TIMEOUT", "TIMEOUT_SECONDS"),
    )
)
CODES = "grep -q ' CONVERTER = [12];' sv/kind*/parameters.svh"
VERILATOR_SETTINGS = "OPTIMIZE='$(OPTIMIZE)' VERILATED='$(VERILATED)'"
FAULTY, NOWHERE = "faulty", "none"
PROVED = "="
"""Mark before a kind of macro in which a fault is proved to change no number."""
VECTORS, QUERIES, DPI = "tb_random.svh", "tb_cam_random.svh", "dpi.c"
HEADER, TABLES = "layers.h", "layers.bin"
COVERAGE, PARAMETERS = "coverage.json", "parameters.svh"


def write_bench(source: HandoffSource, folder: Path) -> None:
    """Write the sources, also with faults, and `kindN/parameters.svh` for each kind of macro.

    With a search in a CAM, also its sources and `cam/parameters.svh`.
    """
    kinds, search = macro_kinds(source.layers), source.search
    for kind in kinds:
        (folder / kind.name).mkdir()
        parameters = kind.parameters(source.lanes)
        signed = f"bit [{parameters['SLICES'] - 1}:0] SIGNED_CELLS"
        text = _package("cim", parameters, '`include "lanes.svh"')
        text = text.replace("int SIGNED_CELLS", signed)
        (folder / kind.name / PARAMETERS).write_text(text, "utf-8")
    if search is not None:
        (folder / CAM_KIND).mkdir()
        text = _package("cam", cam_parameters(search))
        (folder / CAM_KIND / PARAMETERS).write_text(text, "utf-8")
    sources = _sources(source)
    (folder / FAULTY).mkdir()
    for name, text in _texts(sources).items():
        (folder / name).write_text(text, "utf-8")
    shown = {kind.name: set[str]().union(*map(layer_facts, kind.layers)) for kind in kinds}
    proved = {kind.name: set.intersection(*map(unreachable_facts, kind.layers)) for kind in kinds}
    if search is not None:
        shown[CAM_KIND] = search_facts(search)
    listed = []
    for number, one in enumerate(FAULTS, 1):
        if one.file not in sources:
            continue
        where = [name for name, held in shown.items() if one.shows in held]
        where += [f"{PROVED}{name}" for name, held in proved.items() if one.shows in held]
        listed.append(
            f"{number}\t{one.tap}\t{one.file}\t{','.join(where) or NOWHERE}\t{one.name}\n"
        )
    (folder / "faults.txt").write_text("".join(listed), "utf-8")
    found = {one.name: coverage(one) for one in source.layers}
    (folder / COVERAGE).write_text(json.dumps(found, indent=1) + "\n", "utf-8")


def _sources(source: HandoffSource) -> tuple[str, ...]:
    """The sources that the layers and the search of a hand-off need."""
    search = () if source.search is None else CAM_SOURCES
    written = any(one.writes is not None for one in source.layers)
    return (*SOURCES, *SYNTHESIS, *search, *(WRITE_SOURCES if written else ()))


def _texts(sources: Sequence[str]) -> dict[str, str]:
    """The content of sources by file, also with faults."""
    with_faults = [name for name in sources if name in WITH_FAULTS]
    return {
        **{name: _source(name) for name in sources},
        # Not a module of this package: it runs in a hand-off's folder.
        COCOTB: _source(f"{COCOTB}.in"),
        **{f"{FAULTY}/{name}": faulty(name, _source(name)) for name in with_faults},
    }


def _package(name: str, parameters: Mapping[str, int], *after: str) -> str:
    lines = [
        f"localparam {'bit' if isinstance(n, bool) else 'int'} {key} = {int(n)};"
        for key, n in parameters.items()
    ]
    return "\n".join([f"package {name};", *lines, *after, "endpackage\n"])


def _source(name: str) -> str:
    return (files(__package__) / "sv" / name).read_text("utf-8")


BENCH_PART = HandoffPart(
    folder="sv",
    title="The bench in SystemVerilog, and the reference device, a macro for all arrays of a kind",
    write=write_bench,
    size=lambda source: sum(map(len, _texts(_sources(source)).values())),
    files={
        ADAPTER: "from the bench's ports to those of an array: replace it and the array by your "
        "own, `make all MACRO=... ADAPTER=...`",
        ARRAY: "the reference array: its columns side by side",
        COLUMN: "a column and its converter, the analog part",
        MACRO: "the digital periphery of an array: cycles, shift-and-add",
        OUTPUT: "row groups and bias, requantisation",
        "tb_array.sv": "programs each array, reads it as `steps.txt` says, and compares every tap",
        BOUNDARY: "the ports of the array in the bench",
        "tb_progress.svh": "the step that runs, for the limit of time in `bench.sh`",
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
        "cim_cam.sv": "the reference array of a content-addressable memory, for a gallery in it",
        "cim_rank.sv": "an item's estimate from its words' codes, and the list of the smallest",
        "tb_cam.sv": "drives both with queries, and compares every tap",
        "tb_cam_taps.svh": "queries and right values of `cam/`",
        "cam/*": "extents of the memory",
        WRITER: "the controller of write-verify, on a target that has it",
        "cim_cells.sv": "a model of the cells that it writes",
        "tb_write.svh": "the writing of word lines in the bench, pulse by pulse",
        COVERAGE: "the codes, counts of rows, inputs and bits of accumulators that vectors reach, "
        "and why they reach no others",
        "waivers.vlt": "rules of Verilator's lint that are off for the bench, not for the macro",
        "bench.sh": "builds and runs the bench for each kind, in Icarus Verilog or Verilator, and "
        "with faults",
        "synth.sh": "`make synth`: cells, area and longest path of a layer's periphery, by Yosys",
        "cim_layer.sv": "the periphery with the settings of one layer, for `make synth`",
        "faults.txt": "one fault per line: its number, the tap that must find it, its file, the "
        f"kinds of macro in which it changes a number, or {NOWHERE}, and its name",
        f"{FAULTY}/*": "the macro with these faults, each chosen at run time",
    },
    uncovered=(
        "`make icarus`, `make verilator` and `make mutants` need the simulators that they name, "
        "`make cocotb` Icarus Verilog and cocotb 2, `make synth` Yosys",
    ),
    goals={
        "icarus": (f"@{UNDER_TEST} sh sv/bench.sh icarus",),
        "verilator": (f"@{UNDER_TEST} {VERILATOR_SETTINGS} sh sv/bench.sh verilator",),
        "cocotb": (f"@PYTHON='$(PYTHON)' {UNDER_TEST} sh sv/bench.sh cocotb",),
        "mutants": (f"@CC='$(CC)' {UNDER_TEST} {VERILATOR_SETTINGS} sh sv/bench.sh mutants",),
        "synth": ("@LAYER='$(LAYER)' LIBERTY='$(LIBERTY)' sh sv/synth.sh",),
        # Without codes cocotb has nothing to compare, and fails.
        "all": (
            f"@{CODES} || echo 'no converter has codes: without make cocotb'",
            # The longest first, so that both processors have work until the end.
            f"@$(MAKE) -j2 -O mutants random icarus verilator $$({CODES} && echo cocotb)",
            f"@{UNDER_TEST} sh sv/bench.sh tested",
            "@echo PASS",
        ),
    },
    settings={
        "MACRO": f"sv/{ARRAY} sv/{COLUMN}",
        "ADAPTER": f"sv/{ADAPTER}",
        "CAM": f"sv/{CAM}",
        "LATENCY": "0",
        "MULTIPLEXED": "1",
        "TIMEOUT": "10000",
        "TIMEOUT_SECONDS": "120",
        "PYTHON": "python3",
        "OPTIMIZE": "",
        "VERILATED": "build/verilated",
        "LAYER": "",
        "LIBERTY": "",
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
    for name in (VECTORS, DPI, *([] if source.search is None else [QUERIES])):
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
        + len(_source(VECTORS) + _source(QUERIES) + _source(DPI))
    ),
    files={
        VECTORS: "draws random inputs, in place of those in `taps/`",
        QUERIES: "draws queries of a content-addressable memory, in place of those in `cam/`, and "
        "computes their right values",
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
