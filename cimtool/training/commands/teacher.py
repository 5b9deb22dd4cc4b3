"""Label pairs with the probability that the polynomial is fitted to."""

from __future__ import annotations

import shlex
from pathlib import Path

from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.training import api
from cimtool.training.arguments import TeacherOptions


@record_command(TeacherOptions, defaults={"output": Path("teacher.npz")})
def command(out: Output, options: TeacherOptions) -> None:
    """Label pairs with the probability that the polynomial is fitted to.

    Pairs come from a checkpoint run on embeddings, from random weights, or from means and
    log-variances. Labels are log-probabilities, by Monte Carlo or exact, and never clipped. a and b
    belong to the model: they come with its checkpoint, or with --a and --b.
    """
    made, output = api.teacher(**vars(options), say=out.say), Path(options.output or "")
    out.result(made.document().wrote([output], f"cimtool fit {shlex.quote(str(output))}"))
