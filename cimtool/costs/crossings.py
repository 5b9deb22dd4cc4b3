"""The cheapest way by the size of the gallery, and the sizes at which another takes over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

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
    def takes_less(self) -> bool | None:
        """True if the compiled model on its target is cheapest; None if that is open."""
        built = {kind in BUILT for kind in self.ways}
        return next(iter(built)) if len(built) == 1 else None


WaysOfSize = Callable[[int, Collection[WayKind]], Sequence[GalleryWay]]
"""The ways of some kinds for any number of items."""


def cheapest_by_size(ways: WaysOfSize, sizes: Sequence[int] = SIZES) -> tuple[CheapestFrom, ...]:
    """The cheapest ways from the first of `sizes` on, and each change up to the last.

    Between two neighbouring sizes whose cheapest ways differ, changes are found by halving, among
    the ways that are cheapest at either. A change there and back between two sizes is not seen.
    """
    return tuple(_from(ways, sizes))


def _from(ways: WaysOfSize, sizes: Sequence[int]) -> Iterator[CheapestFrom]:
    before = _cheapest(ways, sizes[0], KINDS)
    yield before
    for size in sizes[1:]:
        after = _cheapest(ways, size, KINDS)
        yield from _changes(ways, before, after)
        before = after


def _cheapest(ways: WaysOfSize, items: int, kinds: Collection[WayKind]) -> CheapestFrom:
    first, *others = (one.kind for one in cheapest(ways(items, kinds)))
    return CheapestFrom(items, (first, *sorted(others, key=KINDS.index)))


def _changes(ways: WaysOfSize, before: CheapestFrom, after: CheapestFrom) -> Iterator[CheapestFrom]:
    if before.ways == after.ways:
        return
    low, high = before.items, after.items
    if high <= max(low * CLOSE, low + 1):
        yield after
        return
    middle = min(max(round((low * high) ** 0.5), low + 1), high - 1)
    between = _cheapest(ways, middle, {*before.ways, *after.ways})
    yield from _changes(ways, before, between)
    yield from _changes(ways, between, after)
