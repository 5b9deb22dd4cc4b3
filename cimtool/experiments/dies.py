"""Dies of a point: the spread of their metrics, and the yield, the share that keeps all limits.

Each die is checked by its figures on the evaluation pairs. Other pairs would give other figures: if
its interval over queries contains a limit, the die is in doubt. If two points have the same arrays,
die i has the same devices in both, so yields are compared die by die.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cimtool.base.errors import Argument, ArgumentError
from cimtool.base.intervals import Change
from cimtool.bundle.dies import MEDIAN, WORST, check_trials
from cimtool.hardware.noise.model import parse_time, read_after, read_at
from cimtool.reference.bootstrap import LEVEL, chance_of_split, counted_share
from cimtool.reference.limits import LIMITS, within
from cimtool.reference.measures import WAYS
from cimtool.report.formats import counted

WORST_OF_DIES = dict.fromkeys(LIMITS, 100 - WORST) | {f"r1_{way}": WORST for way in WAYS}
"""For each metric, the percentile over dies that marks the worst twentieth."""

SPREAD = ("best", "median", "worst")
"""Percentiles over dies of each metric, by name: the best twentieth, the median, the worst."""

DiesRead = Mapping[str, Any]
"""Plain values by metric of all dies of a point, read at a `time` and a `corner`."""

Ends = Mapping[str, tuple[float, float]]
"""Intervals by metric."""


@dataclass(frozen=True)
class DieRequest:
    """The number of dies per point, their seed, and the times and corners at which each is read.

    A time is, for example, `1h` after programming; None: the earliest that a noise knows. A corner
    is a name in the noise; None: the noise without a corner.
    """

    trials: int
    times: tuple[str | None, ...]
    seed: int
    corners: tuple[str | None, ...] = (None,)


def die_request(
    trials: int | None, times: Sequence[str], seed: int, corners: Sequence[str] = ()
) -> DieRequest | None:
    """The requested dies, None without `trials`; CimError for a request that makes no sense."""
    if trials is None:
        for name in ("times",) * bool(times) + ("corners",) * bool(corners):
            raise ArgumentError(
                "{} applies only to dies; expected {trials} with it", Argument(name)
            )
        return None
    check_trials(trials, seed)
    seconds = [parse_time(time) for time in times]
    if len(set(seconds)) < len(seconds):
        raise ArgumentError("{times}: {} repeats a time; expected each once", ", ".join(times))
    if len(set(corners)) < len(corners):
        raise ArgumentError(
            "{corners}: {} repeats a corner; expected each once", ", ".join(corners)
        )
    return DieRequest(trials, tuple(times) or (None,), seed, tuple(corners) or (None,))


def spread_over_dies(
    time: str, corner: str | None, metrics: Sequence[Mapping[str, float]], intervals: Sequence[Ends]
) -> dict[str, Any]:
    """Plain values of dies read at a time and corner, by metric: SPREAD, and `values` of all dies.

    `low` and `high` are the ends of the dies' intervals over queries. Metrics that no die has are
    left out.
    """
    found: dict[str, Any] = {"time": time, "corner": corner}
    for name, worst in WORST_OF_DIES.items():
        if name in metrics[0]:
            values = [one[name] for one in metrics]
            spread = (float(np.percentile(values, at)) for at in (100 - worst, MEDIAN, worst))
            found[name] = dict(zip(SPREAD, spread, strict=True)) | {"values": values}
            for index, end in enumerate(("low", "high")):
                found[name][end] = [one[name][index] for one in intervals]
    return found


def when_read(dies: DiesRead) -> str:
    """The time and the corner at which dies were read."""
    return read_at(dies["time"], dies["corner"])


def all_within(dies: DiesRead, limits: Mapping[str, float], of: str) -> list[bool]:
    """True for each die whose figures `of` ("values", "low" or "high") keep all limits."""
    held = [[within(one, most) for one in dies[name][of]] for name, most in limits.items()]
    return [all(of_die) for of_die in zip(*held, strict=True)]


@dataclass(frozen=True)
class Yield:
    """The number of `dies`, read at a time and corner, that keep all limits: `kept`.

    A die is `in_doubt` if an interval over queries contains a limit and none lies beyond one.
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
        """The share with its interval, and the numbers of dies behind it."""
        one = self.share
        return (
            f"{one.value:.1%} ({100 * one.low:.1f} to {100 * one.high:.1f}), {self.kept} of "
            f"{self.dies} dies read {read_after(self.time, self.corner)}, {self.in_doubt} in doubt"
        )


