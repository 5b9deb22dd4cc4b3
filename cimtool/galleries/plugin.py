"""The ways of a query that take a gallery into the arrays, and the description of its shards."""

from __future__ import annotations

from cimtool.bundle.bundle import Bundle
from cimtool.costs.estimate import Estimate
from cimtool.costs.ways import GalleryWay, QueryWays
from cimtool.galleries.encoding import Shards as Shards


class InArrays(QueryWays, name="in-arrays"):
    """Scores in the memory, and shortlists that are drawn up there."""

    @classmethod
    def of(cls, bundle: Bundle, found: Estimate) -> tuple[GalleryWay, ...]:
        """The ways of a bundle that keeps calibration items to program."""
        from cimtool.galleries.gallery_ways import gallery_ways

        return gallery_ways(bundle, found)
