"""Compile trained projectors and their polynomial for a target."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from cimtool import api
from cimtool.bundle.bundle import check_place, previous_of
from cimtool.cli.group import Command
from cimtool.cli.options import DIR, FILE, embeddings_option, model_options, settings_options
from cimtool.cli.output import Output
from cimtool.report.document import Sentence, Verbatim


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
@click.pass_obj
def command(
    out: Output,
    /,
    output: Path | None,
    dry_run: bool,
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
    place = output or compiled.folder
    moved = previous_of(place) if not dry_run and place.exists() else None
    bundle = None if dry_run else compiled.write(place, out.say, stages)
    shown = compiled.document().plus(
        bundle=None if bundle is None else bundle.folder,
        previous=moved,
        dry_run=dry_run,
        files={} if bundle is None else bundle.manifest["files"],
    )
    if bundle is None:
        out.result(shown.plus(Sentence("dry run: nothing was written")))
        return
    folder = shlex.quote(str(bundle.folder))
    next_ = f"verify {folder} --data NPZ" if stages else f"simulate {folder} --inputs NPZ"
    aside = f"the bundle that stood there is {moved} now, the only earlier one kept"
    lines = [f"wrote {bundle.folder}", *([aside] if moved else []), f"next: cimtool {next_}"]
    out.result(shown.plus(*map(Verbatim, lines)))
