"""Correct distances: the mean error that rounding leaves in `ed` goes into a constant of its sum.

An error of mu that differs from item to item has no mean that a layer's bias could take off, but
its square has: it makes every squared distance larger by about the same. A constant of the sum `ed`
takes that off, and the sum is computed anyway.

The constant is the mean of ed over calibration pairs before all passes, less that of the compiled
program. Other rows decide if it is taken: each half of the rows gives a constant, and on the other
half the mean square error from the score before all passes must fall by LEAST_GAIN or more, even at
the lower end of its 95% interval (texts and videos are resampled). Then the mean of both constants
is taken. With 8 bits there is next to nothing to take off, and the program stays as it is.

Measured beside it on other rows: an offset and a slope of ed, of vd and of the score gain about 1%
more of the error at most, and a slope that is fitted to all pairs errs more on right ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.ir.arithmetic import Add
from cimtool.ir.format import round_half_up
from cimtool.ir.integer import Requant
from cimtool.ir.op import Level
from cimtool.ir.program import Builder, Node, Program, rewrite_each
from cimtool.passes.base import HALF_ROWS, LEAST_HALF, Job, Pass
from cimtool.passes.formats import next_power_of_two, refit
from cimtool.passes.gallery import DISTANCE
from cimtool.reference.bootstrap import interval, resampled_pairs
from cimtool.simulation.simulator import Features, Simulator

LEAST_GAIN = 0.05
"""Share of the mean square error that the constant must take off: less is not worth a change."""

CONSTANT_STEPS = 1 << 12
"""Steps that the constant is rounded to: it must not depend on the last bits of a CPU's sums."""


@dataclass(frozen=True)
class CorrectDistancesPass(Pass):
    """Take the mean error off `ed` where other calibration rows agree; else change nothing.

    Not unless it is `on`: where the same rows decided how weights are rounded (GPTQ), errors on
    these rows say nothing of others. A score without `ed` stays as it is.
    """

    on: bool = True

    name = "distances corrected"
    doing = "correcting distances"
    optional = True
    requires = Level.CROSSBAR
    leaves = Level.CROSSBAR

    def apply(self, program: Program, job: Job) -> Program:
        source = job.source
        if not self.on or source is None or DISTANCE not in program.score.by_name:
            return program
        halves = [(text[:HALF_ROWS], video[:HALF_ROWS]) for text, video in job.halves()]
        if min(len(rows) for half in halves for rows in half) < LEAST_HALF:
            return program
        simulator = Simulator(program)
        pairs = [CalibrationPairs.of(source, simulator, *half) for half in halves]
        tried = [
            (one.compiled - one.scores, one.errors(with_constant(program, other.constant)))
            for one, other in (pairs, pairs[::-1])
        ]
        if min(least_gain(*errors) for errors in tried) < LEAST_GAIN:
            return program
        constant = float(np.mean([one.constant for one in pairs]))
        squares = [[np.square(error).mean() for error in errors] for errors in tried]
        before, after = np.sqrt(np.mean(squares, axis=0))
        job.note(
            f"score: {constant:+.4g} in ed takes off the mean error of rounding; on calibration "
            f"rows that did not give it the RMSE from the float score is {after:.4g}, "
            f"{before:.4g} without"
        )
        return with_constant(program, constant)


@dataclass(frozen=True, eq=False)
class CalibrationPairs:
    """All pairs of some calibration rows: float and `compiled` scores [n, m], compiled features.

    `constant` is the mean of the float ed less that of the compiled one.
    """

    scores: FloatArray
    compiled: FloatArray
    features: tuple[Features, Features]
    constant: float

    @classmethod
    def of(
        cls, source: Program, simulator: Simulator, text: Array, video: Array
    ) -> CalibrationPairs:
        """The pairs of `text` and `video` rows, of the model before all passes and compiled."""
        mean, scores = float_pairs(source, text, video)
        features, distances, compiled = _scored(simulator, text, video)
        assert distances is not None
        unit = float(simulator.program.score.types[DISTANCE].unit)
        constant = float(mean - distances.mean() * unit)
        step = next_power_of_two(abs(constant) or 1.0) / CONSTANT_STEPS
        return cls(scores, compiled, features, round(constant / step) * step)

    def errors(self, program: Program) -> FloatArray:
        """The errors [n, m] of a program with these features."""
        found: FloatArray = Simulator(program).score(*self.features) - self.scores
        return found


FLOAT_PAIRS = "_float_pairs"
"""Attribute of a program of real numbers: its `float_pairs`, by the digests of the rows."""


def float_pairs(source: Program, text: Array, video: Array) -> tuple[float, FloatArray]:
    """The mean of ed (NaN without one) and the scores [n, m] of all pairs, in real numbers.

    The program keeps them: all models that are compiled from it ask for the same rows.
    """
    kept: dict[tuple[bytes, ...], tuple[float, FloatArray]]
    kept = vars(source).setdefault(FLOAT_PAIRS, {})
    key = tuple(sha256(np.ascontiguousarray(rows).data).digest() for rows in (text, video))
    if key not in kept:
        _, distances, scores = _scored(Simulator(source), text, video)
        kept[key] = np.nan if distances is None else float(distances.mean()), scores
    return kept[key]


def _scored(
    simulator: Simulator, text: Array, video: Array
) -> tuple[tuple[Features, Features], Array | None, Array]:
    """Features of both sides, and ed, if there is one, and the score [n, m] of all pairs."""
    features = simulator.encode("text", text), simulator.encode("video", video)
    score = simulator.program.score
    names = [*score.outputs.values(), *({DISTANCE} & score.by_name.keys())]
    blocks = [values for _, values in simulator.iter_score(*features, names=names)]
    scores, *distances = (np.concatenate([block[name] for block in blocks]) for name in names)
    return features, distances[0] if distances else None, scores


def least_gain(before: FloatArray, after: FloatArray) -> float:
    """The lower end of the share of the mean square error [n, m] that is gone."""
    means = resampled_pairs(*before.shape)
    first, second = (means(np.square(one)) for one in (before, after))
    return interval((first - second) / np.maximum(first, np.finfo(float).tiny)).low


def with_constant(program: Program, constant: float) -> Program:
    """A compiled program whose ed is larger by a real `constant` on all pairs."""
    steps = round_half_up(np.asarray(constant / program.score.types[DISTANCE].unit))

    def moved(builder: Builder, op: Add, node: Node, inputs: tuple[str, ...]) -> str:
        if node.name == DISTANCE:
            op = replace(op, offset=op.offset + steps)
        return builder.add(node.name, op, *inputs)

    score = rewrite_each(program.score, Add, moved)
    return replace(program, score=rewrite_each(score, Requant, refit))
