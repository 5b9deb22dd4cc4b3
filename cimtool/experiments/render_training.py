"""A grid of trainings for a reader: the verdict, a table of all rows, a page with pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

from cimtool.base.grids import value_text
from cimtool.base.intervals import Change
from cimtool.base.modality_names import sizes_text, way_names
from cimtool.experiments.engine import FEW_FAILED, key_column, values_text
from cimtool.experiments.trained_points import seconds_in
from cimtool.experiments.training_grid import LEAD, SEED, TrainingGrid, TrainingRow
from cimtool.reference.bootstrap import RESAMPLES
from cimtool.reference.measures import RANKINGS, WAYS
from cimtool.reference.metrics import RAW
from cimtool.report.charts import ParetoPoint, Whisker, pareto, whiskers
from cimtool.report.document import (
    Document,
    FactList,
    Picture,
    Section,
    Sentence,
    Verbatim,
    noted,
)
from cimtool.report.formats import NumberFormat, counted, four_digits, number, percent, whole
from cimtool.report.svg import percent_tick
from cimtool.report.table import Cell, Column, Content, Table, item_table, make_table
from cimtool.training.history import MEASURES
from cimtool.training.trainer import BEST


def document(found: TrainingGrid) -> Document:
    """The best row, every row, and the grid and the data."""
    failed, sizes = failures(found), _sizes(found)
    caption = f"{found.lead} of each way with its interval; the best row is bold."
    drawn = [Picture("rows", _picture(found), caption)] if found.rows else []
    if sizes:
        lacking = f"What is lacking of {found.lead} against weights; both are better when lower."
        drawn.append(Picture("sizes", sizes, lacking))
    common = [f"{name}={value_text(value)}" for name, value in found.common.items()]
    trained = (
        ("points", f"{len(found.points)}, {found.failed} failed"),
        ("data", found.data),
        ("grid", "; ".join(map(str, found.grid))),
        ("of all points", "; ".join(common) or "none"),
    )
    return Document(
        f"Trainings on {found.data}",
        (
            *(Sentence(one, "verdict") for one in verdict(found)),
            *noted(failed, FEW_FAILED),
            Section(f"{found.lead} of every row", (*drawn, rows_table(found).named("rows"))),
            Section("What was trained", (FactList(trained, "detail"),)),
        ),
        found.to_json,
    )


def best_models(found: TrainingGrid) -> list[Verbatim]:
    """A line with the checkpoints of the best row; none if all points failed."""
    best = () if found.best is None else found.rows[found.best].points
    models = [folder / BEST for index in best if (folder := found.folders[index]) is not None]
    return [Verbatim(f"trained by the best row: {', '.join(map(str, models))}")] * bool(models)


def time_table(found: TrainingGrid) -> Table:
    """The time of each training; not part of the page, whose bytes follow from the inputs."""

    def seconds(row: TrainingRow) -> Content:
        folders = (found.folders[index] for index in row.points)
        times = [None if one is None else seconds_in(one) for one in folders]
        return ", ".join("-" if one is None else f"{one:.1f} s" for one in times) or None

    columns = (
        (Column("row"), lambda row: str(found.rows.index(row))),
        (Column("time of each seed"), seconds),
    )
    return item_table("Time of training", found.rows, columns).named("times", "detail")


def failures(found: TrainingGrid) -> list[str]:
    """A line for each point that failed."""
    return [
        f"point {index} ({values_text(point.named)}) failed: {outcome.error}"
        for index, point, outcome in found.numbered()
        if outcome.error is not None
    ]


def row_name(found: TrainingGrid, row: TrainingRow) -> str:
    """The number and the values of a row, or the name of the raw embeddings."""
    if row is found.raw:
        return RAW
    return f"row {found.rows.index(row)}{f' ({values_text(row.values)})' * bool(row.values)}"


def verdict(found: TrainingGrid) -> list[str]:
    """Sentences on the best row, after the rows that are as good at a lower price."""
    if found.best is None:
        return []
    best, lines = found.rows[found.best], []
    raw = found.raw
    if raw is not None and raw.behind is not None and raw.as_good:
        said = (
            "Raw embeddings by cosine, which no training made, are better than every row"
            if raw.behind.high < 0
            else "No row is surely better than raw embeddings by cosine, which no training made"
        )
        lines.append(
            f"{said}: {found.lead} {_share(raw.metrics[LEAD].value)} of the raw ones, "
            f"{_share(best.metrics[LEAD].value)} of the best row, a difference of "
            f"{_points(raw.behind)}."
        )
    cheaper = [one for one in found.rows if one.as_good and found.price(one) < found.price(best)]
    if cheaper:
        one = min(cheaper, key=lambda row: (found.price(row), -row.metrics[LEAD].value))
        assert one.behind is not None
        lines.append(
            f"A cheaper row is not surely worse: {row_name(found, one)}, "
            f"{_price(found, one, best)}; its {found.lead} of "
            f"{_share(one.metrics[LEAD].value)} is {_points(one.behind)} below."
        )
    lines.append(
        f"Best of {counted(len(found.rows), 'row')}: {row_name(found, best)}, {found.lead} "
        f"{_interval(best.metrics[LEAD], _share)}, mean of both ways.{_next(found)}"
    )
    return lines


def _next(found: TrainingGrid) -> str:
    """The second-best row, and whether the best is known to be better."""
    others = [one for one in found.rows if one.behind is not None]
    if not others:
        return ""
    second = max(others, key=lambda row: row.metrics[LEAD].value)
    behind = second.behind
    assert behind is not None
    out = "leaves 0 out" if behind.is_real else "does not leave 0 out"
    if not math.isfinite(behind.low):
        out = "is not known from one seed"
    return (
        f" Next is {row_name(found, second)}, {_points(behind)} below: the interval of the "
        f"difference {out}."
    )


def _share(value: float) -> str:
    return f"{percent(value)}%"


def _points(change: Change) -> str:
    return f"{_interval(change, percent)} points"


def _interval(change: Change, form: Callable[[float], str]) -> str:
    if not math.isfinite(change.low):
        return form(change.value)
    return f"{form(change.value)} ({form(change.low)} to {form(change.high)})"


def _price(found: TrainingGrid, row: TrainingRow, best: TrainingRow) -> str:
    (weights, seen), (most, longest) = found.price(row), found.price(best)
    if weights < most:
        return f"{weights:,} weights in place of {most:,}"
    return f"as many weights, trained on {seen:,} pairs in all its epochs in place of {longest:,}"


def notes(found: TrainingGrid) -> list[str]:
    """Sentences on the intervals, and on the pairs behind the figures."""
    of = sizes_text((found.queries["texts"], found.queries["videos"]), found.modalities)
    if found.set_aside:
        said = [f"Figures are of {of} that were set aside: no training saw them."]
    else:
        said = [
            f"Figures are of {of} that do not train; they chose the best epoch of each point, so "
            "all are a little high."
        ]
    if found.seeds > 1:
        said.append(
            f"In brackets: Student's 95% interval of the mean of {found.seeds} seeds; differences "
            "are paired by seed."
        )
    else:
        said.append(
            f"In brackets: 95% of {RESAMPLES:,} resamples of the queries; of one seed, so another "
            "seed may change more than that."
        )
    if len(found.rows) > 1:
        said.append(
            f"The best is the highest of {counted(len(found.rows), 'row')}: the more rows, the "
            "more of its lead is chance."
        )
    last = [
        str(index)
        for index, row in enumerate(found.rows)
        if all(0 < one.best_epoch == one.epochs for one in found.trained(row))
    ]
    if last:
        rows = f"row{'s' * (len(last) > 1)} {', '.join(last)}"
        said.append(f"In {rows} the best epoch is the last: more epochs may gain.")
    return said


RowColumn = tuple[Column, Callable[[TrainingRow], Content]]
"""A column, and its content for a row."""


def rows_table(found: TrainingGrid) -> Table:
    """All rows; the best is bold, equally good ones are marked."""
    rows = [*found.rows, *([] if found.raw is None else [found.raw])]
    columns, contents = zip(*_columns(found), strict=True)
    return make_table(
        counted(len(found.rows), "row"),
        columns,
        [[content(row) for content in contents] for row in rows],
        ["result" if index == found.best else "" for index in range(len(rows))],
        notes(found),
    )


def _columns(found: TrainingGrid) -> Iterator[RowColumn]:
    """The columns; raw embeddings were not trained, so they have only metrics."""
    yield (
        Column("row", help="its number in results.json"),
        lambda row: RAW if row is found.raw else str(found.rows.index(row)),
    )
    for key in found.grid:
        if key.name != SEED:
            yield key_column(key), partial(_value, key.name)
    for name in ["map", "r1"] if found.by_class else ["r1"]:
        for way, said in way_names(found.modalities).items():
            heading = f"{MEASURES[name]}\n{said}"
            yield Column(heading, percent, unit="%"), partial(_metric, f"{name}_{way}", percent)
    for metric in RANKINGS:
        if metric.of_means is not None and found.rows and metric.name in found.rows[0].metrics:
            column = Column(metric.label, number, metric.help, essential=False)
            yield column, partial(_metric, metric.name, number)
    help_ = f"{found.lead} of the best row less its own, mean of both ways; * leaves 0 out"
    yield (
        Column("behind", percent, help_, unit="points"),
        lambda row: _cell(
            row.behind, percent, " *" * (row.behind is not None and row.behind.is_real)
        ),
    )
    trained = found.trained
    yield (
        Column("best\nepoch", help="of each seed; 0 is before any training", essential=False),
        lambda row: ", ".join(str(one.best_epoch) for one in trained(row)) or None,
    )
    yield (
        Column("weights", whole, "of both projectors", essential=False),
        lambda row: trained(row)[0].weights if row.points else None,
    )
    asked = [one.question for row in found.rows for one in trained(row) if one.question is not None]
    if asked:
        headings = {
            "loss": (
                "a text's\nloss",
                "what its question costs in batches of the size that trained, by the loss that "
                "trained",
            ),
            "even": (
                "even\nscores",
                "the same where every wrong pair scores as their mean, and every right one as "
                "theirs",
            ),
        }
        if any(one.limit is not None for one in asked):
            headings["limit"] = (
                "limit",
                "what InfoNCE comes to then for many wrong pairs: log(n - 1) + (wrong - right) / "
                "tau; no such limit where the loss sums over all pairs",
            )
            headings["limit_without_log"] = (
                "without\nlog(n - 1)",
                "(wrong - right) / tau, as in the source's derivation",
            )
        for name, (heading, help_) in headings.items():
            column = Column(heading, four_digits, help_, essential=False)
            yield column, partial(_asked, found, name)


def _value(name: str, row: TrainingRow) -> Content:
    value = row.values.get(name)
    return None if value is None else value_text(value)


def _metric(name: str, form: NumberFormat, row: TrainingRow) -> Content:
    return _cell(row.metrics.get(name), form)


def _cell(change: Change | None, form: NumberFormat, star: str = "") -> Content:
    """A metric with its interval, and a `star` if the interval excludes 0."""
    if change is None:
        return None
    known = math.isfinite(change.low)
    note = f"[{form(change.low)}, {form(change.high)}]" if known else ""
    return Cell(form(change.value), change.value, note + star * change.is_real)


def _asked(found: TrainingGrid, name: str, row: TrainingRow) -> Content:
    """The mean over the seeds of one number of the question that training asks."""
    asked = [one.question for one in found.trained(row) if one.question is not None]
    known = [value for one in asked if (value := getattr(one, name)) is not None]
    return math.fsum(known) / len(known) if known else None


def _picture(found: TrainingGrid) -> str:
    name = "map" if found.by_class else "r1"
    rows = [*found.rows, *([found.raw] if found.raw is not None else [])]
    drawn = [
        Whisker(
            # There is no room for the keys.
            RAW
            if row is found.raw
            else f"{found.rows.index(row)}: {', '.join(map(value_text, row.values.values()))}",
            tuple(row.metrics[f"{name}_{way}"] for way in WAYS),
            strong=found.best is not None and row is found.rows[found.best],
        )
        for row in rows
    ]
    label = f"{found.lead} of {len(found.rows)} rows, each way with its interval"
    return whiskers(drawn, list(way_names(found.modalities).values()), label, percent_tick)


def _sizes(found: TrainingGrid) -> str | None:
    """Missed queries against weights, if rows differ in weights."""
    points = [(found.price(row)[0], 1 - row.metrics[LEAD].value) for row in found.rows]
    if len({weights for weights, _ in points}) < 2:
        return None
    candidates = [
        ParetoPoint(
            f"row {index}",
            *point,
            not any(
                other != point and other[0] <= point[0] and other[1] <= point[1] for other in points
            ),
            row_name(found, row),
        )
        for index, (row, point) in enumerate(zip(found.rows, points, strict=True))
    ]
    label = f"what is lacking of {found.lead} against weights of {len(points)} rows"
    return pareto(candidates, "weights", f"1 - {found.lead}", label)
