"""The right items of each query: by pairs, by classes, by graded judgements of pairs.

Right items are the item of a pair, all items with a class in common, or all items that judgements
grade above 0. Among items of one modality an item does not find itself.

An item has one class, or a row of booleans if it may have several. Two items are alike if they have
a class in common, as in the papers on retrieval. An item without a class is like no item, not even
itself. Judgements are as in TREC: some pairs have a grade, all others have none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray, blocks
from cimtool.base.modality_names import TEXT_VIDEO, Modalities, item_names

Classes = IntArray | BoolArray
"""The class [n] of each item, or [n, C] true for each class that it has."""

PAIRS = 1 << 20
"""Pairs of items whose classes are compared at a time, to bound the memory."""


def alike(own: Array, classes: Classes) -> BoolArray:
    """Tell which items [m] have a class in common with an item whose classes are `own`."""
    if classes.ndim == 1:
        same: BoolArray = np.equal(classes, own)
        return same
    common: BoolArray = np.any(classes[:, own], axis=1)
    return common


def alike_pairs(classes: Classes, others: Classes) -> BoolArray:
    """Tell which pairs of items have a class in common, [n, m]."""
    if classes.ndim == 1:
        same: BoolArray = classes[:, None] == others
        return same
    common: BoolArray = classes.astype(np.float32) @ others.astype(np.float32).T > 0
    return common


def memberships(classes: Classes) -> tuple[IntArray, IntArray]:
    """Pairs of an item and one of its classes: rows of items, and numbers of classes from 0."""
    if classes.ndim == 1:
        numbers = np.unique(classes, return_inverse=True)[1].reshape(-1)
        return np.arange(len(classes)), numbers
    items, numbers = np.nonzero(classes)
    return items, numbers


def any_alike(classes: Classes) -> bool:
    """True if two items have a class in common."""
    return bool(np.bincount(memberships(classes)[1], minlength=1).max() > 1)


def alike_counts(classes: Classes) -> IntArray:
    """The number of other items that have a class in common with each item, [n]."""
    if classes.ndim == 1:
        _, numbers, counts = np.unique(classes, return_inverse=True, return_counts=True)
        others: IntArray = counts[numbers.reshape(-1)] - 1
        return others
    found = [np.count_nonzero(mask, axis=1) for mask in _alike_blocks(classes)]
    return np.concatenate(found).astype(np.int64) - classes.any(axis=1)


def alike_sums(classes: Classes, values: FloatArray) -> FloatArray:
    """Sums of `values` [n, d] over the items like each item, itself included, [n, d]."""
    if classes.ndim == 1:
        numbers = memberships(classes)[1]
        sums = np.zeros((numbers.max() + 1, values.shape[1]))
        np.add.at(sums, numbers, values)
        return sums[numbers]
    return np.concatenate([mask.astype(np.float64) @ values for mask in _alike_blocks(classes)])


def _alike_blocks(classes: Classes) -> Iterator[BoolArray]:
    """Yield blocks of rows of `alike_pairs(classes, classes)`."""
    own = classes.astype(np.float32)
    for rows in blocks(len(own), PAIRS // len(own)):
        yield own[rows] @ own.T > 0


@dataclass(frozen=True, eq=False)
class Judgements:
    """The grade [p], above 0, of each right pair of a text [p] and a video [p]; all others are 0.

    Each pair occurs once; `file` names the source in messages.
    """

    text: IntArray
    video: IntArray
    grade: IntArray
    file: str = "judgements"

    @property
    def turned(self) -> Judgements:
        """The judgements with videos as texts, and texts as videos."""
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
        """The video of the highest grade of each text [texts]; the first if several are equal.

        A text without a grade gets a number from `videos` on, which no video has.
        """
        found = np.arange(videos, videos + texts)
        order = np.lexsort((-self.video, self.grade))  # the last one written stays
        found[self.text[order]] = self.video[order]
        return found

    def among(self, kept: IntArray, items: int) -> Judgements:
        """Judgements among the `kept` of `items`, which are both sides, by their new rows."""
        place = np.full(items, -1)
        place[kept] = np.arange(len(kept))
        text, video = place[self.text], place[self.video]
        inside = (text >= 0) & (video >= 0)
        return Judgements(text[inside], video[inside], self.grade[inside], self.file)

    def between(self, texts: BoolArray, videos: BoolArray) -> Judgements:
        """Judgements between the texts and videos that masks keep, by their new rows."""
        inside = texts[self.text] & videos[self.video]
        text, video = (np.cumsum(texts) - 1)[self.text], (np.cumsum(videos) - 1)[self.video]
        return Judgements(text[inside], video[inside], self.grade[inside], self.file)

    def among_others(self) -> Judgements:
        """The judgements without pairs of an item with itself."""
        kept = self.text != self.video
        return Judgements(self.text[kept], self.video[kept], self.grade[kept], self.file)


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Items compared with one another: `rows` of pairs [P, 2], or of triplets [P, 3].

    `match` [P] is true for a pair that belongs together. In a triplet the second item belongs to
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
        """The comparisons among the `kept` of all `items`, by their new rows."""
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


MOST = 0.5
"""Share of queries with all scores equal above which there is a warning."""


@dataclass(frozen=True, eq=False)
class Truth:
    """The right items of each of the texts [n] and of the `videos`.

    `text_to_video` [n] is the right video of each text. `labels` are the classes of texts [n] and
    videos [m], or [n, C] and [m, C] for several classes per item; None if unknown. A video that is
    right for no text has no class, even if `labels` give it one. With `leave_one_out`, row i of
    both is one item, which does not find itself: the others of its class are right, or nothing if
    classes are unknown. If pairs are `judged`, only these are right, and `text_to_video` is the
    best video of each text, or a number from `videos` on if it has none.
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
        """True if all items of a class, or all that are judged right, are right for a query."""
        return self.labels is not None or self.judged is not None

    @property
    def knows_unanswered(self) -> bool:
        """True if judgements tell which texts and videos have no right item in the gallery."""
        return self.judged is not None and not self.leave_one_out

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
        """Tell which videos are the same items as the texts of `rows`, left out, [rows, m]."""
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
    """Truth among `items`: the others of a class are right; unshared labels are dropped."""
    if labels is not None and not any_alike(labels):
        labels = None
    return Truth(np.arange(items), items, None if labels is None else (labels, labels), True)


def truth_judged(judged: Judgements, texts: int, videos: int, leave_one_out: bool = False) -> Truth:
    """Truth of judgements: grades above 0 are right; with `leave_one_out` never an item itself."""
    if leave_one_out:
        return Truth(np.arange(texts), videos, None, True, judged.among_others())
    return Truth(judged.best(texts, videos), videos, None, False, judged)


def all_equal(
    scores: Array, called: Modalities = TEXT_VIDEO, what: str = "compiled scores"
) -> list[str]:
    """A sentence if scores [n, m] are constant, over all pairs or within queries.

    Queries are one side's items, then the other's; a query with one item to rank is not counted.
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
