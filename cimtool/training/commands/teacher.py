"""Label pairs with the probability that the polynomial is fitted to."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np

from cimtool import api
from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.training.arguments import TeacherOptions


@record_command(TeacherOptions, defaults={"output": Path("teacher.npz")})
def command(out: Output, options: TeacherOptions) -> None:
    """Label pairs with the probability that the polynomial is fitted to.

    Pairs come from a checkpoint run on embeddings, or from means and log-variances. Labels are
    log-probabilities, by Monte Carlo or exact, and never clipped. a and b belong to the model: they
    come with its checkpoint, or with --a and --b.
    """
    made, output = api.teacher(**vars(options), say=out.say), options.output
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
