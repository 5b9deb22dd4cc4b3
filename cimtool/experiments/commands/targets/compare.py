"""Compare what a model retrieves, takes and needs on several targets."""

from __future__ import annotations

from pathlib import Path

import click

from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.experiments import api
from cimtool.experiments.engine import PointsFailed
from cimtool.experiments.options import CompareTargetsOptions

ONNX = ".onnx"


@record_command(CompareTargetsOptions)
def command(out: Output, options: CompareTargetsOptions) -> None:
    """Compare what a model retrieves, takes and needs on several targets.

    MODEL is a checkpoint, or two ONNX files, text first. Without a TARGET it is compiled for all
    known ones. The gallery is scored digitally and in the arrays, unless --settings say how. A
    target that cannot is a row with the reason. Finished rows are kept in DIR
    (exports/<model>.targets), so the same command continues where it was stopped. Ends with status
    1 if no target is within the --budget: {limits}.
    """
    given = {**vars(options), "say": out.say}
    model, *targets = map(str, given.pop("what"))
    projectors: str | tuple[Path, Path] = model
    if Path(model).suffix == ONNX:
        if not targets or Path(targets[0]).suffix != ONNX:
            raise click.UsageError(
                f"{model}: one ONNX file is one projector; expected two, text first"
            )
        projectors = Path(model), Path(targets.pop(0))
    try:
        found = api.compare_targets(projectors, *targets, **given)
    except PointsFailed as failed:
        out.result(failed.found.of_this_run())
        raise
    out.result(found.of_this_run())
