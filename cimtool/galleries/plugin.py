"""Ways to score a query against a gallery in the arrays, and the description of shards."""

from __future__ import annotations

from cimtool.bundle.bundle import Bundle
from cimtool.costs.estimate import Estimate
from cimtool.costs.ways import GalleryWay, QueryWays
from cimtool.galleries.encoding import Shards as Shards


class InArrays(QueryWays, name="in-arrays"):
    """Scores and shortlists that are computed in the memory."""

    @classmethod
    def of(cls, bundle: Bundle, found: Estimate) -> tuple[GalleryWay, ...]:
        """The ways of a bundle; only of one that keeps calibration items to program."""
        from cimtool.galleries.gallery_ways import gallery_ways

        return gallery_ways(bundle, found)
