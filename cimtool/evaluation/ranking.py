"""What each query finds: ranks, average precisions and cosine gaps, by pairs or by labels.

A score matrix [n, m] is held once; queries are looked at one by one, so that nothing else grows
with n x m.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.loading.embeddings import Embeddings
from cimtool.reference.metrics import class_cosine_gaps, cosine_gaps
from cimtool.reference.precision import average_precision, hit_positions
from cimtool.reference.queries import FEW_BEST, Queries, retrieved
from cimtool.verification.drift import Truth, truth_of

COLUMNS = 128
"""Videos whose scores are copied at a time, to lie side by side in memory."""


def check_truth(data: Embeddings, leave_one_out: bool) -> None:
    """Raise CimError unless `data` says what is right for each query."""
    if not leave_one_out:
        _ = data.right  # raises where pairs are not known
        return
    if len(data.text) != len(data.video):
        raise ArgumentError(
            "{}: {} texts and {} videos; expected as many of both with {leave_one_out}, where row "
            "i of both is one item",
            data.file,
            len(data.text),
            len(data.video),
        )
    if data.labels is None:
        raise CimError(
            f"{data.file}: labels is missing, the class of each item; expected it, for an item "
            "does not find itself"
        )
    classes = len(np.unique(data.labels))
    if classes == 1:
        raise CimError(
            f"{data.file}: the label of every item is {data.labels[0]}; expected two classes or "
            "more"
        )
    if classes == len(data.labels):
        raise CimError(
            f"{data.file}: no two items share a label; expected classes of several items, for an "
            "item does not find itself"
        )


def found_by_pairs(scores: Array, text: Array, video: Array, data: Embeddings) -> Queries:
    """What queries find where `text_to_video` says what is right; precisions are by label.

    `scores` [n, m] are of all pairs, `text` [n, d] and `video` [m, d] the means. A video that is
    right for no text is no query, and has no label.
    """
    truth = truth_of(data.right, data.labels, len(data.video))
    found = retrieved(scores, truth.text_to_video)
    found.text["gap"] = cosine_gaps(text, video, truth.text_to_video)
    return found.merged(_by_label(scores, truth))


def _by_label(scores: Array, truth: Truth) -> Queries:
    if truth.text_labels is None or truth.video_labels is None or truth.labelled is None:
        return Queries()
    known, labels = np.flatnonzero(truth.labelled), truth.video_labels[truth.labelled]
    of_text = _ranked(
        (row[known] for row in scores), (labels == label for label in truth.text_labels)
    )
    columns = (row for row, said in zip(_columns(scores), truth.labelled, strict=True) if said)
    of_video = _ranked(columns, (truth.text_labels == label for label in labels))
    back = {}
    for name, values in of_video.items():
        back[name] = np.full(scores.shape[1], np.nan)
        back[name][known] = values
    return Queries(_precisions(of_text), _precisions(back))


def _precisions(values: dict[str, FloatArray]) -> dict[str, FloatArray]:
    return {name: own for name, own in values.items() if name != "rank"}


def found_by_label(scores: Array, text: Array, video: Array, labels: IntArray) -> Queries:
    """What items [n] find among the others [n], all of the same class being right.

    `rank` is that of the best right one, NaN for an item that is alone in its class.
    """
    found = Queries(
        _ranked(_others(scores), _same_class(labels)),
        _ranked(_others(_columns(scores)), _same_class(labels)),
    )
    found.text["gap"] = class_cosine_gaps(text, video, labels)
    return found


def _others(rows: Iterable[Array]) -> Iterator[Array]:
    """Each row without its own item."""
    return (np.delete(row, i) for i, row in enumerate(rows))


def _same_class(labels: IntArray) -> Iterator[BoolArray]:
    """Which of the others are of each item's class."""
    return (np.delete(labels, i) == label for i, label in enumerate(labels))


def _columns(scores: Array) -> Iterator[Array]:
    """The scores of each video, [n]."""
    for start in range(0, scores.shape[1], COLUMNS):
        yield from np.ascontiguousarray(scores[:, start : start + COLUMNS].T)


def _ranked(rows: Iterable[Array], relevant: Iterable[BoolArray]) -> dict[str, FloatArray]:
    """`rank` of the best right item, `precision` and `precision50` of each query."""
    found = []
    for row, right in zip(rows, relevant, strict=True):
        positions = hit_positions(row, right)
        best = positions[0] if len(positions) else np.nan
        found.append((best, average_precision(positions), average_precision(positions, FEW_BEST)))
    columns = np.array(found, np.float64).T
    return dict(zip(("rank", "precision", "precision50"), columns, strict=True))
