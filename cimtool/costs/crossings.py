"""The cheapest way by the size of the gallery, and the sizes at which another takes over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from cimtool.costs.ways import BUILT, KINDS, GalleryWay, WayKind, cheapest

FEWEST, MOST = 10**3, 10**8
"""Sizes of galleries between which ways are compared."""

SIZES = tuple(round(10 ** (quarter / 4)) for quarter in range(12, 33))
"""Sizes that are tried, four per decade; between two of them a change is searched for."""

CLOSE = 1.01
"""A change is known to this factor of the size."""


@dataclass(frozen=True)
class CheapestFrom:
    """From this many items on the first of these ways takes the least energy.

    The others, in the order of KINDS, are not shown to take more.
    """

    items: int
    ways: tuple[WayKind, ...]

    @property
    def pays(self) -> bool | None:
        """True if the compiled model on its target is cheapest; None if that is open."""
        built = {kind in BUILT for kind in self.ways}
        return next(iter(built)) if len(built) == 1 else None


WaysOfSize = Callable[[int], Sequence[GalleryWay]]
"""The ways for any number of items."""


def cheapest_by_size(ways: WaysOfSize, sizes: Sequence[int] = SIZES) -> tuple[CheapestFrom, ...]:
    """The cheapest ways from the first of `sizes` on, and each change up to the last.

    Between two neighbouring sizes whose cheapest ways differ, changes are found by halving. A
    change there and back between two sizes is not seen.
    """

    @cache
    def at(items: int) -> tuple[WayKind, ...]:
        first, *others = (one.kind for one in cheapest(ways(items)))
        return first, *sorted(others, key=KINDS.index)

    found = [CheapestFrom(sizes[0], at(sizes[0]))]
    for low, high in pairwise(sizes):
        found += _changes(at, low, high)
    return tuple(found)


def _changes(
    at: Callable[[int], tuple[WayKind, ...]], low: int, high: int
) -> Iterator[CheapestFrom]:
    if at(low) == at(high):
        return
    if high <= max(low * CLOSE, low + 1):
        yield CheapestFrom(high, at(high))
        return
    middle = round((low * high) ** 0.5)
    middle = min(max(middle, low + 1), high - 1)
    yield from _changes(at, low, middle)
    yield from _changes(at, middle, high)
