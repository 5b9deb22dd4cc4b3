"""The golden model of a hand-off in C, folder `c/`, and the numbers that it must show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.escapes import c_string
from cimtool.handoff.c.model import CModel, c_model
from cimtool.handoff.c.operations import BLOCK
from cimtool.handoff.formats import NUMBER_BITS
from cimtool.handoff.layers import HandoffPart, HandoffSource
from cimtool.handoff.stimuli import END_ROWS, embedding_rows
from cimtool.handoff.taps import end_values
from cimtool.ir.program import MODALITIES, Program, as_inputs
from cimtool.loading.embeddings import Embeddings
from cimtool.report.page import render_text
from cimtool.simulation.simulator import Runner

LARGEST_HEADER = 1_000_000
"""Constants are also written as C if they take fewer bytes."""

PAIR = "pair"
"""The phase of a model that computes values of pairs."""

FLAGS = "-std=c99 -O3 -Wall -Wextra -pedantic -Wconversion -Werror"


def write_c(source: HandoffSource, folder: Path) -> None:
    """Write the model, its constants, and the numbers that it must show.

    Raises CimError for a program with an operation that the model does not cover.
    """
    program = source.bundle.program
    model = c_model(program, source.bundle.model.name)
    expected = expected_of(program, model, source.request.inputs)
    for name in SOURCES:
        (folder / name).write_text(c_source(name), "utf-8")
    (folder / "model.h").write_text(model.header, "utf-8")
    (folder / "model.c").write_text(model.source, "utf-8")
    (folder / "weights.bin").write_bytes(model.weights)
    if model.tables.size < LARGEST_HEADER:
        (folder / "weights.h").write_text(model.weights_header, "utf-8")
    header = check_header(model, expected, end_values(program))
    (folder / "check.h").write_text(header, "utf-8")
    (folder / "expected.bin").write_bytes(expected.content)


def c_bytes(source: HandoffSource) -> int:
    """The bytes of the model and of the numbers that it must show.

    Raises CimError for a program with an operation that the model does not cover.
    """
    bundle, inputs = source.bundle, source.request.inputs
    model = c_model(bundle.program, bundle.model.name)
    weights, graphs = model.tables.size, {one.name: one for one in bundle.program.graphs}
    rows = {
        graph.name: len(embedding_rows(graph, inputs, END_ROWS, turns=True)[0])
        for graph in (bundle.program.text, bundle.program.video)
    }
    numbers = 0
    for one in model.seen:
        shape = graphs[one.graph].types[one.value].shape
        each = math.prod(extent for extent in shape if isinstance(extent, int))
        numbers += each * (rows.get(one.phase) or math.prod(rows.values()))
    sources = sum(len(c_source(name)) for name in SOURCES) + len(model.source) + len(model.header)
    as_text = weights * HEADER_LETTERS * (weights < LARGEST_HEADER)
    return sources + weights + as_text + NUMBER_BITS // 8 * numbers


HEADER_LETTERS = 5
"""Letters of a byte of the constants as C, about."""

SOURCES = ("cim.h", "check.c")


def c_source(name: str) -> str:
    """A handwritten source of the model."""
    return (files(__package__) / "sources" / name).read_text("utf-8")


@dataclass(frozen=True)
class Expected:
    """The file of expected numbers, and the count of numbers for each value.

    By modality, `rows` are the numbers of items and `widths` the numbers of inputs per item.
    """

    content: bytes
    counts: tuple[int, ...]
    rows: Mapping[str, int]
    widths: Mapping[str, int]


def expected_of(program: Program, model: CModel, inputs: Embeddings | None) -> Expected:
    """The simulator's numbers for made-up rows, and for the first rows of embeddings."""
    counts = [0] * len(model.seen)
    rows: dict[str, int] = {}
    features: dict[str, Array] = {}
    items: dict[str, list[IntArray]] = {}

    def of(phase: str, values: Mapping[str, Array], height: int) -> list[IntArray]:
        """The values of a phase, in the model's order, as [height, numbers]."""
        found = []
        for index, one in enumerate(model.seen):
            if one.phase == phase and one.name in values:
                numbers = np.asarray(values[one.name]).reshape(height, -1)
                counts[index] += numbers.size
                found.append(numbers)
        return found

    for graph in (program.text, program.video):
        codes, x = embedding_rows(graph, inputs, END_ROWS, turns=True)
        values = Runner(graph).values({"x": x}, [*graph.by_name])
        rows[graph.name] = len(codes)
        named = {f"{graph.name}.{name}": value for name, value in values.items()}
        items[graph.name] = [codes, *of(graph.name, named, len(codes))]
        own = {name: values[value] for name, value in graph.outputs.items()}
        features |= as_inputs(graph.name, own)
    after: list[IntArray] = []
    for graph in program.graphs[2:]:
        taken = {name: value for name, value in features.items() if name in graph.inputs}
        values = Runner(graph).values(taken, [*graph.by_name])
        named = {f"{graph.name}.{name}": value for name, value in values.items()}
        for m in MODALITIES:
            items[m] += of(m, named, rows[m])
        if pairs := of(PAIR, named, rows["text"] * rows["video"]):
            after.append(np.hstack(pairs))
        if blocks := of("gallery", named, rows["text"]):
            queries = of("query", named, rows["text"])
            width = blocks[0].shape[1]
            cut = [
                one[:, start : start + BLOCK] for start in range(0, width, BLOCK) for one in blocks
            ]
            after.append(np.hstack([*queries, *cut]))
    parts = [*(np.hstack(items[m]) for m in MODALITIES), *after]
    content = b"".join(np.ascontiguousarray(part, "<i8").tobytes() for part in parts)
    widths = {m: items[m][0].shape[1] for m in MODALITIES}
    return Expected(content, tuple(counts), rows, widths)


