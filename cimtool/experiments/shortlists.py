"""Retrieval by a hybrid score: of each text only the items on its shortlist are left.

A query is priced among the items of a gallery, which may be many more than there are to measure on:
the list is measured as the same share of the items at hand (`reference/list_share.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, BoolArray
from cimtool.base.errors import CimError
from cimtool.base.modality_names import Modalities, item_names
from cimtool.bundle.simulate import listed_items
from cimtool.hardware.settings import Settings
from cimtool.passes.gallery import DEFAULT_SHORTLIST
from cimtool.reference.bootstrap import counted_share
from cimtool.reference.list_share import ListShare
from cimtool.report.formats import percent
from cimtool.simulation.simulator import Features, Simulator


@dataclass(frozen=True)
class Shortlist(ListShare):
    """The list of a hybrid score, and what it leaves of a text's items."""

    @classmethod
    def of(cls, settings: Settings, items: int, gallery: int | None = None) -> Shortlist | None:
        """The shortlist that settings draw up, None without one.

        `gallery` is the number of items that a query is priced among (None: the `items`). Without
        a length it has DEFAULT_SHORTLIST items, or as many as can be measured at least. Raises
        CimError if the list is longer than the gallery, or its share of the items is none of them.
        """
        if settings.score_mapping != "hybrid":
            return None
        priced = gallery or items
        shortest = cls(1, priced, items).length_for(1)
        length = settings.shortlist or min(max(DEFAULT_SHORTLIST, shortest), priced)
        if length > priced:
            raise CimError(
                f"shortlist = {length}: a query is priced among {priced:,} items; expected 1 to "
                f"{priced}"
            )
        found = cls(length, priced, items)
        if not found.measured:
            raise CimError(f"shortlist = {length}: {found.unmeasured}")
        return found

    def listed(self, simulator: Simulator, text: Features) -> BoolArray:
        """The items [n, m] on the list of each text, by their distances in the arrays."""
        return listed_items(simulator, text, self.items, self.measured)

    def note(self, listed: BoolArray, scores: Array, called: Modalities) -> str:
        """A sentence on the size of the list that was measured, and on what it holds."""
        texts, items = item_names(called)
        best = scores.argmax(axis=1)[:, None]
        held = counted_share(int(np.take_along_axis(listed, best, axis=1).sum()), len(listed))
        share = "" if self.items == self.gallery else (
            f", which is their share of a shortlist of {self.length:,} of {self.gallery:,} items"
        )  # fmt: skip
        return (
            f"{SHORTLISTED} {self.measured:,} of the {self.items:,} {items}{share}; it holds the "
            f"best item of {percent(held.value)}% [{percent(held.low)}, {percent(held.high)}] of "
            f"the {texts}; drift, and what {items} retrieve, are of the digital scores of all pairs"
        )


SHORTLISTED = "hybrid score: R@1, mAP and top-1 agreement are after a shortlist of"
"""The beginning of the note on a shortlist."""
