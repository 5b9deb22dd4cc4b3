"""Compile trained projectors and their polynomial for a target."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cimtool import api
from cimtool.bundle.bundle import check_place, previous_of
from cimtool.bundle.placement_view import floorplan_text, tiling_table
from cimtool.cli.group import Command
from cimtool.cli.options import DIR, FILE, embeddings_option, model_options, settings_options
from cimtool.cli.output import Output
from cimtool.hardware.placement import floorplan, placements
from cimtool.report.page import render_text
from cimtool.report.terminal import table_text

FEW_NOTES = 5
"""Notes that are printed without --verbose, beside warnings."""


@click.command(cls=Command)
@model_options()
@embeddings_option("--calibration", "Embeddings that decide the ranges")
@click.option("--target", metavar="NAME|FILE", required=True, help="The hardware.")
@click.option("-o", "--output", type=DIR, help="Folder of the bundle.")
@click.option("--dry-run", is_flag=True, help="Say what would be built, and write nothing.")
@click.option(
    "--check", type=FILE, help="Rows, and the mu and logvar that the model should give (.npz)."
)
@click.option("--settings", type=FILE, help="Settings, also of single layers (TOML).")
@settings_options
@click.option(
    "--stages/--no-stages", default=True,
    help="Keep what verify, compare and evaluate alone read: more than half of the bundle.",
)  # fmt: skip
@click.option("-v", "--verbose", is_flag=True, help="Print all notes, not the first few.")
@click.pass_obj
def command(
    out: Output,
    /,
    output: Path | None,
    dry_run: bool,
    verbose: bool,
    stages: bool,
    **options: Any,
) -> None:
    """Compile trained projectors and their polynomial for a target.

    The bundle goes to exports/<model>@<target> unless -o says otherwise; an earlier bundle there
    is moved aside. A setting given here overrides --settings, which overrides the target.
    """
    if output is not None and not dry_run:
        check_place(output)
    compiled = api.prepare(say=out.say, **options)
    layers = placements(compiled.stages[-1].program, compiled.settings)
    plan = floorplan(layers, compiled.target)
    place = output or compiled.folder
    moved = previous_of(place) if not dry_run and place.exists() else None
    bundle = None if dry_run else compiled.write(place, out.say, stages)
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
            notes=compiled.notes if verbose else first_notes(compiled.notes),
            table=table_text(tiling_table(layers)),
            placed=floorplan_text(plan),
            bundle=bundle,
            stages=stages,
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
