"""The main walk: trained numbers in; every stage from float graph to crossbar program out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cimtool.ir.program import Program, check
from cimtool.passes.calibrate import CALIBRATE
from cimtool.passes.converters import FIT_CONVERTERS
from cimtool.passes.fold import FOLD
from cimtool.passes.lower import LOWER
from cimtool.passes.quantize import QUANTIZE
from cimtool.passes.step import Job, Pass
from cimtool.passes.tile import TILE

PIPELINE = (FOLD, CALIBRATE, LOWER, QUANTIZE, TILE, FIT_CONVERTERS)


@dataclass(frozen=True)
class Stage:
    """A program after one pass, by the name that reports give it."""

    name: str
    program: Program


def compile_program(program: Program, job: Job, say: Callable[[str], None]) -> tuple[Stage, ...]:
    """Run the pipeline over a trained program; returns the trained stage and one a pass."""
    return (Stage("trained", program), *run_passes(PIPELINE, program, job, say))


def run_passes(
    passes: Sequence[Pass], program: Program, job: Job, say: Callable[[str], None]
) -> tuple[Stage, ...]:
    """Run some passes one after the other and check what stands after each; a stage a pass."""
    stages: list[Stage] = []
    for step in passes:
        say(step.doing)
        program = step.apply(program, job)
        check(program, step.name, step.leaves)
        stages.append(Stage(step.name, program))
    return tuple(stages)
