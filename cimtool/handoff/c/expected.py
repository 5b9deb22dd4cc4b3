"""The numbers that a C model must show: those of the simulator, in the order of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.handoff.c.layer import BLOCK
from cimtool.handoff.c.model import CModel, Phase
from cimtool.ir.integer import Quantize
from cimtool.ir.program import MODALITIES, Graph, Program, as_inputs
from cimtool.loading.embeddings import Embeddings
from cimtool.simulation.simulator import Runner

SEED = 0
RANDOM_ROWS, REAL_ROWS = 8, 8


@dataclass(frozen=True)
class Expected:
    """The file of expected numbers, how many of each value there are, the items and their inputs.

    `rows` and `widths` are by modality.
    """

    content: bytes
    counts: tuple[int, ...]
    rows: Mapping[str, int]
    widths: Mapping[str, int]


def embedding_codes(op: Quantize, width: int) -> IntArray:
    """Codes [n, width] of embeddings: all alike, in turns, and random ones."""
    rng = np.random.default_rng(SEED)
    turns = np.where(np.arange(width) % 2 == 1, op.hi, op.lo)
    rows = [np.zeros(width, np.int64), np.full(width, op.hi), np.full(width, op.lo), turns]
    rows += [rng.integers(op.lo, op.hi, width, endpoint=True) for _ in range(RANDOM_ROWS)]
    return np.stack(rows)


def expected_of(program: Program, model: CModel, inputs: Embeddings | None) -> Expected:
    """The simulator's numbers for made-up rows, and on the first rows of embeddings."""
    counts = [0] * len(model.seen)
    parts: list[IntArray] = []
    rows: dict[str, int] = {}
    features: dict[str, Array] = {}
    items: dict[str, list[IntArray]] = {}

    def of(phase: Phase, values: Mapping[str, Array], height: int) -> list[IntArray]:
        """The values of a phase, in the model's order, as [height, numbers]."""
        found = []
        for index, one in enumerate(model.seen):
            if one.phase == phase and one.name in values:
                numbers = np.asarray(values[one.name]).reshape(height, -1)
                counts[index] += numbers.size
                found.append(numbers)
        return found

    for graph in (program.text, program.video):
        codes, values = _encoded(graph, inputs)
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
        if pairs := of("pair", named, rows["text"] * rows["video"]):
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


def _encoded(graph: Graph, inputs: Embeddings | None) -> tuple[IntArray, dict[str, Array]]:
    """Codes of embeddings [n, width], and every value that they give."""
    (name, op), *_ = graph.operations(Quantize).items()
    codes = embedding_codes(op, graph.extent(name))
    if inputs is not None:
        codes = np.concatenate([codes, op.run(getattr(inputs, graph.name)[:REAL_ROWS])])
    x = (codes * op.scale).astype(np.float32)
    return codes, Runner(graph).values({"x": x}, [*graph.by_name])
