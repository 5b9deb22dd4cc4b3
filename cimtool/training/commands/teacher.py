"""Label pairs with the probability that the polynomial is fitted to."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import numpy as np

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
    labels, error = made.labels, made.labels.standard_error
    noise = None if error is None else float(np.sqrt(np.mean(np.square(error))))
    matched = None if made.matched is None else float(np.mean(made.matched))
    ranges = {"ed": labels.ed, "vd": labels.vd, "logit": labels.logit}
    values = {
        "pairs": len(made),
        "matched": matched,
        "labels": made.kind,
        "K": made.K,
        "a": made.a,
        "b": made.b,
        "origin": made.origin,
        "seed": made.seed,
        "divisors": {"ed": made.scale_ed, "vd": made.scale_vd},
        "ranges": {name: [x.min(), x.max()] for name, x in ranges.items()},
        "standard_error": noise,
        "model": made.model,
        "trained": None if made.trained is None else vars(made.trained),
        "written": [output],
    }
    how = "exact labels" if made.kind == "exact" else f"Monte Carlo labels, K = {made.K},"
    how += f" of sigmoid(b - a D) with a = {made.a:g}, b = {made.b:g} ({made.origin})"
    lines = [f"{len(made):,} pairs, {matched:.1%} of them right ones; {how}", ""]
    lines += [f"{name:5} {x.min():.6g} to {x.max():.6g}" for name, x in ranges.items()]
    if made.trained is not None:
        rows = made.trained.said(made.called)
        lines.append(f"the model was trained on {rows} that pairs are drawn from")
    if made.kind == "mc":
        lines.append(f"standard error of a label: {noise:.3g} (root mean square)")
    next_ = f"next: cimtool fit {shlex.quote(str(output))}"
    out.result(values, "\n".join([*lines, "", f"wrote {output}", next_]))
