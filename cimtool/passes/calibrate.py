"""Calibrate: the range of every value of the folded program on calibration rows.

Rows run in blocks, of which only ranges, means of squares and the largest numbers are kept. Ranges
are computed in float64 and rounded outward to 10 significant bits, so that a build
does not depend on the last bits of a CPU's sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import RowsError
from cimtool.hardware.keys import Calibrator
from cimtool.ir.arithmetic import Mvm, Store
from cimtool.ir.op import Level
from cimtool.ir.program import (
    Calibration,
    Graph,
    Program,
    Range,
    score_inputs,
)
from cimtool.ir.source import Normalization
from cimtool.ir.tails import Tails, shape_of, tails_of
from cimtool.ir.types import numbers_of_item
from cimtool.passes.base import RIGHT_ROWS, Job, Pass
from cimtool.simulation.simulator import Features, Runner, Simulator

SIGNIFICANT_BITS = 10
SMALLEST_EXPONENT = -1074
"""float64 holds multiples of 2 to this."""

LEAST_REACH = 2.0**-240
"""The least that a layer's largest number may be: the fourth power of mu is a normal number."""


@dataclass(frozen=True)
class CalibratePass(Pass):
    """Add the calibration of every graph.

    Raises RowsError naming the first value that is not finite on the calibration rows, and the
    first layer whose numbers have no fourth power in float64 there.
    """

    calibrator: Calibrator = "tails"

    name = "calibrated"
    doing = "calibrating ranges"
    kept = False
    requires = Level.FLOAT
    leaves = Level.FLOAT

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def apply(self, program: Program, job: Job) -> Program:
        simulator = Simulator(program)
        graphs: list[Graph] = []
        features: list[Features] = []
        for graph in (program.text, program.video):
            seen = observe(graph, job.rows(graph.name), self.calibrator)
            _require_finite(graph, seen.values)
            _require_reach(graph, seen.values)
            calibration = _calibration(graph, seen, self.calibrator)
            graphs.append(replace(graph, calibration=calibration))
            features.append(seen.outputs)
        text, video = graphs
        of_pairs = Calibration(ranges=_statistics(simulator, *features))
        score = replace(program.score, inputs=score_inputs(text, video), calibration=of_pairs)
        return Program(text, video, score)


def _require_finite(graph: Graph, seen: Mapping[str, Observation]) -> None:
    for node in graph.nodes:
        if not (np.isfinite(seen[node.name].lo) & np.isfinite(seen[node.name].hi)).all():
            reach = max(np.abs(seen["x"].lo).max(), np.abs(seen["x"].hi).max())
            raise RowsError(
                f"{graph.layer(node)} ({node.op.name}): is not finite on these rows, whose "
                f"{graph.name} numbers reach {reach:.3g}; expected "
                f"{RIGHT_ROWS}, weights for which float64 does not overflow, and no zero row that "
                "is normalised"
            )


def _require_reach(graph: Graph, seen: Mapping[str, Observation]) -> None:
    for name, op in graph.operations(Mvm).items():
        reach = max(np.abs(seen[name].lo).max(), np.abs(seen[name].hi).max())
        if 0 < reach < LEAST_REACH:
            raise RowsError(
                f"{graph.name}.{name} ({op.name}): reaches {reach:.3g} on these rows; expected "
                f"{RIGHT_ROWS}, and weights for which it is 0 or at least {LEAST_REACH:.3g}, as "
                "float64 cannot hold the fourth power of less"
            )


def _statistics(simulator: Simulator, text: Features, video: Features) -> dict[str, Range]:
    """The range over all pairs of each statistic that the score limits to its domain."""
    names = simulator.program.score.statistics
    ends: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _, block in simulator.iter_score(text, video, names):
        for name, value in block.items():
            ends[name].append((float(value.min()), float(value.max())))
    spans = {name: np.array(found) for name, found in ends.items()}
    return {name: _range(span[:, 0].min(), span[:, 1].max()) for name, span in spans.items()}


