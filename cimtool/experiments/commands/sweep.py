"""Compile for every point of a grid, and say what each drifts and costs."""

from __future__ import annotations

from typing import Any

import click

from cimtool import api
from cimtool.cli.group import NUMBER, AtLeast, Command, OneOf
from cimtool.cli.options import (
    DIR,
    FILE,
    dask_option,
    embeddings_option,
    model_options,
    qrels_option,
    seen_rows_option,
)
from cimtool.cli.output import Output
from cimtool.cli.values import parse_grid, parse_limits
from cimtool.experiments.sweeps.render import sweep_text
from cimtool.experiments.sweeps.results import Sweep
from cimtool.experiments.sweeps.run import PointsFailed


@click.command(cls=Command)
@model_options()
@embeddings_option("--calibration", "Embeddings that decide the ranges")
@embeddings_option("--data", "Embeddings to measure on")
@qrels_option
@click.option(
    "--grid",
    metavar="KEY=V,V,V",
    multiple=True,
    required=True,
    help="Values of a setting, of target, of target.KEY, of head, degree or samples; may repeat.",
)
@click.option("--target", metavar="NAME|FILE", help="The hardware, if it is not in the grid.")
@click.option("--settings", type=FILE, help="Settings of all points (TOML).")
@click.option("--teacher", type=FILE, help="Labels that --grid degree=... fits.")
@click.option("--trials", type=AtLeast(1), metavar="N", help="Dies drawn for each point.")
@click.option("--noise-model", metavar="NAME|TOML", help="A noise model in place of the targets'.")
@click.option("--time", "times", metavar="TIME", multiple=True, help="Times after programming.")
@click.option("--corner", "corners", metavar="NAME", multiple=True, help="Corners of the noise.")
@click.option("--seed", type=AtLeast(0), default=0, help="Seed of the dies.")
@click.option("--budget", metavar="METRIC=VALUE", multiple=True, help="Limits of the choice.")
@click.option("--min-yield", type=NUMBER, metavar="X", help="Share of dies within the --budget.")
@click.option("--jobs", type=AtLeast(1), metavar="N", help="Processes on this machine (1).")
@dask_option("Scheduler of a Dask cluster, instead of --jobs.")
@click.option(
    "--format",
    "table",
    type=OneOf(["csv", "parquet"]),
    default="csv",
    help="Format of the table of points.",
)
@seen_rows_option("allow", "drop")
@click.option("-o", "--output", type=DIR, help="Folder of results and points.")
@click.pass_obj
def command(
    out: Output,
    /,
    grid: tuple[str, ...],
    budget: tuple[str, ...],
    jobs: int | None,
    dask: str | None,
    **options: Any,
) -> None:
    """Compile for every point of a grid, and say what each drifts and costs.

    Finished points are kept in DIR (exports/<model>.sweep), so the same command goes on where it
    was stopped. Ends with status 1 where points failed or none is within the --budget: logit_rmse,
    centred_rmse, top1_agreement_loss, and the losses of retrieval in the worse direction, shares as
    fractions: r1_loss, and so for r5, r10, median_rank, mean_rank, map, map_r, map50, ndcg10,
    cosine_gap.
    """
    if jobs is not None and dask is not None:
        raise click.UsageError("--jobs and --dask are both given; expected one of them")
    try:
        found = api.sweep(
            grid=parse_grid(grid),
            budget=parse_limits("budget", budget),
            jobs=jobs or 1,
            dask=dask,
            say=out.say,
            **options,
        )
    except PointsFailed as failed:
        out.result(_values(failed.sweep), sweep_text(failed.sweep))
        raise
    out.result(_values(found), sweep_text(found))


def _values(found: Sweep) -> dict[str, Any]:
    counts = {"resumed": found.resumed, "failed": found.failed}
    return {**found.to_json(), **counts, "written": list(found.written)}
