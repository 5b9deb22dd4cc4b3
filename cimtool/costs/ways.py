"""Ways to score one query against a gallery: what `cimtool cost` shows beside the digital score."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from cimtool.base.named import Named
from cimtool.bundle.bundle import Bundle
from cimtool.costs.estimate import Estimate
from cimtool.costs.totals import NOTHING, Quantity


@dataclass(frozen=True)
class GalleryWay:
    """One way: of one encoded text against all items; None for what nothing says.

    `cells` are those of an item; `arrays` hold all items, on `chips`, beside those of the map to
    fewer dimensions. `refused` says why a way cannot be taken.
    """

    way: str
    cells: int | None = None
    arrays: int | None = None
    chips: int | None = None
    conversions: int | None = None
    energy_pj: Quantity = NOTHING
    latency_ns: Quantity = NOTHING
    refused: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        both = {name: getattr(self, name).to_json() for name in ("energy_pj", "latency_ns")}
        return vars(self) | both


class QueryWays(Named):
    """Base of what knows ways to score a query."""

    @classmethod
    @abstractmethod
    def of(cls, bundle: Bundle, found: Estimate) -> tuple[GalleryWay, ...]:
        """The ways that a bundle has, of the cost `found` with its gallery."""


def query_ways(bundle: Bundle, found: Estimate) -> list[GalleryWay]:
    """All known ways of a bundle, of the cost `found` with its gallery."""
    return [way for kind in QueryWays.every().values() for way in kind.of(bundle, found)]
