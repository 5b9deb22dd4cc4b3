"""Rankings as TREC files: runs `query Q0 item rank score tag`, and qrels `query 0 item grade`.

Both ways, and by classes as well as by pairs where both say what is right: names of the former end
in `classes`, and leave out videos without a text. trec_eval compares scores as float32 and breaks
ties by name. So scores are rounded to float32, and of those that are equal each gets the next
smaller number than the one before: the order is that of the metrics, where ties count against the
query.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.loading.embeddings import Embeddings
from cimtool.reference.measures import WAYS
from cimtool.reference.retrieval import columns, questions
from cimtool.reference.truth import Truth

SIDES = {WAYS[0]: ("text", "video"), WAYS[1]: ("video", "text")}
"""Modalities of queries and of items, by way."""


def _relations(truth: Truth) -> tuple[tuple[str, bool], ...]:
    """The rules by which items are right: endings of names, and if they go by class."""
    if truth.labels is None or truth.leave_one_out:
        return (("", False),)
    return (("", False), (".classes", True))


QRELS = tuple(f"{way}{ending}.qrels" for way in SIDES for ending in ("", ".classes"))
"""The names of files of judgements."""


def write_qrels(folder: Path, data: Embeddings, truth: Truth) -> None:
    """Write WAY.qrels, and WAY.classes.qrels where classes say as well what is right."""
    for ending, by_class in _relations(truth):
        for way, (one, other) in SIDES.items():
            queries, items = data.ids(one), data.ids(other)
            with (folder / f"{way}{ending}.qrels").open("w", encoding="utf-8") as file:
                asked = questions(truth, way, by_class)
                for query, (shown, grades) in zip(*asked, strict=True):
                    right = grades > 0
                    for item, grade in zip(items[shown[right]], grades[right], strict=True):
                        file.write(f"{queries[query]} 0 {item} {int(grade)}\n")


def write_run(folder: Path, tag: str, data: Embeddings, truth: Truth, scores: FloatArray) -> None:
    """Write TAG.WAY.run of scores [n, m], and TAG.WAY.classes.run as with the qrels."""
    tag = re.sub(r"[^A-Za-z0-9_@.+-]+", "-", tag).strip("-.")
    for ending, by_class in _relations(truth):
        for way, (one, other) in SIDES.items():
            names, items = data.ids(one), data.ids(other)
            queries, asked = questions(truth, way, by_class)
            rows = (scores[i] for i in queries) if way == WAYS[0] else columns(scores, queries)
            with (folder / f"{tag}.{way}{ending}.run").open("w", encoding="utf-8") as file:
                for query, row, (shown, grades) in zip(queries, rows, asked, strict=True):
                    order = np.lexsort((grades, -row[shown]))
                    ranked = zip(items[shown[order]], falling(row[shown[order]]), strict=True)
                    file.writelines(
                        f"{names[query]} Q0 {item} {rank} {score:.9g} {tag}\n"
                        for rank, (item, score) in enumerate(ranked, 1)
                    )


def falling(scores: Array) -> Array:
    """Round scores [n] that do not rise to float32, each below the one before it."""
    bits = scores.astype(np.float32).view(np.int32).astype(np.int64)
    # Integers in the order of the numbers, which are of sign and magnitude.
    keys = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    steps = np.arange(len(keys))
    keys = np.minimum.accumulate(keys + steps) - steps
    back = np.where(keys < 0, -keys - 2**31, keys)
    return back.astype(np.int32).view(np.float32)
