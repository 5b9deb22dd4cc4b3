"""Compile every point of a grid, and compare their drift and cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.experiments import api
from cimtool.experiments.engine import PointsFailed
from cimtool.experiments.options import SweepOptions


def _in_grid(given: Mapping[str, Any]) -> Collection[str]:
    """A target of a project file gives way to targets of the grid."""
    keys = [text.partition("=")[0].strip() for text in given.get("grid", ())]
    return ("target",) if "target" in keys else ()


@record_command(SweepOptions, left_out=_in_grid)
def command(out: Output, options: SweepOptions) -> None:
    """Compile every point of a grid, and compare their drift and cost.

    Finished points are kept in DIR (exports/<model>.sweep), so the same command continues where it
    was stopped. Ends with status 1 if points failed or none is within the --budget:
    {limits}.
    """
    try:
        found = api.sweep(**vars(options), say=out.say)
    except PointsFailed as failed:
        out.result(failed.found.of_this_run())
        raise
    out.result(found.of_this_run())
