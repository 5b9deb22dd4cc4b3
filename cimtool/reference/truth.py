"""The right items of each query.

Right is the item of a pair, all items with a class in common, or what judgements grade above 0;
among items of one modality an item does not find itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, BoolArray, IntArray
from cimtool.base.modality_names import TEXT_VIDEO, Modalities, item_names
from cimtool.reference.judgements import Classes, Judgements, alike_counts, alike_pairs, any_alike

MOST = 0.5
"""A larger share of queries whose scores are all equal is a warning."""


@dataclass(frozen=True, eq=False)
class Truth:
    """The right items of each of the texts [n] and of the `videos`.

    `text_to_video` [n] is the right video of each text; `labels` are the classes of texts [n] and
    videos [m], or of several an item, [n, C] and [m, C]; None where not known. A video that is
    right for no text has no class, whatever `labels` hold of it. With `leave_one_out` row i of both
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
        """True where some query has something right to find."""
        return not self.leave_one_out or self.by_class

    @property
    def by_class(self) -> bool:
        """True where all items of a class, or all that are judged so, are right for a query."""
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
