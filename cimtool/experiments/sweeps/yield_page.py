"""Pictures of the yield of a sweep's points against the values of its grid."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cimtool.base.grids import Value, value_text
from cimtool.experiments.sweeps.choice import held_text
from cimtool.experiments.sweeps.results import Sweep
from cimtool.hardware.noise.times import read_after
from cimtool.reference.bootstrap import Change
from cimtool.report.charts import Ranges, ranges
from cimtool.report.document import Picture
from cimtool.report.svg import SERIES

MOST = 12
"""Most pictures; the table has all points."""

GridPlace = tuple[Value | None, ...]


@dataclass(frozen=True)
class Axes:
    """The keys of the grid as a picture has them: along its axis, as its lines, and elsewhere."""

    along: str
    line: str | None
    others: tuple[str, ...]

    @classmethod
    def of(cls, sweep: Sweep) -> Axes:
        """The key with the most values along the axis, the next as lines; ties as they stand."""
        keys = sorted(sweep.grid, key=lambda key: -len(key.values))
        along, *rest = [key.name for key in keys]
        several = [key.name for key in keys[1:] if len(key.values) > 1]
        line = several[0] if several else None
        return cls(along, line, tuple(name for name in rest if name != line))


def yield_pictures(sweep: Sweep) -> list[Picture]:
    """Pictures of the yield of all points with their intervals."""
    known: dict[str, dict[GridPlace, Change]] = {}
    axes = Axes.of(sweep)
    for point, yields in zip(sweep.points, sweep.yields, strict=True):
        place = tuple(map(point.named.get, (axes.along, axes.line or "", *axes.others)))
        for one in yields:
            known.setdefault(read_after(one.time, one.corner), {})[place] = one.share
    every = (_of_time(sweep, axes, time, shares) for time, shares in known.items())
    drawn = itertools.islice(itertools.chain.from_iterable(every), MOST)
    return [Picture(f"yield {i}", *one) for i, one in enumerate(drawn)]


def _of_time(
    sweep: Sweep, axes: Axes, time: str, shares: Mapping[GridPlace, Change]
) -> Iterator[tuple[str, str]]:
    """A picture for each combination of the other keys, and for each SERIES lines."""
    places = _in_order(dict.fromkeys(place[0] for place in shares))
    for elsewhere in dict.fromkeys(place[2:] for place in shares):
        lines = list(dict.fromkeys(place[1] for place in shares if place[2:] == elsewhere))
        for few in (lines[i : i + SERIES] for i in range(0, len(lines), SERIES)):
            drawn = [
                Ranges(
                    "" if axes.line is None else f"{axes.line}={_text(line)}",
                    [shares.get((place, line, *elsewhere)) for place in places],
                )
                for line in few
            ]
            where = [f"{k}={_text(v)}" for k, v in zip(axes.others, elsewhere, strict=True)]
            yield _picture(sweep, axes, time, [_text(one) for one in places], drawn, where)


def _picture(
    sweep: Sweep,
    axes: Axes,
    time: str,
    places: Sequence[str],
    lines: Sequence[Ranges],
    where: Sequence[str],
) -> tuple[str, str]:
    held = f"dies with {held_text(sweep.limits)}, read {time}"
    fixed = f" at {', '.join(where)}" if where else ""
    spoken = "; ".join(
        f"{place}: {100 * value.value:.0f}% ({100 * value.low:.0f} to {100 * value.high:.0f})"
        for line in lines
        for place, value in zip(places, line.values, strict=True)
        if value is not None
    )
    label = f"Share of {held}, against {axes.along}{fixed}: {spoken}"
    chart = ranges(lines, places, axes.along, "yield", label)
    return chart, f"Share of {held}{fixed}, with its 95% interval over dies."


def _in_order(values: Mapping[Value | None, None]) -> list[Value | None]:
    """Numbers from the least on; with words among them as the grid has them."""
    numbers = [one for one in values if isinstance(one, int | float)]
    return list(values) if len(numbers) < len(values) else [*sorted(numbers)]


def _text(value: Value | None) -> str:
    return "-" if value is None else value_text(value)