def _calibration(graph: Graph, seen: Observed, calibrator: Calibrator) -> Calibration:
    """The calibration of a projector from the observed values."""
    ranges = {name: _range(value.lo, value.hi) for name, value in seen.values.items()}
    if calibrator == "percentile":
        ranges |= _narrowed(graph, seen.values, ranges)
    return Calibration(
        ranges=ranges,
        mean_squares={
            name: significant(value.mean_squares, np.ceil) for name, value in seen.values.items()
        },
        squared_norms={name: _range(*ends) for name, ends in seen.norms.items()},
        tails={name: _tails(value) for name, value in seen.values.items() if value.tops.size},
    )


def _tails(seen: Observation) -> Tails:
    """Tails of a value; they are exponential where a scale for all channels is chosen by them.

    Such a scale clips the widest channel alone, of which the shape common to all says little.
    """
    most = max(int(TAIL_SHARE * seen.count), LEAST_OF_TAIL)
    tops = _largest(seen.tops, most)
    shape = shape_of(tops, _largest(seen.sizes, most)) if seen.sizes.size else 0.0
    found = tails_of(tops, seen.count, shape)
    threshold, excess = (significant(x, np.ceil) for x in (found.threshold, found.excess))
    return Tails(found.share, threshold, excess, float(significant(found.shape, np.ceil)))


def _range(lo: Array, hi: Array) -> Range:
    """The range with both bounds rounded outward."""
    return Range(significant(lo, np.floor), significant(hi, np.ceil))


def significant(
    value: ArrayLike, direction: Callable[[Array], Array], bits: int = SIGNIFICANT_BITS
) -> FloatArray:
    """Round to some significant bits, by np.floor, np.ceil or np.rint; zero stays zero."""
    value = np.asarray(value, np.float64)
    step = np.ldexp(1.0, np.maximum(np.frexp(value)[1] - bits, SMALLEST_EXPONENT))
    return np.asarray(direction(value / step) * step)


def _narrowed(
    graph: Graph, seen: Mapping[str, Observation], ranges: Mapping[str, Range]
) -> dict[str, Range]:
    """Ranges without the rarest of what layers alone read: nothing else may be clipped."""
    narrowed, layers = {}, graph.operations(Mvm)
    for name in layer_inputs(graph):
        if all(node.name in layers for node in graph.nodes if name in node.inputs):
            clip, span = percentile(seen[name], seen[name].count * graph.extent(name)), ranges[name]
            narrowed[name] = _range(np.clip(span.lo, -clip, clip), np.clip(span.hi, -clip, clip))
    return narrowed


PERCENTILE = 99.99

MOST_OF_TAIL, LEAST_OF_TAIL, TAIL_SHARE = 64, 8, 0.25
"""The largest numbers of a channel tell its tail: a share of all, and at most and least so many."""

MOST_SIZES = 256
"""The most rows whose sizes tell how heavy tails are: the largest of the same share."""


@dataclass(frozen=True)
class Observation:
    """A value [n, channels] on some rows: the ends [channels] and the sum of squares.

    Three parts are kept: `largest`, the largest magnitudes of all single numbers in ascending
    order, `tops` [k, channels], those of each channel, and the largest `sizes` [r] of rows, roots
    of the sums of squares as the layers that read them weigh them.
    """

    lo: Array
    hi: Array
    squares: Array
    count: int
    largest: Array
    tops: Array
    sizes: Array

    @property
    def mean_squares(self) -> Array:
        """The mean square of each channel."""
        return np.asarray(self.squares / self.count)


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
    """Run a projector on rows [n, width] of its input and keep what a calibrator needs."""
    read = layer_inputs(graph)
    largest = {}
    if calibrator == "percentile":
        for name in read:
            numbers = len(rows) * numbers_of_item(graph.types[name].shape)
            largest[name] = numbers - int(_place(numbers))
    tailed = {*read, *_means(graph)} if calibrator == "tails" else set()
    gains = {name: gains_of(graph, name) for name in tailed.intersection(read)}

    def seen(values: dict[str, Array]) -> Observed:
        kept = {
            name: _seen(
                value, largest.get(name, 0), MOST_OF_TAIL * (name in tailed), gains.get(name)
            )
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
            name: _joined([block.values[name] for block in blocks], largest.get(name, 0))
            for name in names
        },
        {name: _ends([block.norms[name] for block in blocks]) for name in blocks[0].norms},
        {name: np.concatenate([block.outputs[name] for block in blocks]) for name in graph.outputs},
    )


