"""Ways to score one query against a gallery, as `cimtool cost` shows them side by side."""

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
    """One way to score an encoded text against all items; None: unknown.

    `cells` counts the cells per item. `arrays` on `chips` hold all items; the arrays of a map to
    fewer dimensions come on top. `refused` has the reason that the way is not possible.
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
    """Base of classes that list ways to score a query."""

    @classmethod
    @abstractmethod
    def of(cls, bundle: Bundle, found: Estimate) -> tuple[GalleryWay, ...]:
        """The ways of a bundle; `found` is its cost with its gallery."""


def query_ways(bundle: Bundle, found: Estimate) -> list[GalleryWay]:
    """All known ways of a bundle; `found` is its cost with its gallery."""
    return [way for kind in QueryWays.every().values() for way in kind.of(bundle, found)]
