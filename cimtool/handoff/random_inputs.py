"""Random inputs for the bench: every layer as the golden model computes arrays, and its DPI."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.escapes import c_string
from cimtool.handoff.bench import VERILATOR_SETTINGS
from cimtool.handoff.c.operations import layer_definition
from cimtool.handoff.c.writer import ConstantTables
from cimtool.handoff.kinds import MacroKind, macro_kinds
from cimtool.handoff.layers import DrivenLayer, HandoffPart, HandoffSource
from cimtool.handoff.stimuli import input_limits

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
    reads = [
        f"    {{{c_string(f'{one.name}/r{row}/g{within}')}, &{tables.prefix(one.name)}_layer, "
        f"{g}, {lo}, {hi}, &{kind.name}}}"
        for kind in kinds
        for one in kind.layers
        for lo, hi in [_limit_tables(one, tables)]
        for g, (row, within, _) in enumerate(one.groups())
    ]
    groups = [group for one in layers for group in one.op.stored.groups]
    extents = {
        "LAYERS_BYTES": tables.size,
        "LAYER_READS": len(reads),
        "LAYER_ROWS": max(len(one.op.weight) for one in layers),
        "LAYER_COLUMNS": max(one.image.columns for one in layers),
        "LAYER_CYCLES": max(len(one.op.crossbar.cycles) for one in layers),
        "LAYER_SLICES": max(one.op.crossbar.slices for one in layers),
    }
    places = [f"    {name} = {place}," for name, _, place, _ in tables.items()]
    return "\n".join(
        [
            "/* Every layer of the bench on arrays; its tables are in layers.bin. */",
            "#ifndef LAYERS_H",
            "#define LAYERS_H",
            f"#define CIM_GROUP_ROWS {max(group.stop - group.start for group in groups)}",
            '#include "cim.h"',
            "",
            "/* Places of the tables in layers.bin. */",
            "enum {",
            *places,
            "};",
            "",
            *definitions,
            "enum {",
            *(f"    {name} = {value}," for name, value in extents.items()),
            "};",
            "",
            "/* Lanes of an array but the unit column's, by the kind of its macro: the slice and",
            " * the weight of each. */",
            "struct layer_lanes {",
            "    int32_t count;",
            "    const int32_t *slice, *weight;",
            "};",
            *(line for kind in kinds for line in _lanes(kind)),
            "",
            "/* LAYER/rR/gG: row group G of the arrays in row R; the places of the least and the",
            " * largest input of each row of the layer, int32_t. */",
            "static const struct layer_read {",
            "    const char *name;",
            "    const cim_layer *layer;",
            "    int32_t group, lo, hi;",
            "    const struct layer_lanes *lanes;",
            "} layer_reads[] = {",
            ",\n".join(reads),
            "};",
            "#endif",
            "",
        ]
    )


def _limit_tables(layer: DrivenLayer, tables: ConstantTables) -> list[str]:
    """The names of the tables of the least and the largest input of each row of a layer."""
    limits = input_limits(layer.graph, layer.node, layer.op)
    ends = zip(("least", "largest"), limits, strict=True)
    return [tables.add(f"{layer.name}.{end}_input", limit, "int32_t") for end, limit in ends]


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


def _lanes(kind: MacroKind) -> Iterator[str]:
    """The lines of the lanes of a kind's arrays."""
    slices, weights = lane_places(kind.layers)
    for name, values in (("slice", slices), ("weight", weights)):
        listed = ", ".join(map(str, values.tolist()))
        yield f"static const int32_t {kind.name}_{name}[] = {{{listed}}};"
    fields = f"{len(slices)}, {kind.name}_slice, {kind.name}_weight"
    yield f"static const struct layer_lanes {kind.name} = {{{fields}}};"


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
