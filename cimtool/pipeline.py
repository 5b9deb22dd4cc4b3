"""The main walk: trained numbers in; every stage from float graph to crossbar program out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cimtool.ir.program import Program, check
from cimtool.passes.calibrate import CALIBRATE
from cimtool.passes.converters import FIT_CONVERTERS
from cimtool.passes.fold import FOLD
from cimtool.passes.lower import LOWER
from cimtool.passes.quantize import QUANTIZE
from cimtool.passes.step import Job
from cimtool.passes.tile import TILE

PIPELINE = (FOLD, CALIBRATE, LOWER, QUANTIZE, TILE, FIT_CONVERTERS)


@dataclass(frozen=True)
class Stage:
    """A program after one pass, by the name that reports give it."""

    name: str
    program: Program


def compile_program(program: Program, job: Job, say: Callable[[str], None]) -> tuple[Stage, ...]:
    """Run the pipeline over a trained program; returns the trained stage and one a pass."""
    stages = [Stage("trained", program)]
    for step in PIPELINE:
        say(step.doing)
        changed = step.apply(stages[-1].program, job)
        check(changed, step.name, step.leaves)
        stages.append(Stage(step.name, changed))
    return tuple(stages)
