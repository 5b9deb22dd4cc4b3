"""Graded judgements of pairs, as TREC has them: some pairs have a grade, all others have none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cimtool.base.arrays import BoolArray, IntArray


@dataclass(frozen=True, eq=False)
class Judgements:
    """The grade [p], above 0, of each right pair of a text [p] and a video [p]; all others are 0.

    A pair is there once; `file` is where they come from, for messages.
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

        A text without any has a number of its own from `videos` on, which is no video's.
        """
        found = np.arange(videos, videos + texts)
        order = np.lexsort((-self.video, self.grade))  # the last one that is put down stays
        found[self.text[order]] = self.video[order]
        return found

    def among_others(self) -> Judgements:
        """The same without those of an item with itself."""
        kept = self.text != self.video
        return Judgements(self.text[kept], self.video[kept], self.grade[kept], self.file)
