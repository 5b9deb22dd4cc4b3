"""List, show, check and import hardware targets."""

from __future__ import annotations

from pathlib import Path

import click

from cimtool.base.files import check_output, replace_texts
from cimtool.base.plugins import OWN, unless_broken
from cimtool.base.toml_files import toml_text
from cimtool.cli.describe import describe, describe_cam
from cimtool.cli.group import Command, FilePath, Group
from cimtool.cli.output import Output
from cimtool.hardware.cam import Cam, cam_origin, cam_origins, is_cam, load_cam
from cimtool.hardware.imported import import_target
from cimtool.hardware.recomputed import recomputed
from cimtool.hardware.target import Target, load_target, origin_of, target_origins
from cimtool.report.document import Document, Verbatim, notes
from cimtool.report.table import Column, make_table


@click.group(cls=Group)
def command() -> None:
    """List, show, check and import hardware targets."""


@command.command("list", cls=Command)
@click.pass_obj
def list_(out: Output) -> None:
    """List the targets that come with cimtool and with plug-ins, and memories that match."""
    rows = []
    for name, origin in (target_origins() | cam_origins()).items():
        with unless_broken(f'target "{name}"', origin):
            one = _loaded(name)
            rows.append({"name": name, "class": one.class_, "origin": origin, "title": one.title})
    columns = [Column(key) for key in rows[0]]
    table = make_table("", columns, [list(row.values()) for row in rows])
    out.result(Document("", (table,), lambda: {"targets": rows}))


@command.command(cls=Command)
@click.argument("target", metavar="NAME|FILE")
@click.pass_obj
def show(out: Output, target: str) -> None:
    """Show every value of a target, and every figure with its source."""
    loaded = _loaded(target)
    if isinstance(loaded, Cam):
        origin, shown = cam_origin(target), describe_cam(loaded)
    else:
        origin, shown = origin_of(target), describe(loaded)
    out.result(shown.plus(Verbatim(f"from {origin}"), origin=origin))


def _loaded(name_or_path: str) -> Target | Cam:
    """A target, or a content-addressable memory beside one."""
    return load_cam(name_or_path) if is_cam(name_or_path) else load_target(name_or_path)


@command.command("import", cls=Command)
@click.argument("file", metavar="JSON", type=FilePath("FILE"))
@click.option(
    "-o", "--output", type=FilePath("TOML"), required=True, help="File of the target; its name too."
)
@click.pass_obj
def import_(out: Output, file: Path, output: Path) -> None:
    """Write a target from CrossSim's JSON parameters, or from part of aihwkit's rpu_config.

    A key whose value has no counterpart here is refused by its name; docs/targets.md lists those
    that have one.
    """
    check_output(output, ".toml")
    values, target = import_target(file, output.stem)
    (written,) = replace_texts(output.parent, {output.name: toml_text(values)}, "the target")
    shown = Document("", notes((*target.unmodelled, *target.unconfirmed)))
    out.result(shown.plus(Verbatim(f"wrote {written}"), written=written, target=target.to_json()))


@command.command(cls=Command)
@click.argument("files", metavar="[NAME|FILE]...", nargs=-1)
@click.pass_obj
def check(out: Output, files: tuple[str, ...]) -> None:
    """Check targets (all known ones): the first that is not valid ends with status 2.

    One of a plug-in that is not asked for by its name is left out with a warning. Throughput,
    efficiency and density are recomputed from geometry and the other figures of their operating
    point, and must agree within 2%; so must the energy of a search of a CAM and that of its cells.
    What was solved from the figure that it gives is said to be consistent by construction; a
    derived figure of which the file does not say from what confirms nothing. Retrievals are
    recomputed too. Figures of different conditions are refused.
    """
    valid, compared, lines = {}, {}, []
    every = target_origins() | cam_origins()
    for file, origin in (dict.fromkeys(files, OWN) or every).items():
        with unless_broken(f'target "{file}"', origin):
            target = _loaded(file)
            found = recomputed(target, file)
            valid[file] = target.name
            compared[file] = [vars(one) for one in found]
            lines.append(f'{file}: a valid target, "{target.name}"')
            lines += [f"  {one.sentence()}" for one in found]
    shown = Document("", tuple(map(Verbatim, lines)))
    out.result(shown.plus(valid=valid, compared=compared))
