"""Label pairs with the probability that the polynomial is fitted to."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from cimtool import api
from cimtool.cli.group import INTEGER, NUMBER, Command, OneOf
from cimtool.cli.options import NPZ, embeddings_option, model_options
from cimtool.cli.output import Output


@click.command(cls=Command)
@model_options("projectors", "layer_map", required=False)
@embeddings_option("--data", "Embeddings to draw pairs from", required=False)
@click.option(
    "--gaussians",
    type=NPZ,
    help="Instead of --data: text_mu, text_logvar, video_... (or image_...)",
)
@click.option("--pairs", type=INTEGER, default=300_000, help="Pairs drawn.")
@click.option("--matched", type=NUMBER, default=0.9, help="Share of right pairs.")
@click.option("--labels", type=OneOf(["mc", "exact"]), default="exact")
@click.option("--samples", type=INTEGER, metavar="K", help="Monte Carlo samples a side (10).")
@click.option(
    "--a",
    type=NUMBER,
    metavar="X",
    help="a of sigmoid(b - a D) [default: the model's].",
)
@click.option("--b", type=NUMBER, metavar="X", help="b of sigmoid(b - a D) [default: the model's].")
@click.option("--seed", type=INTEGER, default=0, help="Seed of pairs and samples.")
@click.option("-o", "--output", type=NPZ, default="teacher.npz", help="File of the teacher.")
@click.pass_obj
def command(out: Output, /, output: Path, **options: Any) -> None:
    """Label pairs with the probability that the polynomial is fitted to.

    Pairs come from a checkpoint run on embeddings, or from means and log-variances. Labels are
    log-probabilities, by Monte Carlo or exact, and never clipped. a and b belong to the model: they
    come with its checkpoint, or with --a and --b.
    """
    made = api.teacher(output=output, say=out.say, **options)
    out.result(made.document().wrote([output], f"cimtool fit {shlex.quote(str(output))}"))
