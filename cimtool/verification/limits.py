"""Limits on drift: `METRIC=VALUE`, and whether the compiled model keeps them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cimtool.base.errors import CimError
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


def parse_limits(texts: Sequence[str]) -> dict[str, float]:
    """Read `METRIC=VALUE` of each `--max-drift`; CimError for an unknown metric or no number."""
    limits: dict[str, float] = {}
    for text in texts:
        metric, equals, value = text.partition("=")
        metric = metric.strip()
        if not equals:
            raise CimError(f"--max-drift {text}: expected METRIC=VALUE, such as logit_rmse=0.2")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        check_metric(metric)
        if not math.isfinite(number):
            raise CimError(f'--max-drift {metric}: "{value}" is no finite number; expected one')
        if metric in limits:
            raise CimError(f"--max-drift {metric} is given twice; expected one value")
        limits[metric] = number
    return limits


def check_metric(metric: str) -> None:
    """Raise CimError naming the nearest known metric where there is none of this name."""
    if metric not in LIMITS:
        raise unknown("--max-drift metric", metric, LIMITS)


def check_limits(limits: Mapping[str, float], metrics: Mapping[str, float]) -> tuple[Limit, ...]:
    """Hold the metrics of the compiled model against their limits."""
    return tuple(Limit(metric, limit, metrics[metric]) for metric, limit in limits.items())
