"""Choose the bits of each layer at the lowest cost within a budget."""

from __future__ import annotations

from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.experiments import api
from cimtool.experiments.options import TuneOptions
from cimtool.experiments.render_tuned import tuned_text
from cimtool.report.document import Document, Verbatim


@record_command(TuneOptions)
def command(out: Output, options: TuneOptions) -> None:
    """Choose the bits of each layer at the lowest cost within a budget.

    Starts from the bits of target and settings and takes off where the error grows least for what
    is saved, each choice compiled and checked on half of the queries of --data. Steps that do not
    hold on the other half and on all are taken back. With --grid this is done from each combination
    of its values, and the cheapest is chosen. The file is for compile --settings; verify
    measures what is said of all queries. Metrics: {limits}.
    """
    found = api.tune(**vars(options), say=out.say)
    out.result(Document("", (Verbatim(tuned_text(found)),), found.to_json))
