"""Yields of two points held against each other on the same dies: more than chance, or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cimtool.experiments.sweeps.dies import all_within, when_read
from cimtool.hardware.noise.times import read_after
from cimtool.reference.binomial import chance_of_split
from cimtool.reference.bootstrap import LEVEL
from cimtool.report.formats import counted


@dataclass(frozen=True)
class YieldDifference:
    """The dies that one of two points keeps and the other does not, read at a time and corner.

    `best` has the highest yield there. `chance` is that of McNemar's exact test, times the number
    of pairs of points, for `best` was picked on these dies (Bonferroni).
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
        """True where other dies would rarely show as much if both kept the same share."""
        return self.chance < 1 - LEVEL

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {**asdict(self), "told_apart": self.told_apart}


def yield_differences(
    dies: Sequence[Sequence[Mapping[str, Any]]],
    limits: Mapping[str, float],
    chosen: int | None = None,
) -> tuple[YieldDifference, ...]:
    """The best point beside each other one, at each time and corner of reading.

    Die i of all points is one pair of outcomes: it has the same devices where arrays are the same.
    Of points with equal yields the best is the `chosen` one, or the first.
    """
    kept: dict[str, dict[int, list[bool]]] = {}
    places: dict[str, tuple[str, str | None]] = {}
    for index, of_point in enumerate(dies):
        for one in of_point:
            if limits and limits.keys() <= one.keys():
                when = when_read(one)
                kept.setdefault(when, {})[index] = all_within(one, limits, "values")
                places[when] = (one["time"], one["corner"])
    return tuple(
        difference
        for when, of_points in kept.items()
        for difference in _of_reading(*places[when], of_points, chosen)
    )


def _of_reading(
    time: str, corner: str | None, kept: Mapping[int, Sequence[bool]], chosen: int | None
) -> Iterator[YieldDifference]:
    best = max(kept, key=lambda index: (sum(kept[index]), index == chosen, -index))
    pairs = len(kept) * (len(kept) - 1) // 2
    for other, of_other in kept.items():
        if other != best:
            both = list(zip(kept[best], of_other, strict=True))
            more, less = both.count((True, False)), both.count((False, True))
            chance = min(1.0, pairs * chance_of_split(more, less))
            yield YieldDifference(time, corner, best, other, len(both), more, less, chance)


def difference_sentences(found: Sequence[YieldDifference]) -> list[str]:
    """A sentence for each time and corner: which points keep fewer dies by more than chance."""
    readings = dict.fromkeys((one.time, one.corner) for one in found)
    return [_sentence([one for one in found if (one.time, one.corner) == of]) for of in readings]


def _sentence(found: Sequence[YieldDifference]) -> str:
    first, many = found[0], len(found) + 1
    fewer = [one.other for one in found if one.told_apart]
    alike = [one.other for one in found if not one.told_apart]
    parts = [f"than {_points(fewer)} by more than chance"] if fewer else []
    parts += [f"not told apart from {_points(alike)}"] if alike else []
    if fewer:
        parts[0] = f"more {parts[0]}"
    return (
        f"yield {read_after(first.time, first.corner)}: of {counted(first.dies, 'die')} point "
        f"{first.best} keeps most, {', '.join(parts)} (McNemar's exact test on the same dies, 5% "
        f"over all {counted(many * (many - 1) // 2, 'pair')} of points)"
    )


def _points(numbers: Sequence[int]) -> str:
    return f"point{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
