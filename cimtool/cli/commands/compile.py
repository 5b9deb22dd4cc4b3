"""Compile trained projectors and their polynomial for a target."""

from __future__ import annotations

import shlex
from pathlib import Path

from cimtool.base.options import Record, Topic, option
from cimtool.bundle import api
from cimtool.bundle.bundle import check_place, previous_of
from cimtool.bundle.compilation import CompileOptions, PrepareOptions
from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.report.document import Sentence, Verbatim


class DryRun(Record, topic=Topic.WRITTEN):
    """The option that only the command has."""

    dry_run: bool = option("Say what would be built, and write nothing.", default=False)


@record_command(CompileOptions, DryRun)
def command(out: Output, options: CompileOptions, dry: DryRun) -> None:
    """Compile trained projectors and their polynomial for a target.

    The bundle goes to exports/<model>@<target> unless -o says otherwise; an earlier bundle there
    is moved aside. A setting given here overrides --settings, which overrides the target.
    """
    dry_run, stages = dry.dry_run, options.stages
    if options.output is not None and not dry_run:
        check_place(Path(options.output))
    compiled = api.prepare(**options.part(PrepareOptions), say=out.say)
    place = Path(options.output or compiled.folder)
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
    aside = f"the earlier bundle was moved to {moved}; no other earlier one is kept"
    lines = [f"wrote {bundle.folder}", *([aside] if moved else []), f"next: cimtool {next_}"]
    out.result(shown.plus(*map(Verbatim, lines)))
