"""Search of a content-addressable memory: its use by a gallery, and the cost of a query.

Published energies are for arrays that sense exact matches. They leave out the converter of
distances, so a total with such a search is a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cimtool.costs.prices import reference
from cimtool.costs.silicon import measured_width
from cimtool.costs.totals import Cost, PartShare, Quantity, given
from cimtool.hardware.cam import Cam
from cimtool.hardware.cell_distance import CellDistance


@dataclass(frozen=True)
class CamUse:
    """Use of a CAM by `items` of `width` values, one per cell; all are searched at once."""

    cam: Cam
    items: int
    width: int

    @classmethod
    def of(cls, op: CellDistance, cam: Cam) -> CamUse:
        """The use of `cam` by a search."""
        return cls(cam, *op.stored.shape)

    @property
    def words_per_item(self) -> int:
        """Words that hold an item."""
        return -(-self.width // self.cam.array.cells)

    @property
    def words(self) -> int:
        """Words of all items; a query converts one distance per word."""
        return self.items * self.words_per_item

    @property
    def cells(self) -> int:
        """Cells that are written once, and that every query compares."""
        return self.items * self.width

    @property
    def arrays(self) -> int:
        """Arrays that hold all items; each word of an item lies in a different array."""
        return -(-self.items // self.cam.array.words) * self.words_per_item

    @property
    def pulses(self) -> float | None:
        """Pulses that writing one cell takes; None if not given."""
        return self._figure("write_pulses")

    @property
    def endurance(self) -> float | None:
        """Pulses that a cell endures; None if not given."""
        return self._figure("endurance")

    @property
    def programmings(self) -> float | None:
        """Writes that a cell endures; None if not given."""
        return None if self.endurance is None else self.endurance / (self.pulses or 1)

    def _figure(self, quantity: str) -> float | None:
        figure = self.cam.figure(quantity)
        return None if figure is None else figure.value

    @property
    def energy_pj(self) -> Quantity:
        """Energy of a query's search, in proportion to the used cells.

        It is as wide as a chip's own figure; nothing tests those of simulated memories.
        """
        whole, array = self.cam.search_energy, self.cam.array
        share = self.cells / (array.words * array.cells)
        found = given(None if whole is None else whole * share, "the search")
        return measured_width().widen(found)

    @property
    def latency_ns(self) -> Quantity:
        """Time of a query's search; a factor of 2 each way, unless a chip's own figure gives it."""
        figure = self.cam.figure("search_latency") or self.cam.figure("clock")
        known = given(self.cam.search_latency, "the search")
        if figure is None:
            return known
        spread = reference().time_spread(not self.cam.simulated and figure.is_known)
        return known.times(1, 1 / spread, spread)

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        counts = ("items", "words_per_item", "words", "cells", "arrays")
        return {
            "cam": self.cam.name,
            "cells_per_item": self.width,
            **{name: getattr(self, name) for name in counts},
            "search_energy_pj": self.energy_pj.to_json(),
            "search_latency_ns": self.latency_ns.to_json(),
        }


def search_cost(use: CamUse) -> Cost:
    """The cost of one query's search; the program counts the additions of word codes."""
    unknown = Quantity(None, ("converters of words",))
    parts = {
        "arrays": PartShare(use.energy_pj, use.latency_ns),
        "converters": PartShare(unknown, unknown),
    }
    return Cost(conversions=use.words, latency_ns=use.latency_ns + unknown, parts=parts)
