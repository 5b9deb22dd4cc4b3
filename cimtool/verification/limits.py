"""Limits on drift by metric, and whether the compiled model keeps them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cimtool.base.errors import Argument, ArgumentError
from cimtool.base.named import unknown
from cimtool.reference.queries import LIMITS


@dataclass(frozen=True)
class Limit:
    """A metric of the compiled model, the most it may be, and what it is."""

    metric: str
    limit: float
    value: float

    @property
    def kept(self) -> bool:
        """Whether the value is at most the limit; NaN is not."""
        return self.value <= self.limit

    def sentence(self) -> str:
        """What is over the limit, for a message."""
        return f"{self.metric} is {self.value:.6g}; the limit is {self.limit:g}"


def check_metrics(argument: str, limits: Mapping[str, float]) -> None:
    """Raise CimError for an unknown metric, with the nearest, and for a limit that is no number."""
    for metric, limit in limits.items():
        if metric not in LIMITS:
            raise ArgumentError("{} {}", Argument(argument), unknown("metric", metric, LIMITS))
        if not isinstance(limit, int | float) or not math.isfinite(limit):
            raise ArgumentError(
                "{} {}: {!r} is no finite number; expected one", Argument(argument), metric, limit
            )


def check_limits(limits: Mapping[str, float], metrics: Mapping[str, float]) -> tuple[Limit, ...]:
    """Hold the metrics of the compiled model against their limits."""
    return tuple(Limit(metric, limit, metrics[metric]) for metric, limit in limits.items())