def yields_of(dies: Sequence[DiesRead], limits: Mapping[str, float]) -> tuple[Yield, ...]:
    """The yield within `limits` at each time and corner at which dies have all of these metrics."""
    found = []
    for one in dies:
        if limits and limits.keys() <= one.keys():
            kept, surely, possibly = (
                all_within(one, limits, of) for of in ("values", "high", "low")
            )
            doubt = sum(maybe and not sure for sure, maybe in zip(surely, possibly, strict=True))
            found.append(Yield(one["time"], one["corner"], len(kept), sum(kept), doubt))
    return tuple(found)


@dataclass(frozen=True)
class YieldDifference:
    """The dies that only one of two points keeps, read at a time and corner.

    `best` has the highest yield there. `chance` is from McNemar's exact test, times the number of
    pairs of points, because `best` was picked on the same dies (Bonferroni).
    """

    time: str
    corner: str | None
    best: int
    other: int
    dies: int
    only_best: int
    only_other: int
    chance: float

    @property
    def told_apart(self) -> bool:
        """True if equal points would rarely differ as much on other dies."""
        return self.chance < 1 - LEVEL

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {**asdict(self), "told_apart": self.told_apart}


def yield_differences(
    dies: Sequence[Sequence[DiesRead]], limits: Mapping[str, float], chosen: int | None = None
) -> tuple[YieldDifference, ...]:
    """The best point compared with each other point, at each time and corner of reading.

    Among points with equal yields, the best is the `chosen` point, or the first.
    """
    kept: dict[tuple[str, str | None], dict[int, list[bool]]] = {}
    for index, of_point in enumerate(dies):
        for one in of_point:
            if limits and limits.keys() <= one.keys():
                reading = one["time"], one["corner"]
                kept.setdefault(reading, {})[index] = all_within(one, limits, "values")
    found = []
    for (time, corner), points in kept.items():
        best = max(points, key=lambda i: (sum(points[i]), i == chosen, -i))
        pairs = len(points) * (len(points) - 1) // 2
        for other, of_other in points.items():
            if other != best:
                both = list(zip(points[best], of_other, strict=True))
                more, less = both.count((True, False)), both.count((False, True))
                chance = min(1.0, pairs * chance_of_split(more, less))
                found.append(
                    YieldDifference(time, corner, best, other, len(both), more, less, chance)
                )
    return tuple(found)


def difference_sentences(found: Sequence[YieldDifference]) -> list[str]:
    """A sentence for each time and corner on the points that keep fewer dies, beyond chance."""
    sentences = []
    for reading in dict.fromkeys((one.time, one.corner) for one in found):
        those = [one for one in found if (one.time, one.corner) == reading]
        points = (len(those) + 1) * len(those) // 2
        fewer = [one.other for one in those if one.told_apart]
        alike = [one.other for one in those if not one.told_apart]
        parts = [f"more than {_points(fewer)} by more than chance"] if fewer else []
        parts += [f"not told apart from {_points(alike)}"] if alike else []
        sentences.append(
            f"yield {read_after(*reading)}: of {counted(those[0].dies, 'die')} point "
            f"{those[0].best} keeps most, {', '.join(parts)} (McNemar's exact test on the same "
            f"dies, 5% over all {counted(points, 'pair')} of points)"
        )
    return sentences


def _points(numbers: Sequence[int]) -> str:
    return f"point{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
