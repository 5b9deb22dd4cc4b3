"""Constants of ed and vd: taken where the other half of the rows agrees, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from small_models import passed

from cimtool.base.arrays import Array
from cimtool.ir.program import Program
from cimtool.passes.base import Job
from cimtool.passes.distances import (
    STATISTICS,
    CalibrationPairs,
    CorrectDistancesPass,
    float_pairs,
    least_gain,
    with_constants,
)
from cimtool.simulation.simulator import Simulator

PLANTED = {"ed": 2.0, "vd": 60.0}
"""Errors of statistics of the small model, whose ed is some tens, and vd some hundreds."""


@pytest.fixture(scope="module")
def case(models: SimpleNamespace) -> tuple[Program, Job]:
    """The small model after all other passes with 8 bits, and its job."""
    job = replace(models.job(*models.data), source=models.small)
    return passed(models.small, job, "converters fitted")[0], job


def codes(program: Program, job: Job, name: str) -> np.ndarray:
    simulator = Simulator(program)
    features = (simulator.encode(m, job.rows(m)) for m in ("text", "video"))
    return np.concatenate(
        [found[name] for _, found in simulator.iter_score(*features, names=[name])]
    )


def distances(program: Program, job: Job, name: str = "ed") -> np.ndarray:
    scale = program.score.types[name].scale
    return codes(program, job, name) * (1.0 if scale is None else float(scale))


def rmse(program: Program, job: Job) -> float:
    found, wanted = (Simulator(one).scores(job.text, job.video) for one in (program, job.source))
    return float(np.sqrt(np.square(found - wanted).mean()))


@pytest.mark.parametrize("name", STATISTICS)
def test_a_constant_moves_all_pairs_alike_and_adds_no_operation(
    case: tuple[Program, Job], name: str
) -> None:
    program, job = case
    moved = with_constants(program, {name: PLANTED[name]})
    steps, unit = (
        codes(moved, job, name) - codes(program, job, name),
        program.score.types[name].unit,
    )
    assert np.ptp(steps) == 0
    assert steps[0, 0] * unit == pytest.approx(PLANTED[name], abs=float(unit))
    ops = [[(node.name, type(node.op)) for node in one.score.nodes] for one in (program, moved)]
    assert ops[0] == ops[1]
    assert moved.text is program.text


@pytest.mark.parametrize("name", STATISTICS)
def test_an_error_on_all_pairs_is_taken_off_and_told(case: tuple[Program, Job], name: str) -> None:
    program, job = case
    notes: list[str] = []
    wrong = with_constants(program, {name: PLANTED[name]})
    right = CorrectDistancesPass().apply(wrong, replace(job, note=notes.append))
    assert rmse(right, job) < 1.1 * rmse(program, job) < 0.2 * rmse(wrong, job)
    assert distances(right, job, name).mean() == pytest.approx(
        distances(job.source, job, name).mean(), abs=0.02 * PLANTED[name]
    )
    (note,) = notes
    constants, told = note.removeprefix("score: ").split(" takes off ")
    own = dict(reversed(one.split(" in ")) for one in constants.split(" and "))
    assert float(own[name]) == pytest.approx(-PLANTED[name], rel=0.05)
    assert "rows that did not give it" in told


def test_errors_that_cancel_in_part_are_both_taken_off(case: tuple[Program, Job]) -> None:
    program, job = case
    notes: list[str] = []
    wrong = with_constants(program, PLANTED)
    right = CorrectDistancesPass().apply(wrong, replace(job, note=notes.append))
    assert rmse(right, job) < 1.1 * rmse(program, job) < 0.3 * rmse(wrong, job)
    (note,) = notes
    assert " in ed and " in note.split(" in vd takes off ")[0]


def test_a_program_of_8_bits_stays_as_it_is(case: tuple[Program, Job]) -> None:
    program, job = case
    assert CorrectDistancesPass().apply(program, job) is program


def test_it_is_off_where_it_is_not_wanted_or_known(case: tuple[Program, Job]) -> None:
    program, job = case
    wrong = with_constants(program, {"ed": PLANTED["ed"]})
    few = replace(job, text=job.text[:31], video=job.video[:31])
    assert CorrectDistancesPass(on=False).apply(wrong, job) is wrong
    assert CorrectDistancesPass().apply(wrong, replace(job, source=None)) is wrong
    assert CorrectDistancesPass().apply(wrong, few) is wrong


def test_an_error_of_one_half_alone_is_not_taken_off(case: tuple[Program, Job]) -> None:
    """Texts of one half are far beyond the ranges, so that ed of this half alone is too small."""
    program, job = case
    text = job.text.copy()
    text[1::2] *= 3
    far = replace(job, text=text)
    halves = (
        np.mean((distances(program, far) - distances(job.source, far))[turn::2]) for turn in (0, 1)
    )
    near, wrong = map(abs, halves)
    assert wrong > 20 * near
    assert CorrectDistancesPass().apply(program, far) is program


@pytest.mark.parametrize(
    ("halves", "taken"),
    [
        (((1, 1), (1, 1)), True),
        (((1, 1), (-1, -1)), False),  # each would gain by its own
        (((1, -1), (1, 1)), False),  # the first half gains, the second loses
        (((1, 1), (1, -1)), False),
    ],
)
def test_each_half_must_gain_by_the_constant_of_the_other(
    case: tuple[Program, Job],
    monkeypatch: pytest.MonkeyPatch,
    halves: tuple[tuple[int, int], ...],
    taken: bool,
) -> None:
    """The halves have an error and a constant each, in planted ones."""
    program, job = case
    given = iter(halves)

    def made(source: Program, simulator: Simulator, text: Array, video: Array) -> CalibrationPairs:
        error, constant = (PLANTED["ed"] * one for one in next(given))
        features = simulator.encode("text", text), simulator.encode("video", video)
        scores = Simulator(with_constants(program, {"ed": error})).score(*features)
        found = simulator.score(*features)
        return CalibrationPairs(scores, found, features, {"ed": constant, "vd": 0.0})

    monkeypatch.setattr(CalibrationPairs, "of", made)
    assert (CorrectDistancesPass().apply(program, job) is not program) == taken


def test_float_scores_are_kept_for_the_same_rows_alone(case: tuple[Program, Job]) -> None:
    _, job = case
    source = replace(job.source)  # keeps nothing yet
    means, scores = float_pairs(source, job.text, job.video)
    assert scores is float_pairs(source, job.text.copy(), job.video)[1]
    assert np.array_equal(scores, Simulator(source).scores(job.text, job.video))
    moved = job.text.copy()
    moved[0, 0] += 1
    other_means, others = float_pairs(source, moved, job.video)
    assert np.array_equal(others[1:], scores[1:])
    assert means.keys() == {"ed", "vd"}
    assert all(means[name] != other_means[name] for name in means)
    assert (others[0] != scores[0]).any()


def test_the_gain_is_the_lower_end_of_what_is_gone() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(40, 50))
    assert least_gain(noise + 1, noise) == pytest.approx(0.45, abs=0.1)
    assert least_gain(noise, noise + 1) < 0
    assert least_gain(noise, noise) == 0
    assert least_gain(0 * noise, 0 * noise) == 0
    texts = rng.normal(size=(40, 1)) - 0.3  # of the same errors of all videos: few texts decide
    texts, alike = np.repeat(texts, 50, axis=1), rng.normal(size=(40, 50)) - 0.3
    for errors in (texts, alike):
        assert np.square(errors + 0.3).mean() < np.square(errors).mean()
    assert least_gain(texts, texts + 0.3) < 0 < least_gain(alike, alike + 0.3)
