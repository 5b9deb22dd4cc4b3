"""The results of a sweep, and their files: JSON for all, a CSV or Parquet table of the points."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from cimtool import __version__
from cimtool.base.extras import needing
from cimtool.base.files import text_bytes
from cimtool.base.grids import GridKey
from cimtool.experiments.sweeps.choice import COSTS, SCORE_COSTS, Choice, front
from cimtool.experiments.sweeps.dies import SPREAD, Yield, when_read, yields_of
from cimtool.experiments.sweeps.evaluator import DieRequest, Outcome
from cimtool.experiments.sweeps.folder import FORMAT_VERSION
from cimtool.experiments.sweeps.grid import SCORE_KEYS, Point
from cimtool.experiments.sweeps.remarks import Remarks, raw_sentences
from cimtool.experiments.sweeps.yield_differences import YieldDifference, yield_differences
from cimtool.report.result import Result

TableFormat = Literal["csv", "parquet"]
JSON_FILE = "results.json"
TABLES = ("results.csv", "results.parquet")


@dataclass(frozen=True, repr=False)
class Sweep(Result, shown_by="cimtool.experiments.sweeps.page"):
    """All points of a sweep, in the order of the grid.

    `baselines` are the metrics of scores that no hardware has touched, with their intervals;
    `remarks` are told beside all figures. `resumed` points were done by an earlier run; `files` are
    those that the model was read from, with the SHA-256 of each.
    """

    model: str
    data: Mapping[str, Any]
    reference: str
    baselines: Mapping[str, Mapping[str, float]]
    baseline_intervals: Mapping[str, Mapping[str, tuple[float, float]]]
    remarks: Remarks
    grid: Sequence[GridKey]
    dies: DieRequest | None
    points: Sequence[Point]
    outcomes: Sequence[Outcome]
    resumed: int
    files: Sequence[tuple[str, str]] = ()
    chosen: Choice | None = None
    written: Sequence[Path] = ()

    def numbered(self) -> Iterator[tuple[int, Point, Outcome]]:
        """Each point with its number and its outcome."""
        pairs = zip(self.points, self.outcomes, strict=True)
        return ((index, point, outcome) for index, (point, outcome) in enumerate(pairs))

    @property
    def failed(self) -> int:
        """The number of points that gave nothing."""
        return sum(outcome.error is not None for outcome in self.outcomes)

    @property
    def sampled(self) -> set[int]:
        """The points that are Monte Carlo, which nothing compiles."""
        return {index for index, one in enumerate(self.points) if one.score.samples is not None}

    @property
    def by_class(self) -> bool:
        """True where classes or judgements say what is right, so that their metrics lead."""
        return bool(self.data.get("by_class"))

    @property
    def first(self) -> list[str]:
        """Sentences that a reader must see before any figure."""
        chosen = None if self.chosen is None else self.chosen.index
        losses = [outcome.against_raw for outcome in self.outcomes]
        return self.remarks.first(raw_sentences(losses, chosen))

    @property
    def costs(self) -> Mapping[str, str]:
        """The costs that tell points apart, by name: multiplications too where scores differ."""
        return SCORE_COSTS if any(key.path[0] in SCORE_KEYS for key in self.grid) else COSTS

    @property
    def fronts(self) -> dict[str, list[int]]:
        """The points on each Pareto front, by the cost that drift is held against."""
        return {cost: front(self.outcomes, cost, self.units) for cost in self.costs}

    @property
    def limits(self) -> Mapping[str, float]:
        """The budget that dies are held to; none against a float score that is broken itself."""
        founded = self.chosen is not None and not self.remarks.broken_reference
        return self.chosen.budget if self.chosen is not None and founded else {}

    @cached_property
    def yields(self) -> list[tuple[Yield, ...]]:
        """The yield of each point at each time; empty without dies or a budget."""
        return [yields_of(outcome.dies, self.limits) for outcome in self.outcomes]

    @cached_property
    def yield_differences(self) -> tuple[YieldDifference, ...]:
        """The point of the highest yield beside each other one, on the same dies."""
        chosen = None if self.chosen is None else self.chosen.index
        return yield_differences([one.dies for one in self.outcomes], self.limits, chosen)

    @cached_property
    def yield_times(self) -> list[str]:
        """The times and corners at which any point has a yield."""
        return list(dict.fromkeys(one.when for yields in self.yields for one in yields))

    @property
    def units(self) -> list[str]:
        """The kind of array of each point."""
        return [point.unit for point in self.points]

    def to_json(self) -> dict[str, Any]:
        """Plain values by name: the same whatever computed the points, and in how many runs."""
        yields = self.yields
        return {
            "format_version": FORMAT_VERSION,
            "cimtool_version": __version__,
            "model": self.model,
            "files": {Path(name).name: digest for name, digest in self.files},
            "warnings": self.first,
            "data": dict(self.data),
            "reference": self.reference,
            "baselines": {name: dict(values) for name, values in self.baselines.items()},
            "baseline_intervals": {
                name: {key: list(ends) for key, ends in values.items()}
                for name, values in self.baseline_intervals.items()
            },
            "grid": {key.name: list(key.values) for key in self.grid},
            "dies": None if self.dies is None else vars(self.dies),
            "points": [
                {
                    "point": index,
                    "values": point.named,
                    **_public(outcome),
                    "yields": [one.to_json() for one in yields[index]],
                }
                for index, point, outcome in self.numbered()
            ],
            "yield_differences": [one.to_json() for one in self.yield_differences],
            "pareto": self.fronts,
            "budget": None if self.chosen is None else self.chosen.to_json(),
            "notes": list(self.remarks.notes),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One flat row a point, all with the same columns; None where there is no value."""
        yields = self.yields
        rows = [
            {"point": index, **point.named, **_flat(outcome, yields[index])}
            for index, point, outcome in self.numbered()
        ]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        columns.sort(key=LAST.__contains__)
        return [{name: row.get(name) for name in columns} for row in rows]