def layer_inputs(graph: Graph) -> tuple[str, ...]:
    """The values that layers read, in the order of the layers."""
    layers = graph.operations(Mvm)
    return tuple(dict.fromkeys(graph.by_name[layer].inputs[0] for layer in layers))


def _means(graph: Graph) -> Iterator[str]:
    """The means that an item stores."""
    for name, op in graph.operations(Store).items():
        if op.role == "mu":
            yield graph.by_name[name].inputs[0]


def gains_of(graph: Graph, name: str) -> FloatArray:
    """The gains [channels] or [] by which squared errors of a value's channels count.

    They are sums of squared weights of the layers that read it. A value that is carried past the
    layers, into a residual sum, brings its error there as it is: 1 more.
    """
    users = [node.op for node in graph.nodes if name in node.inputs]
    gains = [np.square(op.weight).sum(axis=1) for op in users if isinstance(op, Mvm)]
    return np.asarray(sum(gains, np.asarray(float(len(gains) < len(users)))))


def percentile(seen: Observation, numbers: int) -> float:
    """The PERCENTILE of the magnitudes of all single numbers of a value, between its neighbours."""
    place = _place(numbers)
    below, above = seen.largest[0], seen.largest[min(1, len(seen.largest) - 1)]
    return float(below + (place - int(place)) * (above - below))


def _place(numbers: int) -> float:
    """The place of the percentile among sorted numbers."""
    return (numbers - 1) * (PERCENTILE / 100)


def _seen(value: Array, largest: int, tops: int, gains: FloatArray | None) -> Observation:
    size = np.abs(value).ravel() if largest else np.empty(0)
    if largest < len(size):
        size = np.partition(size, len(size) - largest)[-largest:]
    ends = value.min(axis=0), value.max(axis=0)
    squares = np.square(value).sum(axis=0)
    of_channels = _largest(np.abs(value), tops) if tops else value[:0]
    sizes = np.empty(0) if gains is None else np.sqrt((np.square(value) * gains).sum(axis=1))
    return Observation(*ends, squares, len(value), size, of_channels, _largest(sizes, MOST_SIZES))


def _largest(size: Array, count: int) -> Array:
    """The largest magnitudes [count, channels] of each channel or [count], in any order."""
    if len(size) <= count:
        return size
    return np.partition(size, len(size) - count, axis=0)[len(size) - count :]


def _joined(blocks: Sequence[Observation], largest: int) -> Observation:
    """One observation of the rows of all blocks."""
    size = np.sort(np.concatenate([block.largest for block in blocks]))
    tops = np.concatenate([block.tops for block in blocks])
    sizes = np.concatenate([block.sizes for block in blocks])
    return Observation(
        *_ends([(block.lo, block.hi) for block in blocks]),
        np.sum([block.squares for block in blocks], axis=0),
        sum(block.count for block in blocks),
        size[len(size) - largest :],
        _largest(tops, MOST_OF_TAIL),
        _largest(sizes, MOST_SIZES),
    )


def _ends(blocks: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """The least and the largest of all blocks."""
    lows, highs = zip(*blocks, strict=True)
    return np.min(lows, axis=0), np.max(highs, axis=0)
