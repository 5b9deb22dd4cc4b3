"""Fit the polynomial to a teacher's labels."""

from __future__ import annotations

import shlex
from pathlib import Path

from cimtool import api
from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.report.terminal import table_text
from cimtool.training.degrees_table import advice, degree_table, raw_sentence
from cimtool.training.fit_page import (
    FitOptions,
    error_table,
    facts,
    fit_headline,
    fit_values,
    report_names,
)


@record_command(FitOptions, defaults={"output": Path("poly.json")})
def command(out: Output, options: FitOptions) -> None:
    """Fit the polynomial to a teacher's labels.

    A tenth of the pairs is held out to check it; the report is <name>.fit.html and .json, with a
    table of the degrees, of csd and of -ed; with --projectors and --data R@1 is in it, of raw
    embeddings too where widths agree. Layout
    two-branch divides ed by d and vd by d^2: its teacher says so, or --scale-ed and --scale-vd do.
    """
    found = api.fit(**vars(options), say=out.say)
    output = Path(options.output or "")
    folder = Path(options.report or output.parent)
    written = [output, *(folder / name for name in report_names(output))]
    lines = [*filter(None, [raw_sentence(found.comparison)]), fit_headline(found), ""]
    lines += [table_text(error_table(found)), ""]
    lines += [advice(found.comparison, found.form, found.asked), ""]
    table = degree_table(found.comparison, found.form)
    lines += [table_text(table, out.width), "", *table.footnotes]
    if found.comparison.items is None:
        lines.append("R@1 takes --projectors, and --data that they have not seen.")
    lines.append("")
    lines += [f"{name}: {value}" for name, value in facts(found)]
    lines += ["", *(f"* {note}" for note in found.notes), f"wrote {', '.join(map(str, written))}"]
    next_ = f"cimtool compile --projectors FILE --poly {shlex.quote(str(output))}"
    lines.append(f"next: {next_} --calibration NPZ --target NAME")
    out.result({**fit_values(found), "written": written}, "\n".join(lines))
