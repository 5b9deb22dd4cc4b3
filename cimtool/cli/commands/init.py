"""Write a project file from the files in the current folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from cimtool.base.errors import CimError
from cimtool.base.files import replace_texts
from cimtool.cli.group import PROJECT, Command, records_by_command
from cimtool.cli.guess import first, guess_project
from cimtool.cli.output import Output
from cimtool.cli.project import project_schema
from cimtool.report.document import Document, Sentence

SCHEMA = "cimtool.schema.json"
"""The file of the JSON Schema beside the project file, by which editors complete its keys."""


@click.command(cls=Command)
@click.pass_context
def command(context: click.Context) -> None:
    """Write a project file from the files in the current folder.

    Guesses the role of each file from its contents and its name, and says why. In a terminal it
    asks which file, if several fit, and for the target; otherwise it asks nothing. Writes
    cimtool.toml, and cimtool.schema.json, by which editors complete keys. A project file that is
    there already is never overwritten.
    """
    out: Output = context.obj
    file = Path(PROJECT)
    if file.exists():
        raise CimError(f"{file}: is there already; expected a folder without one, or edit it")
    found = guess_project(Path(), _asked if sys.stdin.isatty() and not out.as_json else first)
    group = context.find_root().command
    if not isinstance(group, click.Group):
        raise TypeError("init is no command of a group")
    schema = json.dumps(project_schema(dict(records_by_command(group, context))), indent=1)
    texts = {SCHEMA: schema + "\n", PROJECT: found.text(SCHEMA)}
    written = replace_texts(Path(), texts, "the project")
    said = [f"{key} = {value}: {found.reasons[key]}" for key, value in found.values.items()]
    said += [f"{key} is not given: {reason}" for key, reason in found.unknown.items()]
    values = {"values": found.values, "reasons": found.reasons, "unknown": found.unknown}
    shown = Document("", tuple(map(Sentence, said)), lambda: values)
    out.result(shown.wrote(written, "cimtool run"))


def _asked(key: str, values: Sequence[str]) -> str:
    """Ask for a value of a key, with the first as the default; the target, or one of several."""
    if key != "target" and len(values) == 1:
        return values[0]
    kind = None if key == "target" else click.Choice(list(values))
    return str(click.prompt(key, default=values[0], type=kind, err=True))
