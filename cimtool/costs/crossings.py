"""The cheapest way by the size of the gallery, and the sizes at which another takes over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cimtool.costs.ways import GalleryWay, cheapest

FEWEST, MOST = 10**3, 10**8
"""Sizes of galleries between which ways are compared."""

SIZES = tuple(round(10 ** (quarter / 4)) for quarter in range(12, 33))
"""Sizes that are tried, four per decade; between two of them a change is searched for."""

CLOSE = 1.01
"""A change is known to this factor of the size."""


@dataclass(frozen=True)
class CheapestFrom:
    """From this many items on these ways take the least energy; of several, none is shown to."""

    items: int
    ways: tuple[str, ...]

    @property
    def text(self) -> str:
        """The ways in words."""
        first, *others = self.ways
        if not others:
            return first
        return f"open between {', '.join((first, *others[:-1]))} and {others[-1]}"


WaysOfSize = Callable[[int], Sequence[GalleryWay]]
"""The ways for any number of items."""


def cheapest_by_size(ways: WaysOfSize, sizes: Sequence[int] = SIZES) -> tuple[CheapestFrom, ...]:
    """The cheapest ways from the first of `sizes` on, and each change up to the last.

    Between two neighbouring sizes whose cheapest ways differ, changes are found by halving. A
    change there and back between two sizes is not seen.
    """
    known: dict[int, tuple[str, ...]] = {}

    def at(items: int) -> tuple[str, ...]:
        if items not in known:
            shown = ways(items)
            least = {one.kind for one in cheapest(shown)}
            known[items] = tuple(one.kind for one in shown if one.kind in least)
        return known[items]

    found = [CheapestFrom(sizes[0], at(sizes[0]))]
    for low, high in pairwise(sizes):
        found += _changes(at, low, high)
    return tuple(found)


def _changes(at: Callable[[int], tuple[str, ...]], low: int, high: int) -> Iterator[CheapestFrom]:
    if at(low) == at(high):
        return
    if high <= max(low * CLOSE, low + 1):
        yield CheapestFrom(high, at(high))
        return
    middle = round((low * high) ** 0.5)
    middle = min(max(middle, low + 1), high - 1)
    yield from _changes(at, low, middle)
    yield from _changes(at, middle, high)
