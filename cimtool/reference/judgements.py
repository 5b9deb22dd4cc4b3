"""Items that belong together: by classes, by graded judgements of pairs, by comparisons.

An item has one class, or a row of yes and no if it may have several. Two items are alike if they
have a class in common, as the papers on retrieval have it; an item without any class is like none,
not even itself. Judgements are those of TREC: some pairs have a grade, all others have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray, blocks

Classes = IntArray | BoolArray
"""The class [n] of each item, or [n, C] true for each class that it has."""

PAIRS = 1 << 20
"""Pairs of items whose classes are compared at a time, for a bounded memory."""


def alike(own: Array, classes: Classes) -> BoolArray:
    """Tell which items [m] have a class in common with one item, whose own classes are `own`."""
    if classes.ndim == 1:
        same: BoolArray = np.equal(classes, own)
        return same
    common: BoolArray = np.any(classes[:, own], axis=1)
    return common


def alike_pairs(classes: Classes, others: Classes) -> BoolArray:
    """Tell which of all pairs of items have a class in common, [n, m]."""
    if classes.ndim == 1:
        same: BoolArray = classes[:, None] == others
        return same
    common: BoolArray = classes.astype(np.float32) @ others.astype(np.float32).T > 0
    return common


def memberships(classes: Classes) -> tuple[IntArray, IntArray]:
    """Each item with each of its classes: rows of items, and numbers of classes from 0."""
    if classes.ndim == 1:
        numbers = np.unique(classes, return_inverse=True)[1].reshape(-1)
        return np.arange(len(classes)), numbers
    items, numbers = np.nonzero(classes)
    return items, numbers


def any_alike(classes: Classes) -> bool:
    """True if two items have a class in common."""
    return bool(np.bincount(memberships(classes)[1], minlength=1).max() > 1)


def alike_counts(classes: Classes) -> IntArray:
    """The number of other items that have a class in common with each, [n]."""
    if classes.ndim == 1:
        _, numbers, counts = np.unique(classes, return_inverse=True, return_counts=True)
        others: IntArray = counts[numbers.reshape(-1)] - 1
        return others
    found = [np.count_nonzero(mask, axis=1) for mask in _alike_blocks(classes)]
    return np.concatenate(found).astype(np.int64) - classes.any(axis=1)


def alike_sums(classes: Classes, values: FloatArray) -> FloatArray:
    """Sums of `values` [n, d] over the items like each, itself among them, [n, d]."""
    if classes.ndim == 1:
        numbers = memberships(classes)[1]
        sums = np.zeros((numbers.max() + 1, values.shape[1]))
        np.add.at(sums, numbers, values)
        return sums[numbers]
    return np.concatenate([mask.astype(np.float64) @ values for mask in _alike_blocks(classes)])


def _alike_blocks(classes: Classes) -> Iterator[BoolArray]:
    """Yield the rows of `alike_pairs` of items with themselves, some at a time."""
    own = classes.astype(np.float32)
    for rows in blocks(len(own), PAIRS // len(own)):
        yield own[rows] @ own.T > 0


@dataclass(frozen=True, eq=False)
class Judgements:
    """The grade [p], above 0, of each right pair of a text [p] and a video [p]; all others are 0.

    A pair is there once; `file` names their source in messages.
    """

    text: IntArray
    video: IntArray
    grade: IntArray
    file: str = "judgements"

    @property
    def turned(self) -> Judgements:
        """The same with videos as texts, and texts as videos."""
        return Judgements(self.video, self.text, self.grade, self.file)

    def of_each(self, texts: int, videos: int) -> Iterator[IntArray]:
        """Yield the grades [videos] of each of `texts`."""
        order = np.argsort(self.text, kind="stable")
        ends = np.searchsorted(self.text[order], np.arange(texts + 1))
        for start, end in pairwise(ends):
            grades = np.zeros(videos, np.int64)
            mine = order[start:end]
            grades[self.video[mine]] = self.grade[mine]
            yield grades

    def right_pairs(self, rows: slice, texts: int, videos: int) -> BoolArray:
        """Tell which videos are right for the texts of `rows`, [rows, videos]."""
        start, stop, _ = rows.indices(texts)
        found = np.zeros((stop - start, videos), bool)
        mine = (self.text >= start) & (self.text < stop)
        found[self.text[mine] - start, self.video[mine]] = True
        return found

    def best(self, texts: int, videos: int) -> IntArray:
        """The video of the highest grade of each text [texts], of equals the first.

        A text without any gets a number from `videos` on, which is no video's.
        """
        found = np.arange(videos, videos + texts)
        order = np.lexsort((-self.video, self.grade))  # the last one that is put down stays
        found[self.text[order]] = self.video[order]
        return found

    def among(self, kept: IntArray, items: int) -> Judgements:
        """Those between the items `kept`, of `items` that are both sides, by their new rows."""
        place = np.full(items, -1)
        place[kept] = np.arange(len(kept))
        text, video = place[self.text], place[self.video]
        inside = (text >= 0) & (video >= 0)
        return Judgements(text[inside], video[inside], self.grade[inside], self.file)

    def between(self, texts: BoolArray, videos: BoolArray) -> Judgements:
        """Those of the texts and videos that masks keep, by their new rows."""
        inside = texts[self.text] & videos[self.video]
        text, video = (np.cumsum(texts) - 1)[self.text], (np.cumsum(videos) - 1)[self.video]
        return Judgements(text[inside], video[inside], self.grade[inside], self.file)

    def among_others(self) -> Judgements:
        """The same without those of an item with itself."""
        kept = self.text != self.video
        return Judgements(self.text[kept], self.video[kept], self.grade[kept], self.file)


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Items compared with one another: `rows` of pairs [P, 2], or of triplets [P, 3].

    `match` [P] is true for a pair that belongs together. Of a triplet the second item belongs to
    the first more than the third does; then `match` is None.
    """

    rows: IntArray
    match: BoolArray | None = None

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays by the names under which a file holds them."""
        return {self.kind: self.rows} | ({} if self.match is None else {"match": self.match})

    @property
    def kind(self) -> str:
        """The name of their array."""
        return "triplets" if self.match is None else "pairs"

    def __len__(self) -> int:
        return len(self.rows)

    def among(self, kept: IntArray, items: int) -> Comparisons:
        """The comparisons of `kept` items alone, of `items`, by their new rows."""
        place = np.full(items, -1)
        place[kept] = np.arange(len(kept))
        rows = place[self.rows]
        inside = (rows >= 0).all(axis=1)
        return Comparisons(rows[inside], None if self.match is None else self.match[inside])

    def judgements(self) -> Judgements:
        """Items that belong together, both ways: right pairs, or the first two of triplets."""
        pairs = self.rows[:, :2] if self.match is None else self.rows[self.match]
        both = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
        return Judgements(both[:, 0], both[:, 1], np.ones(len(both), np.int64))

    def groups(self, items: int) -> IntArray:
        """Numbers [items] of the groups that right pairs join, directly or through others."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        right = self.judgements()
        joined = coo_array((right.grade, (right.text, right.video)), shape=(items, items))
        found: IntArray = connected_components(joined, directed=False)[1].astype(np.int64)
        return found
