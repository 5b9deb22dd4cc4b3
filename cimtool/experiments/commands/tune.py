"""Choose bits of layers and features at the lowest cost within a budget."""

from __future__ import annotations

from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.experiments import api
from cimtool.experiments.options import TuneOptions


@record_command(TuneOptions)
def command(out: Output, options: TuneOptions) -> None:
    """Choose bits of layers and features at the lowest cost within a budget.

    Starts from the bits of target and settings and removes bits where the error grows least for
    the saving: of layers, of mu and of the variance. Bits that cannot save 0.1% stay. Each choice
    is compiled and checked on half of the queries of --data. Steps that break the budget on the
    other half or on all queries are taken back. With --grid it starts from each combination of the
    values and takes the cheapest result. Measured choices are kept in the folder of --folder, so
    the same command continues where it was stopped. Use the file with compile --settings; verify
    measures the same errors on all queries. Metrics: {limits}.
    """
    out.result(api.tune(**vars(options), say=out.say).of_this_run())