def _public(outcome: Outcome) -> dict[str, Any]:
    """A point's outcome in the results, where warnings stand among the notes."""
    return {name: value for name, value in outcome.to_json().items() if name != "warnings"}


LAST = ("error", "notes")
"""Columns of long texts, after all others."""


def _flat(outcome: Outcome, yields: Sequence[Yield]) -> dict[str, Any]:
    row: dict[str, Any] = {"state": outcome.to_json()["state"], **outcome.metrics}
    for name, ends in outcome.intervals.items():
        row |= dict(zip((f"{name}_low", f"{name}_high"), ends, strict=True))
    if outcome.against_raw is not None:
        loss = outcome.against_raw.loss
        row |= {"loss_from_raw": loss.value, "loss_from_raw_low": loss.low}
        row |= {"loss_from_raw_high": loss.high}
    row |= outcome.cost
    for values in outcome.dies:
        time = _column(when_read(values))
        for name, found in values.items():
            if isinstance(found, Mapping):
                row |= {f"{name}_{time}_{which}": found[which] for which in SPREAD}
    for one in yields:
        name = f"yield_{_column(one.when)}"
        share = one.share
        row |= {name: share.value, f"{name}_low": share.low, f"{name}_high": share.high}
        row[f"{name}_in_doubt"] = one.in_doubt
    return row | {"error": outcome.error, "notes": "; ".join(outcome.notes)}


def _column(when: str) -> str:
    """A time and a corner in the name of a column: `1h_ss`."""
    return when.replace(", ", "_").replace(" ", "")


def sweep_files(sweep: Sweep, table: TableFormat) -> dict[str, bytes]:
    """The results as files by name: JSON, and a table as CSV or Parquet."""
    text = json.dumps(sweep.to_json(), indent=1) + "\n"
    rows = sweep.rows()
    content = _csv(rows) if table == "csv" else _parquet(rows)
    return {JSON_FILE: text.encode(), f"results.{table}": content}


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: str(v).lower() if isinstance(v, bool) else v for k, v in row.items()})
    return text_bytes(stream.getvalue())


def check_format(table: TableFormat) -> None:
    """Raise CimError for Parquet without the extra that writes it."""
    if table == "parquet":
        with needing("a table as parquet", "one as csv"):
            import pyarrow.parquet  # noqa: F401


def _parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    columns = {name: _of_one_kind([row[name] for row in rows]) for name in rows[0]}
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), stream)
    return stream.getvalue()


def _of_one_kind(values: list[Any]) -> list[Any]:
    """A column as it is, or as texts where it holds both numbers and texts (`lossless`)."""
    texts = [isinstance(value, str) for value in values if value is not None]
    if any(texts) and not all(texts):
        return [None if value is None else str(value) for value in values]
    return values
