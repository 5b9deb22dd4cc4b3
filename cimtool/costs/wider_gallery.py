"""The cost of a query against more items in the arrays than a program holds.

The products are placed with a column for each item. The digital operations beside them are linear
in the items, so two galleries of the same bits give those of any size, to the last one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

from cimtool.costs.charges import digital_cost, loading
from cimtool.costs.estimate import Estimate
from cimtool.costs.operations import Operations, Tally
from cimtool.costs.totals import Cost
from cimtool.hardware.placement import Placement, placements


@dataclass(frozen=True, repr=False, kw_only=True)
class WiderGallery(Estimate):
    """An estimate for more items than the `program` holds; `beside` are its digital operations."""

    beside: Operations

    @classmethod
    def of(cls, one: Estimate, two: Estimate, items: int) -> WiderGallery:
        """Extrapolate two estimates of galleries of different sizes to `items`."""
        counts = [estimate.program.gallery_items or 0 for estimate in (one, two)]
        works = [estimate.placed((), estimate.settings).score or Cost() for estimate in (one, two)]
        first, second = (work.digital.tallies for work in works)

        def at(kind: str, name: str) -> int:
            ends = [int(getattr(of.get(kind, Tally()), name)) for of in (first, second)]
            return ends[0] + (ends[1] - ends[0]) * (items - counts[0]) // (counts[1] - counts[0])

        beside = Operations({kind: Tally(at(kind, "count"), at(kind, "size")) for kind in second})
        own = {one_.name: getattr(one, one_.name) for one_ in fields(Estimate)}
        return cls(**{**own, "gallery": items, "beside": beside})

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        """The placement of each layer, of products of the score with all items."""
        return placements(self.program, self.settings, self.gallery)

    @cached_property
    def score(self) -> Cost:
        """The score of one encoded text against the gallery."""
        name = self.program.score.name
        found = digital_cost(self.beside, self.rates.prices)
        for place in self.placements:
            if place.graph == name:
                found = self.layers[place.layer] + found
        return found + loading(name, self.placements, self.floorplan, self.rates)
