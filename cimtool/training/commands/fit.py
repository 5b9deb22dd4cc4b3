"""Fit the polynomial to a teacher's labels."""

from __future__ import annotations

import shlex
from pathlib import Path

from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.report.document import Sentence
from cimtool.training import api
from cimtool.training.fit import FitOptions, report_names


@record_command(FitOptions, defaults={"output": Path("poly.json")})
def command(out: Output, options: FitOptions) -> None:
    """Fit the polynomial to a teacher's labels.

    A tenth of the pairs is held out to check the fit. The report, <name>.fit.html and .json, has
    a table of the degrees, csd and -ed. With --projectors and --data the table has R@1, of raw
    embeddings too if widths agree. Layout two-branch divides ed by d and vd by d^2; the teacher
    says so, or --scale-ed and --scale-vd do.
    """
    found = api.fit(**vars(options), say=out.say)
    output = Path(options.output or "")
    folder = Path(options.report or output.parent)
    written = [output, *(folder / name for name in report_names(output))]
    shown = found.document()
    if found.comparison.items is None:
        shown = shown.plus(Sentence("R@1 needs --projectors, and --data that they have not seen."))
    next_ = f"cimtool compile --projectors FILE --poly {shlex.quote(str(output))}"
    out.result(shown.wrote(written, f"{next_} --calibration NPZ --target NAME"))
