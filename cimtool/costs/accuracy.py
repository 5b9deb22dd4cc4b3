"""R@1 of the ways of a query, by kind, and what they find more than raw rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cimtool.base.intervals import Change
from cimtool.costs.ways import OF_RAW_ROWS, GalleryWay, WayKind


@dataclass(frozen=True)
class WayAccuracy:
    """R@1 of texts by kind of way, among `items`, where it is from, and gains over raw rows."""

    r1: Mapping[WayKind, Change]
    items: int
    source: str
    gains: Mapping[WayKind, Change] = field(default_factory=dict)

    def of(self, way: GalleryWay) -> GalleryWay:
        """A way with its R@1; one that has it is unchanged."""
        if way.r1 is not None or way.refused:
            return way
        r1 = self.r1.get(way.kind)
        if r1 is None:
            return way
        return replace(way, r1=r1, gain=self.gains.get(way.kind), measured_of=self.items)


def accuracy_by_kind(
    raw: Change | None, sampled: Change | None, built: Change | None, kind: WayKind
) -> dict[WayKind, Change]:
    """R@1 by kind, of raw rows, of Monte Carlo, and of the build, whose way is of `kind`."""
    found: dict[WayKind, Change | None] = dict.fromkeys(OF_RAW_ROWS, raw)
    if raw is None:  # the machines compute what the build does
        found = dict.fromkeys(OF_RAW_ROWS[1:], built)
    every = found | {"Monte Carlo": sampled, kind: built}
    return {name: one for name, one in every.items() if one is not None}
