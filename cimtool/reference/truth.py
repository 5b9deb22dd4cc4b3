"""The right items of each query, and the ranking of every query of a score matrix.

Right is the item of a pair, or all items with a class in common; among items of one modality an
item does not find itself. By label, queries are looked at one by one, so that nothing but the
scores grows with n x m. Matrices are [n, m], texts down and videos across.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.reference.classes import Classes, alike, alike_counts, alike_pairs, any_alike
from cimtool.reference.metrics import (
    average_precision,
    best_ranks,
    class_cosine_gaps,
    cosine_gaps,
    discounted_gain,
    hit_positions,
    ranks,
)
from cimtool.reference.queries import Queries, once

BY_CLASS: dict[str, Callable[[IntArray], float]] = {
    "precision": average_precision,
    "precision_r": lambda positions: average_precision(positions, len(positions)),
    "precision50": lambda positions: average_precision(positions, 50),
    "ndcg10": lambda positions: discounted_gain(positions, 10),
}
"""Measures of a query from the positions of all of its right items, best first, by name."""

COLUMNS = 128
"""Videos whose scores are copied at a time, to lie side by side in memory."""


@dataclass(frozen=True, eq=False)
class Truth:
    """The right items of each of the texts [n] and of the `videos`.

    `text_to_video` [n] is the right video of each text; `labels` are the classes of texts [n] and
    videos [m], or of several an item, [n, C] and [m, C]; None where not known. A video that is
    right for no text has no class, whatever `labels` hold of it. With `leave_one_out` row i of both
    is one item, which does not find itself: right are the others of its class, and nothing is where
    classes are not known.
    """

    text_to_video: IntArray
    videos: int
    labels: tuple[Classes, Classes] | None = None
    leave_one_out: bool = False

    @property
    def ranks(self) -> bool:
        """True where some query has something right to find."""
        return not self.leave_one_out or self.labels is not None

    def right_pairs(self, rows: slice = slice(None)) -> BoolArray:
        """Tell which videos are right for the texts of `rows`, [rows, m]."""
        own = self.text_to_video[rows, None]
        if not self.leave_one_out:
            pairs: BoolArray = own == np.arange(self.videos)
            return pairs
        if self.labels is None:
            return np.zeros((len(own), self.videos), bool)
        text, video = self.labels
        return alike_pairs(text[rows], video) & ~self.itself(rows)

    def itself(self, rows: slice = slice(None)) -> BoolArray:
        """Tell which videos are the very items of the texts of `rows`, left out, [rows, m]."""
        own = self.text_to_video[rows, None]
        if not self.leave_one_out:
            return np.zeros((len(own), self.videos), bool)
        found: BoolArray = own == np.arange(self.videos)
        return found

    @property
    def rivals(self) -> tuple[IntArray, IntArray]:
        """The number of wrong items of each text [n] and of each video [m]."""
        texts, right = len(self.text_to_video), self.text_to_video
        if not self.leave_one_out:
            return np.full(texts, self.videos - 1), texts - np.bincount(
                right, minlength=self.videos
            )
        if self.labels is None:
            return (np.zeros(texts, np.int64),) * 2
        return (texts - 1 - alike_counts(self.labels[0]),) * 2

    def cosine_gaps(self, text: Array, video: Array) -> FloatArray | None:
        """The cosine gap of each text from means [n, d] and [m, d]; None where nothing is wrong."""
        if self.leave_one_out:
            return None if self.labels is None else class_cosine_gaps(text, video, self.labels[0])
        return cosine_gaps(text, video, self.text_to_video) if self.videos > 1 else None


def truth_of(text_to_video: IntArray, labels: Classes | None, videos: int) -> Truth:
    """Give each video the classes of its texts; no labels at all where two of its texts differ."""
    if labels is None:
        return Truth(text_to_video, videos)
    of_video = np.zeros((videos, *labels.shape[1:]), labels.dtype)
    of_video[text_to_video] = labels
    if not np.array_equal(of_video[text_to_video], labels):
        return Truth(text_to_video, videos)
    return Truth(text_to_video, videos, (labels, of_video))


def truth_among_others(items: int, labels: Classes | None) -> Truth:
    """Right for each of `items` are the others of its class; labels that no two share are none."""
    if labels is not None and not any_alike(labels):
        labels = None
    return Truth(np.arange(items), items, None if labels is None else (labels, labels), True)


def retrieved(scores: Array, truth: Truth) -> Queries:
    """Rank every query of `scores` [n, m]; nothing where nothing is right.

    `rank` is that of the best right item of the pair, NaN for a query that has none, and those of
    BY_CLASS are of all right items: those of the class where classes are known.
    """
    if truth.leave_one_out:
        return Queries() if truth.labels is None else queries_among_others(scores, truth.labels[0])
    pairs = _ranked_pairs(scores, truth)
    return (
        pairs
        if truth.labels is None
        else pairs.merged(_ranked_classes(scores, *truth.labels, truth))
    )


def _ranked_pairs(scores: Array, truth: Truth) -> Queries:
    """Rank by `text_to_video`; most queries have one right item, whose rank says it all."""
    right = truth.text_to_video
    text = _of_one(ranks(scores, right).astype(np.float64))
    video = _of_one(best_ranks(scores, right))
    several = np.flatnonzero(np.bincount(right, minlength=truth.videos) > 1)
    found = ranked(columns(scores, several), (right == one for one in several))
    for name, values in found.items():
        video[name][several] = values
    return Queries(text, video)


def _of_one(rank: FloatArray) -> dict[str, FloatArray]:
    """The same as `ranked` returns, where the ranks [n] are those of the only right items."""
    known = ~np.isnan(rank)
    found = {"rank": rank}
    for name, measure in BY_CLASS.items():
        by_rank, at = np.unique(rank[known], return_inverse=True)
        values = np.array([measure(np.array([one])) for one in by_rank])
        found[name] = np.full(len(rank), np.nan)
        found[name][known] = values[at.reshape(-1)]
    return found


def _ranked_classes(scores: Array, text: Classes, video: Classes, truth: Truth) -> Queries:
    """Those of BY_CLASS for each query; a video without a text is neither found nor a query."""
    known = np.unique(truth.text_to_video)
    shown = video[known]
    of_text = ranked((row[known] for row in scores), (alike(label, shown) for label in text))
    of_video = ranked(columns(scores, known), (alike(label, text) for label in shown))
    back = {name: np.full(len(video), np.nan) for name in BY_CLASS}
    for name, values in back.items():
        values[known] = of_video[name]
    return Queries({name: of_text[name] for name in BY_CLASS}, back)


def queries_among_others(scores: Array, labels: Classes) -> Queries:
    """Rank items [n] as queries among the others in `scores` [n, n].

    `rank` is that of the best right one, NaN for an item that is alone in its class.
    """
    sides = (scores, columns(scores, np.arange(len(labels))))
    text, video = (
        ranked(
            (np.delete(row, i) for i, row in enumerate(rows)),
            (np.delete(alike(label, labels), i) for i, label in enumerate(labels)),
        )
        for rows in sides
    )
    return Queries(text, video)


def columns(scores: Array, videos: IntArray) -> Iterator[Array]:
    """Yield the scores [n] of each of `videos`."""
    for start in range(0, len(videos), COLUMNS):
        yield from np.ascontiguousarray(scores[:, videos[start : start + COLUMNS]].T)


def ranked(rows: Iterable[Array], relevant: Iterable[BoolArray]) -> dict[str, FloatArray]:
    """Return `rank` of the best right item, and those of BY_CLASS, of each query."""
    found = []
    for row, right in zip(rows, relevant, strict=True):
        positions = hit_positions(row, right)
        best = positions[0] if len(positions) else np.nan
        found.append((best, *(measure(positions) for measure in BY_CLASS.values())))
    values = np.array(found, np.float64).reshape(len(found), 1 + len(BY_CLASS)).T
    return dict(zip(("rank", *BY_CLASS), values, strict=True))


def retrieval(scores: Array, truth: Truth) -> dict[str, float]:
    """The metrics of `scores` [n, m] by name."""
    return once(retrieved(scores, truth))
