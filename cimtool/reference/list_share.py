"""A shortlist of a large gallery, measured on fewer items: as the same share of these.

How many items stand before the best one grows with the gallery: a place of p of m items is expected
at p N / m of N. A list of as many items as in the large gallery would hide far more of its misses.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ListShare:
    """A list of `length` items of a `gallery`, measured on `items`; it has at most the gallery."""

    length: int
    gallery: int
    items: int

    @property
    def measured(self) -> int:
        """Items of the list that is measured, its share of the items, rounded down.

        0 if the share is fewer than one item: then nothing can be measured.
        """
        return self.length * self.items // self.gallery

    def length_for(self, measured: int) -> int:
        """The shortest list of the gallery that is measured as one of so many items."""
        return -(-measured * self.gallery // self.items)

    @property
    def unmeasured(self) -> str:
        """The reason that it cannot be measured, and what can be; for after a list's name."""
        return (
            f"of {self.gallery:,} items it is fewer than one of the {self.items:,} that it is "
            f"measured on; expected {self.enough}"
        )

    @property
    def enough(self) -> str:
        """The list, or the items, with which it can be measured."""
        return (
            f"a list of at least {self.length_for(1):,}, or at least "
            f"{-(-self.gallery // self.length):,} items to measure on"
        )
