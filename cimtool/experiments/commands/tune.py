"""Choose the bits of each layer at the lowest cost within a budget."""

from __future__ import annotations

from typing import Any

import click

from cimtool import api
from cimtool.cli.group import Command, OneOf
from cimtool.cli.options import (
    FILE,
    TOML,
    embeddings_option,
    model_options,
    qrels_option,
    seen_rows_option,
    settings_options,
)
from cimtool.cli.output import Output
from cimtool.cli.values import parse_grid, parse_limits
from cimtool.experiments.tuning.render import tuned_text
from cimtool.experiments.tuning.run import VARIED
from cimtool.experiments.tuning.widths import ORDER


@click.command(cls=Command)
@model_options()
@embeddings_option("--calibration", "Embeddings that decide the ranges")
@embeddings_option("--data", "Embeddings whose queries choose (one half) and hold (the other)")
@qrels_option
@click.option("--target", metavar="NAME|FILE", required=True, help="The hardware.")
@click.option(
    "--budget",
    metavar="METRIC=VALUE",
    multiple=True,
    required=True,
    help="Largest error of the compiled model; repeat for more metrics.",
)
@click.option(
    "--cost",
    type=OneOf(list(ORDER)),
    default="arrays",
    help="Cost to lower: arrays (then conversions), conversions (then arrays) or energy.",
)
@click.option(
    "--grid",
    metavar="KEY=VALUE,...",
    multiple=True,
    help=f"Values of {', '.join(VARIED)} to start from; repeat for all combinations.",
)
@click.option("--settings", type=FILE, help="Settings to start from (TOML).")
@settings_options
@seen_rows_option("allow", "drop")
@click.option("-o", "--output", type=TOML, help="File of the settings.")
@click.pass_obj
def command(out: Output, /, budget: tuple[str, ...], grid: tuple[str, ...], **options: Any) -> None:
    """Choose the bits of each layer at the lowest cost within a budget.

    Starts from the bits of target and settings and takes off where the error grows least for what
    is saved, each choice compiled and checked on half of the queries of --data. Steps that do not
    hold on the other half and on all are taken back. With --grid this is done from each combination
    of its values, and the cheapest is chosen. The file is for compile --settings; verify
    measures what is said of all queries. Metrics: logit_rmse, centred_rmse,
    top1_agreement_loss, and the losses of retrieval in the worse direction, shares as fractions:
    r1_loss, and so for r5, r10, median_rank, mean_rank, map, map_r, map50, ndcg10, cosine_gap.
    """
    values = parse_grid(grid, "adc_bits=5,6,8")
    found = api.tune(budget=parse_limits("budget", budget), grid=values, say=out.say, **options)
    out.result(found.to_json(), tuned_text(found))
