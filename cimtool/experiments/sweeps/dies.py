"""Dies of a point: the spread of their metrics, and the yield, the share that keeps all limits.

A die is held to a limit by its own figures on the evaluation pairs. Other pairs would give others:
a die whose interval over queries holds a limit is in doubt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cimtool.base.errors import ArgumentError
from cimtool.bundle.dies import MEDIAN, WORST
from cimtool.hardware.noise.times import read_after, read_at
from cimtool.reference.binomial import counted_share
from cimtool.reference.bootstrap import Change
from cimtool.reference.limits import LIMITS, within
from cimtool.reference.measures import WAYS

WORST_OF_DIES = dict.fromkeys(LIMITS, 100 - WORST) | {f"r1_{way}": WORST for way in WAYS}
"""The percentile over dies of each metric that is the worst twentieth."""

SPREAD = ("best", "median", "worst")
"""Percentiles over dies of each metric, by name: the best twentieth, the median, the worst."""

Ends = Mapping[str, tuple[float, float]]
"""Intervals by metric."""


def spread_over_dies(
    time: str,
    corner: str | None,
    metrics: Sequence[Mapping[str, float]],
    intervals: Sequence[Ends],
) -> dict[str, Any]:
    """Plain values of dies read at a time and corner, by metric: SPREAD, and `values` of all dies.

    `low` and `high` are the ends of their intervals over queries. A metric that no die has is
    missing.
    """
    found: dict[str, Any] = {"time": time, "corner": corner}
    for name, worst in WORST_OF_DIES.items():
        if name not in metrics[0]:
            continue
        values = [one[name] for one in metrics]
        percentiles = (100 - worst, MEDIAN, worst)
        spread = (float(np.percentile(values, at)) for at in percentiles)
        found[name] = dict(zip(SPREAD, spread, strict=True)) | {"values": values}
        for index, end in enumerate(("low", "high")):
            found[name][end] = [one[name][index] for one in intervals]
    return found


def when_read(dies: Mapping[str, Any]) -> str:
    """The time and the corner at which dies were read."""
    return read_at(dies["time"], dies["corner"])


@dataclass(frozen=True)
class Yield:
    """The `kept` of so many `dies` read at a time and corner that keep all limits.

    Those `in_doubt` have an interval over queries that holds a limit, and none beyond one.
    """

    time: str
    corner: str | None
    dies: int
    kept: int
    in_doubt: int

    @property
    def share(self) -> Change:
        """The share of dies, and its interval for other dies of the same kind."""
        return counted_share(self.kept, self.dies)

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        share = self.share
        return {**asdict(self), "share": share.value, "low": share.low, "high": share.high}

    @property
    def when(self) -> str:
        """The time and the corner of reading."""
        return read_at(self.time, self.corner)

    @property
    def text(self) -> str:
        """The share with its interval, and what it was counted on."""
        one = self.share
        return (
            f"{one.value:.1%} ({100 * one.low:.1f} to {100 * one.high:.1f}), {self.kept} of "
            f"{self.dies} dies read {read_after(self.time, self.corner)}, {self.in_doubt} in doubt"
        )


def yields_of(dies: Sequence[Mapping[str, Any]], limits: Mapping[str, float]) -> tuple[Yield, ...]:
    """The yield within `limits` at each time and corner where dies have all of these metrics."""
    known = [one for one in dies if all(name in one for name in limits)] if limits else []
    return tuple(_yield(one, limits) for one in known)


def _yield(of_time: Mapping[str, Any], limits: Mapping[str, float]) -> Yield:
    kept = all_within(of_time, limits, "values")
    surely, possibly = (all_within(of_time, limits, end) for end in ("high", "low"))
    doubt = sum(maybe and not sure for sure, maybe in zip(surely, possibly, strict=True))
    return Yield(of_time["time"], of_time["corner"], len(kept), sum(kept), doubt)


def all_within(of_time: Mapping[str, Any], limits: Mapping[str, float], of: str) -> list[bool]:
    """True for each die that keeps all limits, by its `values`, or an end of its intervals."""
    held = [[within(one, most) for one in of_time[name][of]] for name, most in limits.items()]
    return [all(of_die) for of_die in zip(*held, strict=True)]


def check_min_yield(
    min_yield: float | None, trials: int | None, budget: Mapping[str, float]
) -> None:
    """Raise CimError for a share that is none, and without dies or a budget to hold them to."""
    if min_yield is None:
        return
    if not 0 < min_yield <= 1:
        raise ArgumentError(
            "{min_yield} is {:g}; expected a share of dies above 0 and up to 1, such as 0.9",
            min_yield,
        )
    if trials is None:
        raise ArgumentError("{min_yield} is a share of dies; expected {trials} with it")
    if not budget:
        raise ArgumentError(
            "{min_yield} is the share of dies within a budget; expected {budget} with it"
        )
