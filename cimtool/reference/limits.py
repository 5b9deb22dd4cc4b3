"""Metrics that a limit or a budget can be put on, and limits held."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cimtool.base.errors import Argument, ArgumentError
from cimtool.base.intervals import Change, Interval
from cimtool.base.named import unknown
from cimtool.reference.measures import DIFFERENCES, RANKINGS
from cimtool.reference.queries import worse_losses
from cimtool.reference.truth import Truth

LIMITED = tuple(one for one in DIFFERENCES if one.limit)
"""Metrics of differences from the reference, which need no right items."""

UNRANKED_LIMITS = tuple(one.limit for one in LIMITED)
LIMITS = (*UNRANKED_LIMITS, *(metric.loss for metric in RANKINGS))


def limit_metrics(own: Mapping[str, float], reference: Mapping[str, float]) -> dict[str, float]:
    """The metrics of LIMITS by name, from the metrics of two rows.

    Losses are of the worse direction, with shares as fractions; negative if the scores do better.
    Losses of rankings are missing if nothing is ranked, the logit RMSE if the scores are no
    logits, and the loss of agreement if the scores were not compared.
    """
    found = {one.limit: one.lost(own[one.name]) for one in LIMITED if one.name in own}
    return found | worse_losses(own, reference)


def limit_changes(
    metrics: Mapping[str, float],
    intervals: Mapping[str, Interval],
    losses: Mapping[str, Change],
) -> dict[str, Change]:
    """The metrics of LIMITS of one row, each with its interval."""
    found = {}
    for one in LIMITED:
        if one.name in metrics:
            ends = intervals[one.name]
            low, high = sorted((one.lost(ends.low), one.lost(ends.high)))
            found[one.limit] = Change(one.lost(metrics[one.name]), low, high)
    return found | {one.loss: losses[one.loss] for one in RANKINGS if one.loss in losses}


ROUNDING = 1e-12
"""Rounding by which a value may exceed its limit: a loss is a difference of two shares."""


def within(value: float, limit: float) -> bool:
    """True if a metric keeps its limit, up to the rounding of 0.93 - 0.91; False for NaN."""
    return value <= limit + ROUNDING


@dataclass(frozen=True)
class DriftLimit:
    """A metric of the compiled model, its limit, its value, and its interval if known.

    If the reference itself is broken, `founded` is False and the limit is never kept.
    """

    metric: str
    limit: float
    value: float
    interval: Interval | None = None
    founded: bool = True

    @property
    def kept(self) -> bool:
        """True if the value is within the limit and the reference is not broken."""
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
    """Raise CimError for an unknown metric, with the nearest, or a limit that is not finite."""
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


OF_LOGIT = tuple(metric.loss for metric in RANKINGS if metric.of_logit)
"""Limits that need the logit of a matching probability."""


def check_measurable(
    argument: str, limits: Mapping[str, float], truth: Truth, where: str, of_logit: bool
) -> None:
    """Raise CimError for a limit that nothing can be held against.

    It is one of a ranking if nothing is ranked, where `where` names the data, or one of a
    probability if scores are not `of_logit`.
    """
    for metric in limits:
        if metric in OF_LOGIT and not of_logit:
            raise ArgumentError(
                "{} {}: the score is not the logit of a matching probability; expected another "
                "metric than {}",
                Argument(argument),
                metric,
                ", ".join(OF_LOGIT),
            )
        if not truth.ranks and metric not in UNRANKED_LIMITS:
            raise ArgumentError(
                "{} {}: {} holds items of one modality and no two share a label, so no item is "
                "right for any query; expected labels, or a limit of {}",
                Argument(argument),
                metric,
                where,
                " or ".join(UNRANKED_LIMITS),
            )
