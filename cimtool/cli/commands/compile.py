"""Compile trained projectors and their polynomial for a target."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from cimtool import api
from cimtool.base.options import Record, option
from cimtool.bundle.bundle import check_place, previous_of
from cimtool.bundle.compilation import CompileOptions, PrepareOptions
from cimtool.bundle.placement_view import floorplan_text, tiling_table
from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.hardware.placement import floorplan, placements
from cimtool.report.page import render_text
from cimtool.report.terminal import table_text

FEW_NOTES = 5
"""Notes that are printed without --verbose, beside warnings."""


class Shown(Record):
    """Options of the command alone."""

    dry_run: bool = option("Say what would be built, and write nothing.", default=False)
    verbose: bool = option("Print all notes, not the first few.", default=False, short="v")


@record_command(CompileOptions, Shown, defaults={"target": ...})
def command(out: Output, options: CompileOptions, shown: Shown) -> None:
    """Compile trained projectors and their polynomial for a target.

    The bundle goes to exports/<model>@<target> unless -o says otherwise; an earlier bundle there
    is moved aside. A setting given here overrides --settings, which overrides the target.
    """
    dry_run = shown.dry_run
    if options.output is not None and not dry_run:
        check_place(Path(options.output))
    compiled = api.prepare(**options.part(PrepareOptions), say=out.say)
    layers = placements(compiled.stages[-1].program, compiled.settings)
    plan = floorplan(layers, compiled.target)
    place = Path(options.output or compiled.folder)
    moved = previous_of(place) if not dry_run and place.exists() else None
    bundle = None if dry_run else compiled.write(place, out.say, options.stages)
    out.result(
        {
            "bundle": None if bundle is None else bundle.folder,
            "previous": moved,
            "dry_run": dry_run,
            "model": compiled.model.name,
            "layout": compiled.model.layout,
            "head": compiled.model.head.name,
            "target": compiled.target.name,
            "settings": compiled.settings.to_json(),
            "layers": [layer.to_json() for layer in layers],
            "placement": plan.to_json(),
            "notes": list(compiled.notes),
            "files": {} if bundle is None else bundle.manifest["files"],
        },
        render_text(
            "cimtool.cli",
            "compile.txt",
            compiled=compiled,
            notes=compiled.notes if shown.verbose else first_notes(compiled.notes),
            table=table_text(tiling_table(layers)),
            placed=floorplan_text(plan),
            bundle=bundle,
            stages=options.stages,
            folder=bundle and shlex.quote(str(bundle.folder)),
            moved=moved,
        ),
    )


def first_notes(notes: Sequence[str]) -> list[str]:
    """All warnings, the first few other notes, and how many more there are."""
    warnings = [note for note in notes if note.startswith("warning: ")]
    others = [note for note in notes if note not in warnings]
    more = len(others) - FEW_NOTES
    told = [f"{more} more with --verbose"] if more > 0 else []
    return [*warnings, *others[:FEW_NOTES], *told]
