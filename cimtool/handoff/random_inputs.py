"""Random inputs for the bench: every layer as the golden model computes arrays, and its DPI."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.escapes import c_string
from cimtool.handoff.bench import VERILATOR_SETTINGS, macro_kinds
from cimtool.handoff.c.operations import layer_definition
from cimtool.handoff.c.writer import ConstantTables
from cimtool.handoff.layers import DrivenLayer, HandoffPart, HandoffSource
from cimtool.handoff.stimuli import input_limits
from cimtool.report.page import render_text

VECTORS, DPI = "tb_random.svh", "dpi.c"
HEADER, TABLES = "layers.h", "layers.bin"


def write_random(source: HandoffSource, folder: Path) -> None:
    """Write the layers as `cim_layer`, their tables, and what drives the bench with them.

    c/model.c computes a layer that loses nothing as one product; here each is one on arrays.
    """
    tables = ConstantTables()
    header = layers_header(source.layers, tables)
    (folder / HEADER).write_text(header, "utf-8")
    with (folder / TABLES).open("wb") as file:
        for _, _, _, table in tables.items():
            file.write(table.tobytes())
    for name in (VECTORS, DPI):
        text = (files(__package__) / "sv" / name).read_text("utf-8")
        (folder / name).write_text(text, "utf-8")


def layers_header(layers: list[DrivenLayer], tables: ConstantTables) -> str:
    """The layers in C, their tables in `tables`, with a name for each row group."""
    kinds = macro_kinds(layers)
    definitions = [layer_definition(tables, one.name, one.op, wide_input=True) for one in layers]
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
        group_rows=max(int(one.op.stored.cells.heights.max()) for one in layers),
        tables=tables,
        definitions=definitions,
        extents=extents,
        lanes=lanes,
        reads=reads,
    )
    return text + "\n"


def lane_places(layers: list[DrivenLayer]) -> tuple[IntArray, IntArray]:
    """The converted slice and the weight of each lane [lanes] of an array, the unit column left.

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
    files={
        VECTORS: "draws the inputs of the bench, in place of those of `taps/`",
        DPI: "what the golden model says of them, called by the bench (DPI)",
        HEADER: "every layer as `c/cim.h` describes one on arrays, those that lose nothing too",
        TABLES: "their cells, flags, offsets and biases, little-endian",
    },
    uncovered=("`make random` needs Verilator and a C compiler",),
    goals={
        "random": (
            f"@CC='$(CC)' {VERILATOR_SETTINGS} sh sv/bench.sh random '$(COLUMN)' $(VECTORS) "
            "$(SEED) $(FAULT)",
        )
    },
    settings={"VECTORS": "1000", "SEED": "1", "FAULT": "0"},
)
