"""The main walk: trained numbers in; every stage from float graph to crossbar program out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, pairwise

from cimtool.base.errors import rows_of
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.settings import Settings
from cimtool.ir.arithmetic import Mvm, Store
from cimtool.ir.program import Graph, Program, check_program, misplaced
from cimtool.passes.base import Job, Pass
from cimtool.passes.calibrate import CalibratePass
from cimtool.passes.converters import FitConvertersPass, TilePass
from cimtool.passes.distances import CorrectDistancesPass
from cimtool.passes.fold import FoldPass
from cimtool.passes.lower import LowerPass
from cimtool.passes.quantize import QuantizePass

TRAINED = "trained"
"""The stage before all passes."""


def passes_for(settings: Settings) -> tuple[Pass, ...]:
    """The passes in the order in which they run, with their options."""
    return (
        FoldPass(),
        CalibratePass(settings.calibrator),
        LowerPass(),
        QuantizePass(settings.weight_rounding, settings.bias_correction, settings.equalise),
        TilePass(),
        FitConvertersPass(),
        CorrectDistancesPass(settings.bias_correction and settings.weight_rounding == "nearest"),
    )


@dataclass(frozen=True)
class Stage:
    """A program after one pass, by the name that reports give it; bundles have those `kept`."""

    name: str
    program: Program
    kept: bool = True


def stage_of(stages: Iterable[Stage], made_by: type[Pass]) -> Stage:
    """The stage that a pass made; KeyError if none of `stages` is."""
    return {stage.name: stage for stage in stages}[made_by.name]


def stage_names(settings: Settings, optional: bool) -> tuple[str, ...]:
    """The names of the stages of a bundle, its program's the last; with those of optional passes.

    A stage that is not the last has a name if it is kept.
    """
    passes = [step for step in passes_for(settings) if optional or not step.optional]
    return (TRAINED, *(step.name for step in passes if step.kept or step is passes[-1]))


def require_in_step(stages: Iterable[Stage]) -> None:
    """Raise ValueError if a stage has lost what the one before it has, from LowerPass on.

    By name they have the same layers, stored values and outputs, which measuring follows; of a
    score that is in the memory the earlier stages are another graph.
    """
    lowered = dropwhile(lambda stage: stage.name != LowerPass.name, stages)
    for before, after in pairwise(lowered):
        for graph in before.program.graphs:
            found = next(one for one in after.program.graphs if one.name == graph.name)
            if graph.name == "score" and after.program.gallery_items is not None:
                continue
            stored = [node.name for node in graph.nodes if isinstance(node.op, Store)]
            changed = _layers(graph).items() ^ _layers(found).items()
            lost = {*stored, *graph.outputs.values()} - found.types.keys()
            if name := min(lost | dict(changed).keys(), default=None):
                raise ValueError(
                    f"{before.name} and {after.name} are not the same model at {graph.name}.{name}"
                )


def _layers(graph: Graph) -> dict[str, tuple[int, ...]]:
    """The shapes of the layers' weights."""
    return {
        node.name: op.weight.shape
        for node in graph.nodes
        if isinstance(op := node.op, Mvm | CrossbarMvm)
    }


def compile_program(program: Program, job: Job, say: Callable[[str], None]) -> tuple[Stage, ...]:
    """Run the pipeline over a trained program; returns the trained stage and those of passes."""
    trained = Stage(TRAINED, program)
    return (trained, *run_passes(passes_for(job.settings), program, job, say))


def run_passes(
    passes: Sequence[Pass], program: Program, job: Job, say: Callable[[str], None]
) -> tuple[Stage, ...]:
    """Run some passes one after the other, each checked before and after; a stage a pass.

    An optional pass that changes nothing has no stage. Raises TypeError if a program is not what a
    pass requires, RuntimeError if a pass leaves what it should not; both name the pass and those
    before it. CimError if the calibration rows give numbers for which there is no program.
    """
    stages: list[Stage] = []
    job = replace(job, source=job.source or program)
    for step in passes:
        say(step.doing)
        where = step.name
        if stages:
            where += f" (after {', '.join(stage.name for stage in stages)})"
        _require(step, program, where)
        before = program
        with rows_of(job.file):
            program = step.apply(program, job)
        if step.optional and program is before:
            continue
        check_program(program, where, step.leaves)
        stages.append(Stage(step.name, program, step.kept))
    return tuple(stages)


def _require(step: Pass, program: Program, where: str) -> None:
    """Raise TypeError if a program is not what a pass takes."""
    for graph in program.graphs:
        if (wrong := misplaced(graph, step.requires)) is not None:
            raise TypeError(
                f"{where} requires the level {step.requires.name}, at which {wrong.op.name} in "
                f"{graph.layer(wrong)} does not stand"
            )
    if step.requires_calibration and not program.text.calibration.ranges:
        raise TypeError(f"{where} requires a calibration, and the program has none")
