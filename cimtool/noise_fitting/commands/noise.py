"""Fit a noise model to measurements of devices."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from cimtool.base.files import check_output, replace_texts
from cimtool.cli.group import Command, FilePath, Group
from cimtool.cli.output import Output
from cimtool.noise_fitting.fit import fit_noise
from cimtool.report.document import Document, Sentence, Verbatim
from cimtool.report.formats import four_digits
from cimtool.report.table import Column, make_table


@click.group(cls=Group)
def command() -> None:
    """Fit a noise model to measurements of devices."""


@command.command(cls=Command)
@click.argument("data", metavar="CSV", type=FilePath("FILE"))
@click.option(
    "-o", "--output", type=FilePath("TOML"), default=Path("noise.toml"), help="File of the model."
)
@click.pass_obj
def fit(out: Output, data: Path, output: Path) -> None:
    """Fit programming error, drift and read noise, with joint 95% intervals.

    CSV has the columns device, target, seconds, conductance: one line per reading, in uS and
    seconds after programming. Each device is read once at each of the same times (one, or three
    and more). For column sums the columns are target, rows, columns, mean, deviation; they give
    only the programming error. Use the file that it writes with --noise-model.
    """
    check_output(output, ".toml")
    found = fit_noise(data)
    found.model  # noqa: B018  what is written must be a noise model
    (written,) = replace_texts(output.parent, {output.name: found.text()}, "the noise model")
    parameters = [{"key": one.key, **asdict(one)} for one in found.parameters]
    columns = (Column("key"), Column("value", four_digits), Column("from, to"))
    rows = [(one.key, one.value, f"{one.low:.4g} to {one.high:.4g}") for one in found.parameters]
    targets = f"{len(found.targets)} targets up to {found.g_max:g} uS"
    told = f"{found.measurements:,} measurements of {targets}"
    values = {**asdict(found), "parameters": parameters, "written": written}
    shown = Document(told, (make_table("", columns, rows).named("", "verdict"),), lambda: values)
    out.result(shown.plus(*map(Sentence, found.notes), Verbatim(f"wrote {written}")))
