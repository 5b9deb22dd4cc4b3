"""Choose the bits of each layer at the lowest cost within a budget."""

from __future__ import annotations

from cimtool import api
from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.experiments.options import TuneOptions
from cimtool.experiments.tuning.render import tuned_text


@record_command(TuneOptions)
def command(out: Output, options: TuneOptions) -> None:
    """Choose the bits of each layer at the lowest cost within a budget.

    Starts from the bits of target and settings and takes off where the error grows least for what
    is saved, each choice compiled and checked on half of the queries of --data. Steps that do not
    hold on the other half and on all are taken back. With --grid this is done from each combination
    of its values, and the cheapest is chosen. The file is for compile --settings; verify
    measures what is said of all queries. Metrics: logit_rmse, centred_rmse,
    top1_agreement_loss, and the losses of retrieval in the worse direction, shares as fractions:
    r1_loss, and so for r5, r10, median_rank, mean_rank, map, map_r, map50, ndcg10, cosine_gap.
    """
    found = api.tune(**vars(options), say=out.say)
    out.result(found.to_json(), tuned_text(found))
