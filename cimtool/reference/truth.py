"""The right items of each query, and the ranking of every query of a score matrix.

Right is the item of a pair, all items with a class in common, or what judgements grade above 0;
among items of one modality an item does not find itself. By label or judgement, queries are looked
at one by one, so that nothing but the scores grows with n x m. Matrices are [n, m], texts down and
videos across.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.reference.judgements import (
    Classes,
    Judgements,
    alike,
    alike_counts,
    alike_pairs,
    any_alike,
)
from cimtool.reference.metrics import (
    average_precision,
    best_ranks,
    class_cosine_gaps,
    cosine_gaps,
    discounted_gain,
    graded_hits,
    judged_cosine_gaps,
    ranks,
)
from cimtool.reference.modality_names import TEXT_VIDEO, Modalities, item_names
from cimtool.reference.queries import WAYS, Queries, once

Hits = tuple[IntArray, IntArray | None]
"""Positions of the right items of a query, best first, and their grades if they have any."""

BY_CLASS: dict[str, Callable[[Hits], float]] = {
    "precision": lambda hits: average_precision(hits[0]),
    "precision_r": lambda hits: average_precision(hits[0], len(hits[0])),
    "precision50": lambda hits: average_precision(hits[0], 50),
    "ndcg10": lambda hits: discounted_gain(hits[0], 10, hits[1]),
}
"""Measures of a query from all of its right items, by name."""

RETRIEVED = ("rank", *BY_CLASS)
"""Names of all measurements of a query."""

COLUMNS = 128
"""Videos whose scores are copied at a time, to lie side by side in memory."""


@dataclass(frozen=True, eq=False)
class Truth:
    """The right items of each of the texts [n] and of the `videos`.

    `text_to_video` [n] is the right video of each text; `labels` are the classes of texts [n] and
    videos [m], or of several an item, [n, C] and [m, C]; None if not known. A video that is
    right for no text has no class, even if `labels` hold one. With `leave_one_out` row i of both
    is one item, which does not find itself: right are the others of its class, and nothing is where
    classes are not known. Where pairs are `judged`, right are those alone, and `text_to_video` is
    the best of each text; one without any has a number from `videos` on.
    """

    text_to_video: IntArray
    videos: int
    labels: tuple[Classes, Classes] | None = None
    leave_one_out: bool = False
    judged: Judgements | None = None

    @property
    def ranks(self) -> bool:
        """True if some query has something right to find."""
        return not self.leave_one_out or self.by_class

    @property
    def by_class(self) -> bool:
        """True if all items of a class, or all that are judged so, are right for a query."""
        return self.labels is not None or self.judged is not None

    def right_pairs(self, rows: slice = slice(None)) -> BoolArray:
        """Tell which videos are right for the texts of `rows`, [rows, m]."""
        if self.judged is not None:
            return self.judged.right_pairs(rows, len(self.text_to_video), self.videos)
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
        if self.judged is not None:
            sizes, known = (texts, self.videos), (self.judged.text, self.judged.video)
            counts = [np.bincount(x, minlength=n) for x, n in zip(known, sizes, strict=True)]
            alone = int(self.leave_one_out)
            return self.videos - alone - counts[0], texts - alone - counts[1]
        if not self.leave_one_out:
            return np.full(texts, self.videos - 1), texts - np.bincount(
                right, minlength=self.videos
            )
        if self.labels is None:
            return (np.zeros(texts, np.int64),) * 2
        return (texts - 1 - alike_counts(self.labels[0]),) * 2

    def cosine_gaps(self, text: Array, video: Array) -> FloatArray | None:
        """The cosine gap of each text from means [n, d] and [m, d]; None if nothing is wrong."""
        if self.judged is not None:
            pairs = self.judged.text, self.judged.video
            return judged_cosine_gaps(text, video, pairs, self.leave_one_out)
        if self.leave_one_out:
            return None if self.labels is None else class_cosine_gaps(text, video, self.labels[0])
        return cosine_gaps(text, video, self.text_to_video) if self.videos > 1 else None


def truth_of(text_to_video: IntArray, labels: Classes | None, videos: int) -> Truth:
    """Give each video the classes of its texts; no labels at all if two of its texts differ."""
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


def truth_judged(judged: Judgements, texts: int, videos: int, leave_one_out: bool = False) -> Truth:
    """Right is what has a grade above 0; with `leave_one_out` never an item itself."""
    if leave_one_out:
        return Truth(np.arange(texts), videos, None, True, judged.among_others())
    return Truth(judged.best(texts, videos), videos, None, False, judged)


GradedCandidates = tuple[IntArray, Array]
"""The candidates of a query, and their grades: above 0, or true, for what is right."""


def questions(
    truth: Truth, way: str, by_class: bool
) -> tuple[IntArray, Iterator[GradedCandidates]]:
    """Queries of one way, and the candidates of each with their grades.

    With `by_class` by the classes if they are known. By pairs and by class a video without a
    text is no query, and by class it is no candidate.
    """
    of_text, right = way == WAYS[0], truth.text_to_video
    sizes = (len(right), truth.videos) if of_text else (truth.videos, len(right))
    queries, every = np.arange(sizes[0]), np.arange(sizes[1])
    grades: Iterable[Array]
    if truth.judged is not None:
        grades = (truth.judged if of_text else truth.judged.turned).of_each(*sizes)
    elif truth.labels is not None and truth.leave_one_out:
        own, _ = truth.labels
        grades = (alike(label, own) for label in own)
    elif truth.labels is not None and by_class:
        known = np.unique(right)
        text, shown = truth.labels[0], truth.labels[1][known]
        if of_text:
            every, grades = known, (alike(label, shown) for label in text)
        else:
            queries, grades = known, (alike(label, text) for label in shown)
    elif of_text:
        grades = (every == one for one in right)
    else:
        queries = np.unique(right)
        grades = (right == one for one in queries)
    if not truth.leave_one_out:
        return queries, ((every, one) for one in grades)
    others = ((np.delete(every, i), np.delete(one, i)) for i, one in enumerate(grades))
    return queries, others


def retrieved(scores: Array, truth: Truth) -> Queries:
    """Rank every query of `scores` [n, m]; nothing if nothing is right.

    `rank` is that of the best right item of the pair, NaN for a query that has none, and those of
    BY_CLASS are of all right items: those of the class if classes are known.
    """
    if not truth.ranks:
        return Queries()
    if truth.leave_one_out or truth.judged is not None:
        return Queries(*(_asked(scores, truth, way) for way in WAYS))
    pairs = _ranked_pairs(scores, truth)
    if truth.labels is None:
        return pairs
    text, video = (_asked(scores, truth, way) for way in WAYS)
    for side in (text, video):
        del side["rank"]
    return pairs.merged(Queries(text, video))


def rank_queries(scores: Array, text: Array, video: Array, truth: Truth) -> Queries:
    """Rank queries by `scores` [n, m], with cosine gaps of means `text` [n, d], `video` [m, d]."""
    found, gaps = retrieved(scores, truth), truth.cosine_gaps(text, video)
    if gaps is not None:
        found.text["cosine_gap"] = gaps
    return found


def _asked(scores: Array, truth: Truth, way: str) -> dict[str, FloatArray]:
    """The measurements of `ranked` of the queries of one way, by class if classes are known."""
    queries, asked = questions(truth, way, by_class=True)
    of_text = way == WAYS[0]
    rows = (scores[i] for i in queries) if of_text else columns(scores, queries)
    found = ranked((row[shown], grades) for row, (shown, grades) in zip(rows, asked, strict=True))
    size = scores.shape[0 if of_text else 1]
    if len(queries) == size:
        return found
    whole = {name: np.full(size, np.nan) for name in found}
    for name, values in found.items():
        whole[name][queries] = values
    return whole


def _ranked_pairs(scores: Array, truth: Truth) -> Queries:
    """Rank by `text_to_video`; most queries have one right item, whose rank says it all."""
    right = truth.text_to_video
    text = _of_one(ranks(scores, right).astype(np.float64))
    video = _of_one(best_ranks(scores, right))
    several = np.flatnonzero(np.bincount(right, minlength=truth.videos) > 1)
    found = ranked(zip(columns(scores, several), (right == one for one in several), strict=True))
    for name, values in found.items():
        video[name][several] = values
    return Queries(text, video)


def _of_one(rank: FloatArray) -> dict[str, FloatArray]:
    """The same as `ranked` returns, if the ranks [n] are those of the only right items."""
    known = ~np.isnan(rank)
    found = {"rank": rank} | {name: np.full(len(rank), np.nan) for name in BY_CLASS}
    by_rank, at = np.unique(rank[known], return_inverse=True)
    values = np.array([_at_rank(one) for one in by_rank.tolist()]).reshape(-1, len(BY_CLASS))
    for column, name in enumerate(BY_CLASS):
        found[name][known] = values[at.reshape(-1), column]
    return found


@lru_cache(1 << 16)
def _at_rank(rank: float) -> tuple[float, ...]:
    """The measures of BY_CLASS of a query whose only right item has a rank; stages share most."""
    hits = np.array([rank]), None
    return tuple(measure(hits) for measure in BY_CLASS.values())


def queries_among_others(scores: Array, labels: Classes) -> Queries:
    """Rank items [n] as queries among the others in `scores` [n, n].

    `rank` is that of the best right one, NaN for an item that is alone in its class.
    """
    truth = Truth(np.arange(len(labels)), len(labels), (labels, labels), True)
    return retrieved(scores, truth)


def columns(scores: Array, videos: IntArray) -> Iterator[Array]:
    """Yield the scores [n] of each of `videos`."""
    for start in range(0, len(videos), COLUMNS):
        yield from np.ascontiguousarray(scores[:, videos[start : start + COLUMNS]].T)


def ranked(asked: Iterable[tuple[Array, Array]]) -> dict[str, FloatArray]:
    """Return `rank` of the best right item, and those of BY_CLASS, of queries.

    Each is given by the scores of its candidates and their grades, or yes and no.
    """
    found = []
    for row, grades in asked:
        hits = graded_hits(row, grades)
        best = hits[0][0] if len(hits[0]) else np.nan
        found.append((best, *(measure(hits) for measure in BY_CLASS.values())))
    values = np.array(found, np.float64).reshape(len(found), 1 + len(BY_CLASS)).T
    return dict(zip(RETRIEVED, values, strict=True))


def retrieval(scores: Array, truth: Truth) -> dict[str, float]:
    """The metrics of `scores` [n, m] by name."""
    return once(retrieved(scores, truth))


MOST = 0.5
"""A larger share of queries whose scores are all equal is a warning."""


def all_equal(
    scores: Array, called: Modalities = TEXT_VIDEO, what: str = "compiled scores"
) -> list[str]:
    """A sentence if scores [n, m] are constant, over all pairs or within queries.

    Queries are one side's items, then the other's; one with a single item to rank is not counted.
    """
    if scores.size > 1 and np.ptp(scores) == 0:
        return [f"the {what} are constant: every pair gets the same score"]
    found = []
    for axis, queries in zip((1, 0), item_names(called), strict=True):
        share = float(np.mean(np.ptp(scores, axis=axis) == 0))
        if scores.shape[axis] > 1 and share > MOST:
            found.append(
                f"the {what} are all equal within {share:.1%} of the queries ({queries}), "
                "so they rank nothing there"
            )
    return found
