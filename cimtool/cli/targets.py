"""`cimtool targets`: the hardware that can be compiled for."""

from __future__ import annotations

from dataclasses import asdict

import click

from cimtool.cli.group import Command, Group
from cimtool.cli.output import Output
from cimtool.costs.published import check_published
from cimtool.hardware.describe import describe
from cimtool.hardware.target import load_target, target_names


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
@click.argument("files", metavar="[NAME|FILE]...", nargs=-1)
@click.pass_obj
def check(out: Output, files: tuple[str, ...]) -> None:
    """Check targets (all shipped ones): the first that is not valid ends with status 2.

    Throughput, efficiency and density are recomputed from geometry and the other figures of their
    operating point, and must agree within 2%. Figures of different conditions are refused.
    """
    valid, compared, lines = {}, {}, []
    for file in files or target_names():
        target = load_target(file)
        found = check_published(target, file)
        valid[file] = target.name
        compared[file] = [asdict(one) for one in found]
        lines.append(f'{file}: a valid target, "{target.name}"')
        lines += [f"  {one.sentence()}" for one in found]
    out.result({"valid": valid, "compared": compared}, "\n".join(lines))
