"""One loop over a graph: every stage, from float to crossbars, runs here on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from cimtool.arrays import Array
from cimtool.ir.program import MODALITIES, Graph, Program

ROW_BLOCK = 256
PAIR_BLOCK = 1 << 18
"""Rows of a projector, and pairs of a score, that are computed at a time."""

Features = Mapping[str, Array]


class Runner:
    """A graph made ready: `fast` packs constants and picks kernels, else the readable ops run."""

    def __init__(self, graph: Graph, fast: bool = True):
        self.graph = graph
        types = graph.types
        prepare: Callable[..., Callable[..., Array]]
        if fast:
            from cimtool.hardware.kernels import prepare
        else:
            prepare = _readable
        self._steps = [
            (node, prepare(node.op, tuple(types[i] for i in node.inputs))) for node in graph.nodes
        ]
        self._last_use = {
            name: position for position, node in enumerate(graph.nodes) for name in node.inputs
        }

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the outputs, by the names that the graph gives them."""
        found = self.values(inputs, tuple(self.graph.outputs.values()))
        return {name: found[value] for name, value in self.graph.outputs.items()}

    def values(self, inputs: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
        """Compute the named values of the graph, inner ones as well."""
        values = dict(inputs)
        keep = set(names)
        for position, (node, kernel) in enumerate(self._steps):
            values[node.name] = kernel(*(values[i] for i in node.inputs))
            for name in set(node.inputs):
                if self._last_use[name] == position and name not in keep:
                    del values[name]
        return {name: values[name] for name in names}


def _readable(op: object, types: object) -> Callable[..., Array]:
    return op.run  # type: ignore[attr-defined,no-any-return]


def run(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Compute a graph's outputs with the readable operations."""
    return Runner(graph, fast=False).run(inputs)


class Simulator:
    """A program made ready to encode items and score pairs, at whatever stage it is."""

    def __init__(self, program: Program, fast: bool = True):
        self.program = program
        self._runners = {graph.name: Runner(graph, fast) for graph in program.graphs}

    def encode(self, modality: str, x: Array) -> dict[str, Array]:
        """Features of embeddings `x` [n, width] of one modality, in blocks of rows."""
        runner = self._runners[modality]
        return _joined([runner.run({"x": block}) for block in _blocks(x)])

    def values(self, modality: str, x: Array, names: Sequence[str]) -> dict[str, Array]:
        """The named inner values of one projector on embeddings `x`, in blocks of rows."""
        runner = self._runners[modality]
        return _joined([runner.values({"x": block}, names) for block in _blocks(x)])

    def score(self, text: Features, video: Features) -> Array:
        """`logit` [n, m] of all pairs, in blocks of text rows."""
        return np.concatenate([part["logit"] for _, part in self.iter_score(text, video)])

    def iter_score(
        self, text: Features, video: Features, names: Sequence[str] | None = None
    ) -> Iterator[tuple[slice, dict[str, Array]]]:
        """Yield (text rows, their scores against all videos), bounded in memory.

        With `names` the named inner values are yielded in place of the outputs.
        """
        runner = self._runners["score"]
        rows, columns = len(text["mu"]), len(video["mu"])
        height = max(1, PAIR_BLOCK // max(columns, 1))
        gallery = {f"video.{name}": value for name, value in video.items()}
        for start in range(0, rows, height):
            block = slice(start, min(start + height, rows))
            inputs = {f"text.{name}": value[block] for name, value in text.items()} | gallery
            yield block, runner.run(inputs) if names is None else runner.values(inputs, names)

    def scores(self, text: Array, video: Array) -> Array:
        """`logit` [n, m] of all pairs of embeddings."""
        features = [self.encode(m, x) for m, x in zip(MODALITIES, (text, video), strict=True)]
        return self.score(*features)


def _blocks(x: Array) -> Iterator[Array]:
    return (x[start : start + ROW_BLOCK] for start in range(0, len(x), ROW_BLOCK))


def _joined(blocks: list[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
