"""R@1 of the ways of a query, by kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cimtool.base.intervals import Change
from cimtool.costs.ways import GalleryWay, WayKind

OF_RAW_ROWS: tuple[WayKind, ...] = ("raw rows", "CPU core", "GPU", "GPU in batches")
"""The kinds that rank by raw rows, if these have one width."""


@dataclass(frozen=True)
class WayAccuracy:
    """R@1 of texts by kind of way, among `items`, and where it is from."""

    r1: Mapping[WayKind, Change]
    items: int
    source: str

    def of(self, way: GalleryWay) -> GalleryWay:
        """A way with its R@1; one that has it is unchanged."""
        if way.r1 is not None or way.refused:
            return way
        r1 = self.r1.get(way.kind)
        return way if r1 is None else replace(way, r1=r1, measured_of=self.items)


def accuracy_by_kind(
    raw: Change | None, sampled: Change | None, built: Change | None, kind: WayKind
) -> dict[WayKind, Change]:
    """R@1 by kind, of raw rows, of Monte Carlo, and of the build, whose way is of `kind`."""
    found: dict[WayKind, Change | None] = dict.fromkeys(OF_RAW_ROWS, raw)
    if raw is None:  # the machines compute what the build does
        found = dict.fromkeys(OF_RAW_ROWS[1:], built)
    every = found | {"Monte Carlo": sampled, kind: built}
    return {name: one for name, one in every.items() if one is not None}
