"""`cimtool targets`: the hardware that can be compiled for."""

from __future__ import annotations

import click

from cimtool.cli.group import Command, Group
from cimtool.cli.output import Output
from cimtool.hardware.target import describe, load_target, target_names


@click.group(cls=Group)
def command() -> None:
    """List, show and check hardware targets."""


@command.command("list", cls=Command)
@click.pass_obj
def list_(out: Output) -> None:
    """List the targets that come with cimtool."""
    targets = [load_target(name) for name in target_names()]
    rows = [{"name": one.name, "class": one.class_, "title": one.title} for one in targets]
    width = max(len(one.name) for one in targets)
    lines = [f"{one.name:<{width}}  {one.class_:<9}  {one.title}" for one in targets]
    out.result({"targets": rows}, "\n".join(lines))


@command.command(cls=Command)
@click.argument("target", metavar="NAME|FILE")
@click.pass_obj
def show(out: Output, target: str) -> None:
    """Show every value of a target, and every figure with its source."""
    loaded = load_target(target)
    out.result(loaded.to_json(), describe(loaded))


@command.command(cls=Command)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.pass_obj
def check(out: Output, files: tuple[str, ...]) -> None:
    """Check target files: the first that is not valid ends with status 2."""
    names = {file: load_target(file).name for file in files}
    lines = [f'{file}: a valid target, "{name}"' for file, name in names.items()]
    out.result({"valid": names}, "\n".join(lines))