def check_header(model: CModel, expected: Expected, ends: Mapping[str, str]) -> str:
    """The items and counts that check.c must find, and the values of files in taps/ (`ends`)."""
    values, sizes = [], {**expected.widths, PAIR: 0}
    rows = {**expected.rows, PAIR: expected.rows["text"] * expected.rows["video"]}
    files = {value: file for file, value in ends.items()}
    taps = [f'    {{"{m}/codes.hex", {m.upper()}, 0, {expected.widths[m]}}}' for m in MODALITIES]
    for one, count in zip(model.seen, expected.counts, strict=True):
        place = sizes.get(one.phase, -1)
        if one.phase in sizes:
            numbers = count // rows[one.phase]
            sizes[one.phase] += numbers
            if one.name in files:
                file = c_string(files[one.name])
                taps.append(f"    {{{file}, {one.phase.upper()}, {place}, {numbers}}}")
        place = -1 if one.phase == PAIR else place
        of_video = int(one.phase == MODALITIES[1])
        values.append(f"    {{{c_string(one.name)}, {count}, {place}, {of_video}}}")
    facts = {f"{m.upper()}_ROWS": count for m, count in rows.items()}
    facts |= {f"{m.upper()}_RECORD": size for m, size in sizes.items()}
    facts |= {"CHECK_VALUES": len(values), "CHECK_NUMBERS": len(expected.content) // 8}
    facts |= {"CHECK_TAPS": len(taps)}
    given = [f"{name} = {value}" for name, value in facts.items()]
    listed = {"facts": given, "values": values, "taps": taps}
    return render_text("cimtool.handoff", "check.h", **listed) + "\n"


C_PART = HandoffPart(
    folder="c",
    title="The golden model in C99: encoders and score, bit for bit those of the simulator",
    write=write_c,
    files={
        "cim.h": "the integer contract, freestanding: rounding, converters, a layer on arrays",
        "model.h": "the functions of this model, and the fields of a stored item",
        "model.c": "the program, operation by operation",
        "weights.bin": "its constants, little-endian; load them aligned for int64_t",
        "weights.h": "the same as C, if they are less than 1 MB",
        "check.c": "compares every value of the model with those of the simulator",
        "check.h": "how many numbers of each value must be compared",
        "expected.bin": "the simulator's numbers, for made-up rows and for embeddings, if given",
    },
    uncovered=(
        "floating point: the functions take codes of embeddings; model.h says how to make them.",
        "noise: the model's arrays are perfect.",
    ),
    # A model alone has no taps beside it.
    checks=("$(CC) $(CFLAGS) c/check.c -obuild/check", "build/check c $(wildcard taps)"),
    size=c_bytes,
    settings={"CC": "gcc", "CFLAGS": FLAGS},
)
