"""Fit the polynomial to a teacher's labels."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from cimtool import api
from cimtool.cli.group import INTEGER, NUMBER, Command, Integers, OneOf
from cimtool.cli.options import DIR, FILE, embeddings_option, model_options
from cimtool.cli.output import Output
from cimtool.report.document import Sentence
from cimtool.training.fit_page import report_names


@click.command(cls=Command)
@click.argument("teacher", metavar="TEACHER", type=FILE)
@click.option(
    "--degree",
    type=Integers(),
    default="4",
    help="Degree, 1 to 6; of several, 1,2,3, the lowest that is enough is written.",
)
@click.option("--ed-alone", is_flag=True, help="No term takes vd: one matrix product of six.")
@click.option(
    "--tolerance",
    type=NUMBER,
    metavar="X",
    help="Logits that a lower degree may err more [default: a tenth of what samples scatter].",
)
@model_options("projectors", "layer_map", required=False)
@embeddings_option("--data", "Embeddings of which the table has R@1", required=False)
@click.option("--alpha", type=NUMBER, default=1e-3, help="Ridge penalty, on standardised features.")
@click.option(
    "--target", metavar="NAME|FILE", help="Target by which the table has an item's energy."
)
@click.option(
    "--scale-ed", type=NUMBER, metavar="X", help="Divisor of ed [default: the teacher's]."
)
@click.option(
    "--scale-vd", type=NUMBER, metavar="X", help="Divisor of vd [default: the teacher's]."
)
@click.option("--seed", type=INTEGER, default=0, help="Seed of the held-out pairs.")
@click.option(
    "-o", "--output", type=FILE, default="poly.json", help="File of the polynomial, .json or .pt."
)
@click.option(
    "--pt-keys",
    type=OneOf(["coeff", "c"]),
    help="Keys of a .pt: coeff and bias, or c and b [default: coeff].",
)
@click.option("--report", type=DIR, help="Folder of its report [default: beside it].")
@click.pass_obj
def command(
    out: Output, /, teacher: Path, output: Path, report: Path | None, **options: Any
) -> None:
    """Fit the polynomial to a teacher's labels.

    A tenth of the pairs is held out to check it; the report is <name>.fit.html and .json, with a
    table of the degrees, of csd and of -ed; with --projectors and --data R@1 is in it, of raw
    embeddings too where widths agree. Layout
    two-branch divides ed by d and vd by d^2: its teacher says so, or --scale-ed and --scale-vd do.
    """
    degrees = options.pop("degree")
    options["degree"] = degrees if len(degrees) > 1 else degrees[0]
    found = api.fit(teacher, output=output, report=report, say=out.say, **options)
    written = [output, *((report or output.parent) / name for name in report_names(output))]
    shown = found.document()
    if found.comparison.items is None:
        shown = shown.plus(Sentence("R@1 takes --projectors, and --data that they have not seen."))
    next_ = f"cimtool compile --projectors FILE --poly {shlex.quote(str(output))}"
    out.result(shown.wrote(written, f"{next_} --calibration NPZ --target NAME"))
