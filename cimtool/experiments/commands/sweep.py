"""Compile for every point of a grid, and say what each drifts and costs."""

from __future__ import annotations

from typing import Any

from cimtool import api
from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.experiments.options import SweepOptions
from cimtool.experiments.sweeps.render import sweep_text
from cimtool.experiments.sweeps.results import Sweep
from cimtool.experiments.sweeps.run import PointsFailed


@record_command(SweepOptions)
def command(out: Output, options: SweepOptions) -> None:
    """Compile for every point of a grid, and say what each drifts and costs.

    Finished points are kept in DIR (exports/<model>.sweep), so the same command goes on where it
    was stopped. Ends with status 1 where points failed or none is within the --budget: logit_rmse,
    centred_rmse, top1_agreement_loss, and the losses of retrieval in the worse direction, shares as
    fractions: r1_loss, and so for r5, r10, median_rank, mean_rank, map, map_r, map50, ndcg10,
    cosine_gap.
    """
    try:
        found = api.sweep(**vars(options), say=out.say)
    except PointsFailed as failed:
        out.result(_values(failed.sweep), sweep_text(failed.sweep))
        raise
    out.result(_values(found), sweep_text(found))


def _values(found: Sweep) -> dict[str, Any]:
    counts = {"resumed": found.resumed, "failed": found.failed}
    return {**found.to_json(), **counts, "written": list(found.written)}
