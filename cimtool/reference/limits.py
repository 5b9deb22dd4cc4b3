"""Metrics that a limit or a budget can be put on, and limits held."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cimtool.base.errors import Argument, ArgumentError
from cimtool.base.named import unknown
from cimtool.reference.bootstrap import Change, Interval
from cimtool.reference.measures import DIFFERENCES, RANKINGS
from cimtool.reference.queries import worse_losses
from cimtool.reference.truth import Truth

LIMITED = tuple(one for one in DIFFERENCES if one.limit)
"""Metrics of differences from the reference, which need nothing that is right."""

UNRANKED_LIMITS = tuple(one.limit for one in LIMITED)
LIMITS = (*UNRANKED_LIMITS, *(metric.loss for metric in RANKINGS))


def limit_metrics(own: Mapping[str, float], reference: Mapping[str, float]) -> dict[str, float]:
    """The metrics of LIMITS by name, from the metrics of two rows.

    Losses are the worse of both directions, shares as fractions; negative where the scores do
    better. Those of rankings are missing where nothing is ranked, that of logits for scores that
    are none, and that of agreement for scores that were not compared.
    """
    found = {one.limit: one.lost(own[one.name]) for one in LIMITED if one.name in own}
    return found | worse_losses(own, reference)


def limit_changes(
    metrics: Mapping[str, float],
    intervals: Mapping[str, Interval],
    losses: Mapping[str, Change],
) -> dict[str, Change]:
    """The same of one row with its uncertainty: each metric with its interval."""
    found = {}
    for one in LIMITED:
        if one.name in metrics:
            ends = intervals[one.name]
            low, high = sorted((one.lost(ends.low), one.lost(ends.high)))
            found[one.limit] = Change(one.lost(metrics[one.name]), low, high)
    return found | {one.loss: losses[one.loss] for one in RANKINGS if one.loss in losses}


def limits_text() -> str:
    """The names of LIMITS, and what they are of."""
    errors = ", ".join(
        f"{one.limit} (the error that can change a rank)" if one is LIMITED[0] else one.limit
        for one in LIMITED
    )
    first, *others = RANKINGS
    return (
        f"{errors}, and losses of retrieval as fractions, the worse of both directions: "
        f"{first.loss}, likewise for {', '.join(one.name for one in others)}"
    )


ROUNDING = 1e-12
"""The amount that a value may be above its limit: a loss is a difference of two shares."""


def within(value: float, limit: float) -> bool:
    """Hold a metric to its limit, but for what float64 makes of 0.93 - 0.91; NaN is not within."""
    return value <= limit + ROUNDING


@dataclass(frozen=True)
class DriftLimit:
    """A metric of the compiled model, the most it may be, what it is, and its interval if known.

    One that is not `founded` is against a reference that is broken itself, and never kept.
    """

    metric: str
    limit: float
    value: float
    interval: Interval | None = None
    founded: bool = True

    @property
    def kept(self) -> bool:
        """True if the value is within the limit, and against a reference that is not broken."""
        return self.founded and within(self.value, self.limit)

    @property
    def text(self) -> str:
        """The value and its interval."""
        value = f"{self.value + 0.0:.6g}"  # a sum with 0 has no negative zero
        if self.interval is None:
            return value
        return f"{value} ({self.interval.low + 0.0:.4g} to {self.interval.high + 0.0:.4g})"

    def sentence(self) -> str:
        """The metric and its limit, for a message."""
        if not self.founded:
            return (
                f"{self.metric} is {self.text} against a float score that is BROKEN, so no limit "
                "is kept"
            )
        return f"{self.metric} is {self.text}; the limit is {self.limit:g}"


def check_metrics(argument: str, limits: Mapping[str, float]) -> None:
    """Raise CimError for an unknown metric, with the nearest, and for a limit that is no number."""
    for metric, limit in limits.items():
        if metric not in LIMITS:
            raise ArgumentError("{} {}", Argument(argument), unknown("metric", metric, LIMITS))
        if not isinstance(limit, int | float) or not math.isfinite(limit):
            raise ArgumentError(
                "{} {}: {!r} is not a finite number; expected one",
                Argument(argument),
                metric,
                limit,
            )


def check_measurable(argument: str, limits: Mapping[str, float], truth: Truth, where: str) -> None:
    """Raise CimError for a limit of a ranking where nothing is ranked; `where` names the data."""
    for metric in limits:
        if not truth.ranks and metric not in UNRANKED_LIMITS:
            raise ArgumentError(
                "{} {}: {} holds items of one modality and no two share a label, so no item is "
                "right for any query; expected labels, or a limit of {}",
                Argument(argument),
                metric,
                where,
                " or ".join(UNRANKED_LIMITS),
            )
