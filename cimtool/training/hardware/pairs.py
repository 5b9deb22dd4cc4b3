"""Rows that fine-tuning sees: batches to learn from, and held-out rows to judge by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.errors import CimError
from cimtool.loading.embeddings import Embeddings

HELD_OUT = 0.1
"""Share of the rows that are held out to judge by, and the most of them."""
MOST_HELD_OUT = 512


@dataclass(frozen=True, eq=False)
class Pairs:
    """Texts and, for each, the video that it is trained beside, as row numbers [n]."""

    text: IntArray
    video: IntArray

    def __len__(self) -> int:
        return len(self.text)

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield the pairs once in random order; a last, short batch is left out."""
        order = rng.permutation(len(self))
        for start in range(0, len(self) - size + 1, size):
            batch = order[start : start + size]
            yield self.text[batch], self.video[batch]


def pairs_of(data: Embeddings, rng: np.random.Generator) -> tuple[Pairs, Pairs]:
    """Split the rows into those to learn from and those held out; no video is in both.

    Where the right video of a text is not known a random one stands beside it: the loss looks at
    all pairs of a batch alike. Raises CimError for too few rows.
    """
    count = len(data.text)
    right = data.text_to_video
    if right is None:
        right = rng.integers(len(data.video), size=count)
    videos = rng.permutation(len(data.video))
    held = videos[: min(MOST_HELD_OUT, int(HELD_OUT * len(videos)))]
    out = np.isin(right, held)
    if not out.any() or out.all():
        raise CimError(
            f"{data.file}: {count} texts and {len(data.video)} videos are too few to hold some of "
            "them out; expected 10 or more"
        )
    rows = np.arange(count)
    return Pairs(rows[~out], right[~out]), Pairs(rows[out], right[out])
