"""The ranking of every query of a score matrix.

With labels or judgements, queries are ranked one by one, so that only the scores grow with n x m.
Matrices are [n, m], texts down and videos across.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.reference.judged_hits import FEW, judged_hits
from cimtool.reference.measures import RANK, RANKINGS, SURENESS, WAYS, Hits
from cimtool.reference.metrics import ReferenceScores, best_ranks, graded_hits, ranks
from cimtool.reference.pair_draw import PairDraw
from cimtool.reference.pairs import probabilities, sureness
from cimtool.reference.queries import Queries, once
from cimtool.reference.truth import Truth, alike

BY_CLASS = {one.of: one.of_hits for one in RANKINGS if one.of_hits is not None}
"""Measures of a query from all of its right items, by name."""

RETRIEVED = (RANK, *BY_CLASS, SURENESS)
"""Names of all measurements of a query."""

COLUMNS = 128
"""Videos whose scores are copied at a time, to lie side by side in memory."""

GradedCandidates = tuple[IntArray, Array]
"""The candidates of a query, and their grades: above 0, or true, for right items."""


def questions(
    truth: Truth, way: str, by_class: bool
) -> tuple[IntArray, Iterator[GradedCandidates]]:
    """Queries of one way, and the candidates of each with their grades.

    `by_class` uses the classes if they are known. By pairs and by class, a video without a text is
    no query; by class, it is no candidate either.
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
    """Rank every query of `scores` [n, m]; empty if nothing is right.

    `rank` is the rank of the pair's best right item, NaN for a query that has none. The measures in
    BY_CLASS are over all right items, which are the class's items if classes are known. `sureness`
    is in `reference/pairs.py`.
    """
    if not truth.ranks:
        return Queries()
    sure = sureness(scores, truth)
    if truth.judged is not None:
        sides = ((scores, truth.judged), (scores.T, truth.judged.turned))
        return Queries(
            *(_of_hits(judged_hits(*side, truth.leave_one_out)) for side in sides)
        ).merged(sure)
    if truth.leave_one_out:
        return Queries(*(_asked(scores, truth, way) for way in WAYS)).merged(sure)
    pairs = _ranked_pairs(scores, truth).merged(sure)
    if truth.labels is None:
        return pairs
    text, video = (_asked(scores, truth, way) for way in WAYS)
    for side in (text, video):
        del side["rank"]
    return pairs.merged(Queries(text, video))


def after_shortlist(
    queries: Queries, left: Array, truth: Truth, references: Mapping[str, ReferenceScores]
) -> Queries:
    """Queries of all scores, with what texts retrieve by the scores [n, m] that a list `left`.

    `references` has the reference whose best item is compared, by the measurement's name.
    """
    same = {name: one.same_best(left)[0] for name, one in references.items()}
    return Queries(queries.text | retrieved(left, truth).text | same, queries.video)


def measured(scores: Array, truth: Truth, of_logit: bool, drawn: PairDraw | None = None) -> Queries:
    """Rank every query of `scores` [n, m]; if they are logits, also measure the probabilities.

    With `drawn` these are estimated from the pairs of a sample.
    """
    found = retrieved(scores, truth)
    if not of_logit or not truth.ranks:
        return found
    return found.merged(probabilities(scores, truth, drawn))


def _asked(scores: Array, truth: Truth, way: str) -> dict[str, FloatArray]:
    """The measurements by `ranked` of one way's queries, by class if classes are known."""
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
    """Rank by `text_to_video`; most queries have one right item, whose rank gives all measures."""
    right = truth.text_to_video
    text = _of_one(ranks(scores, right).astype(np.float64))
    video = _of_one(best_ranks(scores, right))
    several = np.flatnonzero(np.bincount(right, minlength=truth.videos) > 1)
    found = ranked(zip(columns(scores, several), (right == one for one in several), strict=True))
    for name, values in found.items():
        video[name][several] = values
    return Queries(text, video)


def _of_one(rank: FloatArray) -> dict[str, FloatArray]:
    """The result of `ranked` for queries with one right item each, given its ranks [n]."""
    known = ~np.isnan(rank)
    found = {"rank": rank} | {name: np.full(len(rank), np.nan) for name in BY_CLASS}
    by_rank, at = np.unique(rank[known], return_inverse=True)
    values = np.array([_at_rank(one) for one in by_rank.tolist()]).reshape(-1, len(BY_CLASS))
    for column, name in enumerate(BY_CLASS):
        found[name][known] = values[at.reshape(-1), column]
    return found


@lru_cache(1 << 16)
def _at_rank(rank: float) -> tuple[float, ...]:
    """BY_CLASS measures of a query whose only right item has this rank; stages share most ranks."""
    hits = np.array([rank]), None
    return tuple(measure(hits) for measure in BY_CLASS.values())


def columns(scores: Array, videos: IntArray) -> Iterator[Array]:
    """Yield the scores [n] of each of `videos`."""
    for start in range(0, len(videos), COLUMNS):
        yield from np.ascontiguousarray(scores[:, videos[start : start + COLUMNS]].T)


def ranked(asked: Iterable[tuple[Array, Array]]) -> dict[str, FloatArray]:
    """Return the `rank` of each query's best right item, and the measures in BY_CLASS.

    A query is given by its candidates' scores and their grades, which may be booleans.
    """
    return _of_hits(graded_hits(row, grades) for row, grades in asked)


def _of_hits(hits: Iterable[Hits]) -> dict[str, FloatArray]:
    """The same of each query's hits."""
    found = []
    for positions, grades in hits:
        if grades is None or len(positions) > FEW:
            found.append(_measures((positions, grades)))
        else:
            found.append(_known(positions.tobytes(), grades.tobytes()))
    values = np.array(found, np.float64).reshape(len(found), 1 + len(BY_CLASS)).T
    return dict(zip((RANK, *BY_CLASS), values, strict=True))


def _measures(hits: Hits) -> tuple[float, ...]:
    """The rank of the best of a query's hits, and BY_CLASS measures."""
    best = float(hits[0][0]) if len(hits[0]) else np.nan
    return best, *(measure(hits) for measure in BY_CLASS.values())


@lru_cache(1 << 16)
def _known(ranks: bytes, grades: bytes) -> tuple[float, ...]:
    """The same of few hits, which most stages share."""
    return _measures((np.frombuffer(ranks, np.int64), np.frombuffer(grades, np.int64)))


def retrieval(scores: Array, truth: Truth) -> dict[str, float]:
    """The metrics of `scores` [n, m] by name."""
    return once(retrieved(scores, truth))


def of_means(truth: Truth, text: Array, video: Array) -> Queries:
    """Measure the means of both modalities, [n, d] and [m, d], over the texts."""
    found = {
        one.of: one.of_means(truth, text, video) for one in RANKINGS if one.of_means is not None
    }
    return Queries({name: values for name, values in found.items() if values is not None})


def rank_queries(
    scores: Array, text: Array, video: Array, truth: Truth, of_logit: bool = False
) -> Queries:
    """Rank queries by `scores` [n, m], and measure means `text` [n, d], `video` [m, d]."""
    return measured(scores, truth, of_logit).merged(of_means(truth, text, video))
