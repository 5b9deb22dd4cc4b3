"""The objective of a choice of bits: one cost to lower, or a weighted sum of several."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from cimtool.base.errors import ArgumentError
from cimtool.base.named import unknown

CostName = Literal["query_energy", "encoding_energy", "latency", "arrays", "conversions"]
"""Costs of a choice.

`query_energy` in pJ and `latency` in ns are of one text that is encoded and scored against a
gallery, `encoding_energy` of a text and a video that are encoded. `arrays` hold both projectors,
`conversions` encode a text and a video; a gallery in the arrays adds its own to both.
"""

COSTS: tuple[CostName, ...] = get_args(CostName)

TIES: Mapping[CostName, CostName] = {"arrays": "conversions", "conversions": "arrays"}
"""Counts that many bits leave as they are: a second cost to lower if nothing lowers the first."""

EXAMPLE = "query_energy=1,arrays=0.5"


@dataclass(frozen=True)
class CostObjective:
    """Weights of costs, each a share of what it is in `first`, the costs of the start."""

    weights: Mapping[CostName, float]
    first: Mapping[CostName, float] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> CostObjective:
        """Read a cost, or `COST=WEIGHT,...`; CimError for another name or weight."""
        weights: dict[CostName, float] = {}
        for part in text.split(","):
            name, equals, weight = (one.strip() for one in part.partition("="))
            cost = next((known for known in COSTS if known == name), None)
            if cost is None:
                raise ArgumentError("{objective} {}", str(unknown("cost", name, COSTS)))
            if cost in weights:
                raise ArgumentError("{objective} {} is given twice; expected one weight", name)
            weights[cost] = _weight(name, weight) if equals else 1.0
        return cls(weights)

    @property
    def text(self) -> str:
        """The objective as it is given: a cost, or `query_energy=1,arrays=0.5`."""
        if list(self.weights.values()) == [1.0]:
            return next(iter(self.weights))
        return ",".join(f"{name}={weight:g}" for name, weight in self.weights.items())

    @property
    def of_query(self) -> bool:
        """True if a query takes part in it."""
        return "query_energy" in self.weights or "latency" in self.weights

    @property
    def of_energy(self) -> bool:
        """True if energies take part in it."""
        return "query_energy" in self.weights or "encoding_energy" in self.weights

    @property
    def of_counts(self) -> bool:
        """True if counts take part in it."""
        return bool(TIES.keys() & self.weights.keys())

    @property
    def _tie(self) -> CostName | None:
        """The count that breaks ties, of a single one."""
        first, *others = self.weights
        return None if others else TIES.get(first)

    @property
    def needed(self) -> tuple[CostName, ...]:
        """The costs that prices are made from."""
        return (*self.weights, *(() if self._tie is None else (self._tie,)))

    def prices(self, costs: Mapping[CostName, float]) -> tuple[float, ...]:
        """The weighted sum of costs, and for a single count the one that breaks ties."""
        own = self.weighted(costs)
        return (own,) if self._tie is None else (own, self._share(self._tie, costs))

    def weighted(self, costs: Mapping[CostName, float]) -> float:
        """The weighted sum of costs, as shares of what they are in `first`."""
        return sum(weight * self._share(name, costs) for name, weight in self.weights.items())

    def _share(self, name: CostName, costs: Mapping[CostName, float]) -> float:
        """A cost as a share of what it is in `first`."""
        return costs[name] / (self.first.get(name, 1.0) or 1.0)


def _weight(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ArgumentError(
            "{objective} {}={}: a weight is a number above 0; expected such as {}",
            name, text, EXAMPLE,
        )  # fmt: skip
    return value
