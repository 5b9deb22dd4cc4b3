"""The main walk: trained numbers in; every stage from float graph to crossbar program out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cimtool.base.errors import rows_of
from cimtool.hardware.settings import Settings
from cimtool.ir.program import Program, check_program, misplaced
from cimtool.passes.base import Job, Pass
from cimtool.passes.calibrate import CalibratePass
from cimtool.passes.converters import FitConvertersPass
from cimtool.passes.fold import FoldPass
from cimtool.passes.lower import LowerPass
from cimtool.passes.quantize import QuantizePass
from cimtool.passes.tile import TilePass


def passes_for(settings: Settings) -> tuple[Pass, ...]:
    """The passes in the order in which they run, with their options."""
    return (
        FoldPass(),
        CalibratePass(settings.calibrator),
        LowerPass(),
        QuantizePass(settings.weight_rounding, settings.bias_correction, settings.equalise),
        TilePass(),
        FitConvertersPass(),
    )


@dataclass(frozen=True)
class Stage:
    """A program after one pass, by the name that reports give it; bundles have those `kept`."""

    name: str
    program: Program
    kept: bool = True


def stage_of(stages: Iterable[Stage], made_by: type[Pass]) -> Stage:
    """The stage that a pass made; KeyError where none of `stages` is."""
    return {stage.name: stage for stage in stages}[made_by.name]


def compile_program(program: Program, job: Job, say: Callable[[str], None]) -> tuple[Stage, ...]:
    """Run the pipeline over a trained program; returns the trained stage and one a pass."""
    trained = Stage("trained", program)
    return (trained, *run_passes(passes_for(job.settings), program, job, say))


def run_passes(
    passes: Sequence[Pass], program: Program, job: Job, say: Callable[[str], None]
) -> tuple[Stage, ...]:
    """Run some passes one after the other, each checked before and after; a stage a pass.

    Raises TypeError where a program is not what a pass requires, RuntimeError where a pass leaves
    what it should not; both name the pass and those before it. CimError where the calibration rows
    give numbers for which there is no program.
    """
    stages: list[Stage] = []
    for step in passes:
        say(step.doing)
        where = step.name
        if stages:
            where += f" (after {', '.join(stage.name for stage in stages)})"
        _require(step, program, where)
        with rows_of(job.file):
            program = step.apply(program, job)
        check_program(program, where, step.leaves)
        stages.append(Stage(step.name, program, step.kept))
    return tuple(stages)


def _require(step: Pass, program: Program, where: str) -> None:
    """Raise TypeError where a program is not what a pass takes."""
    for graph in program.graphs:
        if (wrong := misplaced(graph, step.requires)) is not None:
            raise TypeError(
                f"{where} requires the level {step.requires.name}, at which {wrong.op.name} in "
                f"{graph.layer(wrong)} does not stand"
            )
    if step.requires_calibration and not program.text.calibration.ranges:
        raise TypeError(f"{where} requires a calibration, and the program has none")
