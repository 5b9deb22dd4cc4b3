"""Ways to score a query against a gallery in the arrays, and the description of shards."""

from __future__ import annotations

from collections.abc import Iterator

from cimtool.bundle.bundle import Bundle
from cimtool.costs.estimate import Estimate
from cimtool.costs.scored_pairs import ScoredPairs
from cimtool.costs.ways import QueryWays, WayOfSize
from cimtool.galleries.encoding import Shards as Shards


class InArrays(QueryWays, name="in-arrays"):
    """Scores and shortlists that are computed in the memory."""

    @classmethod
    def of(cls, bundle: Bundle, found: Estimate, pairs: ScoredPairs | None) -> Iterator[WayOfSize]:
        """The ways of a bundle, measured on pairs if it keeps calibration items."""
        from cimtool.galleries.gallery_ways import gallery_ways

        return gallery_ways(bundle, found, pairs)
