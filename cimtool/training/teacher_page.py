"""A teacher as it is shown: its labels, and the statistics of its pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cimtool.base.arrays import Array
from cimtool.report.document import Document, Sentence
from cimtool.report.formats import number, whole
from cimtool.report.table import Column, Table, make_table
from cimtool.training.fit import pair_groups
from cimtool.training.teacher_file import Teacher

MADE = {"mc": "Monte Carlo labels, K = {},", "exact": "exact labels"}
"""The words for kinds of labels."""


def document(teacher: Teacher) -> Document:
    """The labels, where their pairs come from, and their ranges."""
    labels, matched = teacher.labels, teacher.matched
    error = labels.standard_error
    noise = None if error is None else float(np.sqrt(np.mean(np.square(error))))
    share = "" if matched is None else f", {np.mean(matched):.1%} of them right ones"
    how = MADE.get(teacher.kind or "", "labels of a kind that is not known").format(teacher.K)
    if teacher.a is not None and teacher.b is not None:
        how += f" of sigmoid(b - a D) with a = {teacher.a:g}, b = {teacher.b:g} ({teacher.origin})"
    said = []
    if teacher.trained is not None:
        rows = teacher.trained.said(teacher.called)
        said.append(f"the model was trained on {rows} that pairs are drawn from")
    if teacher.kind == "mc":
        said.append(f"standard error of a label: {noise:.3g} (root mean square)")
    ranges = {"ed": labels.ed, "vd": labels.vd, "logit": labels.logit}
    values = {
        "pairs": len(teacher),
        "matched": None if matched is None else float(np.mean(matched)),
        "labels": teacher.kind,
        "K": teacher.K,
        "a": teacher.a,
        "b": teacher.b,
        "origin": teacher.origin,
        "seed": teacher.seed,
        "divisors": {"ed": teacher.scale_ed, "vd": teacher.scale_vd},
        "ranges": {name: [x.min(), x.max()] for name, x in ranges.items()},
        "standard_error": noise,
        "model": teacher.model,
        "trained": None if teacher.trained is None else vars(teacher.trained),
    }
    return Document(
        f"{len(teacher):,} pairs{share}; {how}",
        (
            _pairs(teacher).named("pairs"),
            *map(Sentence, said),
        ),
        lambda: values,
    )


def _pairs(teacher: Teacher) -> Table:
    """The ends and means of statistics and labels: of all pairs, matched and other ones."""
    labels = teacher.labels
    values = {"ed": labels.ed, "vd": labels.vd, "logit": labels.logit}
    ends: dict[str, Callable[[Array], float]] = {"least": np.min, "mean": np.mean, "most": np.max}
    columns = [Column("group"), Column("pairs", whole)]
    columns += [Column(f"{end} {name}", number) for name in values for end in ends]
    rows = [
        (group, mask.sum(), *(of(all_[mask]) for all_ in values.values() for of in ends.values()))
        for group, mask in pair_groups(len(teacher), teacher.matched).items()
    ]
    return make_table("Statistics and labels", columns, rows)
