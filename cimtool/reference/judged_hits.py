"""The ranks of all judged items of all queries at once, counted rather than sorted.

A query with few right items needs the number of scores that are not below each of theirs. That
takes a tenth of the time of sorting its candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray, blocks
from cimtool.reference.metrics import RANKED, graded_hits
from cimtool.reference.truth import Judgements

FEW = 16
"""Right items up to which counting is faster than sorting."""


def judged_hits(
    scores: Array, judged: Judgements, alone: bool
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield for each text of `scores` [n, m] what `graded_hits` returns for it.

    With `alone`, row i of both is one item, which is no candidate for itself. `judged.turned` and
    transposed scores give the same for each video.
    """
    n, m = scores.shape
    for rows in blocks(n, RANKED // m):
        yield from _of_rows(np.ascontiguousarray(scores[rows]), rows, judged, alone)


def _of_rows(
    near: Array, rows: slice, judged: Judgements, alone: bool
) -> Iterator[tuple[IntArray, IntArray]]:
    """Hits of the texts of `rows`, whose scores are `near`."""
    some = np.flatnonzero((judged.text >= rows.start) & (judged.text < rows.stop))
    text, video, grade = judged.text[some] - rows.start, judged.video[some], judged.grade[some]
    own = near[text, video]
    order = np.lexsort((grade, -own, text))
    text, video, grade, own = text[order], video[order], grade[order], own[order]
    ends = np.searchsorted(text, np.arange(len(near) + 1))
    itself = near[np.arange(len(near)), np.arange(rows.start, rows.stop)] if alone else None
    ranks = _ranks(near, text, own, itself)
    unsure = np.isnan(near).any(axis=1) | (np.diff(ends) > FEW)
    for query, (start, end) in enumerate(pairwise(ends)):
        if unsure[query]:
            grades = np.zeros(near.shape[1], np.int64)
            grades[video[start:end]] = grade[start:end]
            row = near[query]
            if alone:
                row, grades = (np.delete(one, rows.start + query) for one in (row, grades))
            positions, found = graded_hits(row, grades)
            assert found is not None
            yield positions, found
        else:
            yield ranks[start:end], grade[start:end]


def _ranks(near: Array, text: IntArray, own: FloatArray, itself: FloatArray | None) -> IntArray:
    """Ranks of right items by their scores `own` in rows `text`, in the order of both.

    Among equal scores wrong items come first. `itself` are scores of items that don't count.
    """
    not_below = np.empty(len(own), np.int64)
    for part in blocks(len(own), RANKED // near.shape[1]):
        below = np.count_nonzero(near[text[part]] < own[part, None], axis=1)
        not_below[part] = near.shape[1] - below
    if itself is not None:
        not_below -= ~(itself[text] < own)
    differs = (text[1:] != text[:-1]) | (own[1:] != own[:-1])
    last = np.flatnonzero(np.append(differs, True))  # of the right items that are equal
    run = np.cumsum(np.insert(differs, 0, False)) if len(own) else np.empty(0, np.int64)
    ranks: IntArray = not_below - (last[run] - np.arange(len(own)))
    return ranks
