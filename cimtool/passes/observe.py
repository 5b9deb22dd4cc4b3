"""Observations of every value of a projector, in blocks of rows: what calibration is drawn from.

No more than a block of a value is held: ranges, means of squares, the largest numbers and the first
rows are enough for every calibrator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array
from cimtool.hardware.keys import Calibrator
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.program import Graph
from cimtool.ir.source import Normalization
from cimtool.ir.types import numbers_of_item
from cimtool.simulation.simulator import Runner

PERCENTILE = 99.99

ERROR_ROWS = 512
"""Calibration rows on which errors of storing a value are measured."""


@dataclass(frozen=True)
class Observation:
    """A value [n, channels] on some rows: the ends [channels], the sum of squares, what is kept.

    `largest` are the largest magnitudes of single numbers in ascending order, `first` the first
    rows.
    """

    lo: Array
    hi: Array
    squares: Array
    count: int
    largest: Array
    first: Array

    @property
    def mean_squares(self) -> Array:
        """The mean square of each channel."""
        return np.asarray(self.squares / self.count)

    @property
    def is_finite(self) -> bool:
        """True where all numbers are finite."""
        return bool((np.isfinite(self.lo) & np.isfinite(self.hi)).all())


@dataclass(frozen=True)
class Observed:
    """All that is kept of a projector on rows of its input.

    `values` are by name, with `x`; `norms` are the least and the largest squared norm that each
    normalisation takes, `outputs` [n, channels] the rows of what the graph gives, by its names.
    """

    values: Mapping[str, Observation]
    norms: Mapping[str, tuple[Array, Array]]
    outputs: Mapping[str, Array]


def observe(graph: Graph, rows: Array, calibrator: Calibrator) -> Observed:
    """Run a projector on rows [n, width] of its input and keep what a calibrator takes."""
    read = layer_inputs(graph)
    largest = {}
    if calibrator == "percentile":
        for name in read:
            numbers = len(rows) * numbers_of_item(graph.types[name].shape)
            largest[name] = numbers - int(_place(numbers))
    first = dict.fromkeys(read, ERROR_ROWS) if calibrator == "mse" else {}

    def seen(values: dict[str, Array]) -> Observed:
        kept = {
            name: _seen(value, largest.get(name, 0), first.get(name, 0))
            for name, value in values.items()
        }
        squares = {
            node.name: node.op.squared_norms(values[node.inputs[0]])
            for node in graph.nodes
            if isinstance(node.op, Normalization)
        }
        outputs = {name: values[value] for name, value in graph.outputs.items()}
        return Observed(kept, {k: (x.min(), x.max()) for k, x in squares.items()}, outputs)

    names = ["x", *(node.name for node in graph.nodes)]
    blocks = Runner(graph).over_blocks(rows, names, seen)
    return Observed(
        {
            name: _joined([b.values[name] for b in blocks], largest.get(name, 0), first.get(name))
            for name in names
        },
        {name: _ends([block.norms[name] for block in blocks]) for name in blocks[0].norms},
        {name: np.concatenate([block.outputs[name] for block in blocks]) for name in graph.outputs},
    )


def layer_inputs(graph: Graph) -> tuple[str, ...]:
    """The values that layers read, in the order of the layers."""
    layers = graph.operations(Mvm)
    return tuple(dict.fromkeys(graph.by_name[layer].inputs[0] for layer in layers))


def percentile(seen: Observation, numbers: int) -> float:
    """The PERCENTILE of the magnitudes of all single numbers of a value, between its neighbours."""
    place = _place(numbers)
    below, above = seen.largest[0], seen.largest[min(1, len(seen.largest) - 1)]
    return float(below + (place - int(place)) * (above - below))


def _place(numbers: int) -> float:
    """The place of the percentile among so many numbers in order."""
    return (numbers - 1) * (PERCENTILE / 100)


def _seen(value: Array, largest: int, first: int) -> Observation:
    size = np.abs(value).ravel() if largest else np.empty(0)
    if largest < len(size):
        size = np.partition(size, len(size) - largest)[-largest:]
    ends = value.min(axis=0), value.max(axis=0)
    squares = np.square(value).sum(axis=0)
    return Observation(*ends, squares, len(value), size, value[:first].copy())


def _joined(blocks: Sequence[Observation], largest: int, first: int | None) -> Observation:
    """One observation of the rows of all blocks."""
    size = np.sort(np.concatenate([block.largest for block in blocks]))
    return Observation(
        *_ends([(block.lo, block.hi) for block in blocks]),
        np.sum([block.squares for block in blocks], axis=0),
        sum(block.count for block in blocks),
        size[len(size) - largest :],
        np.concatenate([block.first for block in blocks])[:first],
    )


def _ends(blocks: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """The least and the largest of all blocks."""
    lows, highs = zip(*blocks, strict=True)
    return np.min(lows, axis=0), np.max(highs, axis=0)
