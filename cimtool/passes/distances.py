"""Correct distances: the mean errors that rounding leaves in `ed` and `vd` go into their constants.

An error of mu that differs from item to item has no mean that a layer's bias could take off, but
its square has: it makes every squared distance larger by about the same. In few bits a variance
that is the same for all items is off by the same for all. Constants of the sums `ed` and `vd` take
that off, and the sums are computed anyway.

A constant is the mean of the statistic over calibration pairs before all passes, less that of the
compiled program. Other rows decide what is taken: each half of the rows gives constants, and on the
other half the mean square error from the score before all passes must fall by LEAST_GAIN or more,
even at the lower end of its 95% interval (texts and videos are resampled). Then the means of both
halves' constants are taken. If scores err by next to nothing in the mean, nothing is tried.

Measured beside it on other rows: an offset and a slope of ed, of vd and of the score gain about 1%
more of the error at most, and a slope that is fitted to all pairs errs more on right ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

STATISTICS = (DISTANCE, "vd")
"""The statistics that a constant may be added to."""

LEAST_GAIN = 0.05
"""Share of the mean square error that a constant must take off: less is not worth a change."""

CONSTANT_STEPS = 1 << 12
"""Steps that the constant is rounded to: it must not depend on the last bits of a CPU's sums."""


@dataclass(frozen=True)
class CorrectDistancesPass(Pass):
    """Take the mean errors off `ed` and `vd` where other calibration rows agree.

    Not unless it is `on`: where the same rows decided how weights are rounded (GPTQ), errors on
    these rows say nothing of others. A score without them stays as it is.
    """

    on: bool = True

    name = "distances corrected"
    doing = "correcting distances"
    optional = True
    requires = Level.CROSSBAR
    leaves = Level.CROSSBAR

    def apply(self, program: Program, job: Job) -> Program:
        source = job.source
        if not self.on or source is None or not _held(program, source):
            return program
        halves = [(text[:HALF_ROWS], video[:HALF_ROWS]) for text, video in job.halves()]
        if min(len(rows) for half in halves for rows in half) < LEAST_HALF:
            return program
        simulator = Simulator(program)
        pairs = [CalibrationPairs.of(source, simulator, *half) for half in halves]
        errors = [one.compiled - one.scores for one in pairs]
        if min(map(_share_of_mean, errors)) < LEAST_GAIN:
            return program
        best, most, left = None, LEAST_GAIN, errors
        for names in _choices(_held(program, source)):
            tried = [
                one.errors(with_constants(program, {name: other.constants[name] for name in names}))
                for one, other in (pairs, pairs[::-1])
            ]
            if (gain := min(map(least_gain, errors, tried))) >= most:
                best, most, left = names, gain, tried
        if best is None:
            return program
        constants = {name: float(np.mean([one.constants[name] for one in pairs])) for name in best}
        before, after = (
            np.sqrt(np.mean([np.square(one).mean() for one in each])) for each in (errors, left)
        )
        told = " and ".join(f"{constant:+.4g} in {name}" for name, constant in constants.items())
        job.note(
            f"score: {told} takes off the mean error of rounding; on calibration rows that did not "
            f"give it the RMSE from the float score is {after:.4g}, {before:.4g} without"
        )
        return with_constants(program, constants)


def _choices(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Each statistic alone, then all: errors of two may cancel in the score."""
    yield from ((name,) for name in names)
    if len(names) > 1:
        yield names


def _held(program: Program, source: Program) -> tuple[str, ...]:
    """The statistics of both, which a constant of the compiled program can move."""
    score, trained = program.score.operations(Add), source.score.by_name
    return tuple(name for name in STATISTICS if name in score and name in trained)


def _share_of_mean(errors: FloatArray) -> float:
    """The share of a mean square error [n, m] that is the square of the mean error."""
    square = float(np.square(errors).mean())
    return float(errors.mean()) ** 2 / square if square else 0.0


@dataclass(frozen=True, eq=False)
class CalibrationPairs:
    """All pairs of some calibration rows: float and `compiled` scores [n, m], compiled features.

    `constants` are the mean of each float statistic less that of the compiled one.
    """

    scores: FloatArray
    compiled: FloatArray
    features: tuple[Features, Features]
    constants: Mapping[str, float]

    @classmethod
    def of(
        cls, source: Program, simulator: Simulator, text: Array, video: Array
    ) -> CalibrationPairs:
        """The pairs of `text` and `video` rows, of the model before all passes and compiled."""
        means, scores = float_pairs(source, text, video)
        features, found, compiled = _scored(simulator, text, video)
        constants = {}
        for name in _held(simulator.program, source):
            unit = float(simulator.program.score.types[name].unit)
            constant = float(means[name] - found[name].mean() * unit)
            step = next_power_of_two(abs(constant) or 1.0) / CONSTANT_STEPS
            constants[name] = round(constant / step) * step
        return cls(scores, compiled, features, constants)

    def errors(self, program: Program) -> FloatArray:
        """The errors [n, m] of a program with these features."""
        found: FloatArray = Simulator(program).score(*self.features) - self.scores
        return found


FLOAT_PAIRS = "_float_pairs"
"""Attribute of a program of real numbers: its `float_pairs`, by the digests of the rows."""


def float_pairs(
    source: Program, text: Array, video: Array
) -> tuple[Mapping[str, float], FloatArray]:
    """The means of the STATISTICS that there are and the scores [n, m] of all pairs, in float.

    The program keeps them: all models that are compiled from it ask for the same rows.
    """
    kept: dict[tuple[bytes, ...], tuple[Mapping[str, float], FloatArray]]
    kept = vars(source).setdefault(FLOAT_PAIRS, {})
    key = tuple(sha256(np.ascontiguousarray(rows).data).digest() for rows in (text, video))
    if key not in kept:
        _, found, scores = _scored(Simulator(source), text, video)
        kept[key] = {name: float(one.mean()) for name, one in found.items()}, scores
    return kept[key]


def _scored(
    simulator: Simulator, text: Array, video: Array
) -> tuple[tuple[Features, Features], dict[str, Array], Array]:
    """Features of both sides, and the STATISTICS and the score [n, m] of all pairs."""
    features = simulator.encode("text", text), simulator.encode("video", video)
    score = simulator.program.score
    names = [*score.outputs.values(), *(name for name in STATISTICS if name in score.by_name)]
    blocks = [values for _, values in simulator.iter_score(*features, names=names)]
    scores, *found = (np.concatenate([block[name] for block in blocks]) for name in names)
    return features, dict(zip(names[1:], found, strict=True)), scores


def least_gain(before: FloatArray, after: FloatArray) -> float:
    """The lower end of the share of the mean square error [n, m] that is gone."""
    means = resampled_pairs(*before.shape)
    first, second = (means(np.square(one)) for one in (before, after))
    return interval((first - second) / np.maximum(first, np.finfo(float).tiny)).low


def with_constants(program: Program, constants: Mapping[str, float]) -> Program:
    """A compiled program whose statistics are larger by real `constants` on all pairs."""

    def moved(builder: Builder, op: Add, node: Node, inputs: tuple[str, ...]) -> str:
        if node.name in constants:
            unit = program.score.types[node.name].unit
            steps = round_half_up(np.asarray(constants[node.name] / unit))
            op = replace(op, offset=op.offset + steps)
        return builder.add(node.name, op, *inputs)

    score = rewrite_each(program.score, Add, moved)
    return replace(program, score=rewrite_each(score, Requant, refit))
