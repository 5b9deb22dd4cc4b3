"""Say what a checkpoint, bundle, target, data or ONNX file holds."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cimtool.base.modality_names import TEXT_VIDEO, Modalities, name_of
from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.inspect import brief_facts, format_facts, inspect
from cimtool.bundle.render import sizes
from cimtool.cli.group import Command, FilePath
from cimtool.cli.output import Output
from cimtool.report.document import Document, Verbatim

FIRST_SCREEN, COLUMNS = 15, 78
"""Lines of a first screen, and columns behind the indent of its facts."""


@click.command(cls=Command)
@click.argument("file", metavar="FILE", type=FilePath("FILE"))
@click.pass_obj
def command(out: Output, file: Path) -> None:
    """Say what a checkpoint, bundle, target, data or ONNX file holds.

    A bundle is checked as commands that run it check it. The shards of a gallery are verified by
    their SHA-256. In a hand-off, every file is verified so, and the weights of each layer are read
    back from the cells of its arrays.
    """
    facts = inspect(file)
    shown = facts
    if facts["kind"] == "bundle":
        bundle = read_bundle(file if file.is_dir() else file.parent)
        held = [name for name in facts["files"] if (file / name).is_file()]
        facts = {**facts, "bytes_by_purpose": sizes(file, held)}
        shown = {**facts, "model": _with_names(facts["model"], bundle.model.called)}
    lines = format_facts(shown)
    if len(lines) > FIRST_SCREEN and not out.verbose:
        rest = f"--verbose has the rest: {len(lines)} lines"
        lines = [*brief_facts(shown, COLUMNS), rest]
    if shown["kind"] == "bundle":
        lines.append(f"next: cimtool verify {shlex.quote(str(file))} --data NPZ")
    out.result(Document("", tuple(map(Verbatim, lines)), lambda: facts))


def _with_names(model: Mapping[str, Any], called: Modalities) -> dict[str, Any]:
    """The facts of a bundle's model, with widths named as its calibration names the modalities."""
    names = {f"{m}_width": f"{name_of(m, called)}_width" for m in TEXT_VIDEO}
    return {names.get(key, key): value for key, value in model.items()}
