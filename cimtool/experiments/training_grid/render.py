"""A grid of trainings as text for a terminal: which row is best, and all rows as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cimtool.base.grids import value_text
from cimtool.experiments.training_grid.keys import SEED
from cimtool.experiments.training_grid.question import Question
from cimtool.experiments.training_grid.results import LEAD, TrainingGrid, TrainingRow
from cimtool.reference.bootstrap import RESAMPLES, Change
from cimtool.reference.measures import RANKINGS, WAYS
from cimtool.reference.metrics import RAW
from cimtool.reference.modality_names import sizes_text, way_names
from cimtool.reference.queries import RANKINGS_BY_KEY
from cimtool.report.formats import counted, four_digits, number, percent, whole
from cimtool.report.page import render_text
from cimtool.report.table import Cell, Column, Content, Table, make_table
from cimtool.report.terminal import table_text
from cimtool.training.history import MEASURES
from cimtool.training.trainer import BEST


def grid_summary(found: TrainingGrid) -> str:
    """The verdict first, then all rows in a table, what failed, and what was written."""
    return render_text(
        "cimtool.experiments.training_grid",
        "grid.txt",
        found=found,
        verdict=verdict(found),
        table=table_text(rows_table(found, times=True)),
        notes=notes(found),
        failures=failures(found),
        models=models(found),
    )


def models(found: TrainingGrid) -> list[str]:
    """The checkpoints of the best row, one a seed."""
    if found.best is None:
        return []
    folders = (found.points[index].folder for index in found.rows[found.best].points)
    return [str(one.path / BEST) for one in folders if one is not None]


def failures(found: TrainingGrid) -> list[str]:
    """A line for each point that failed."""
    return [
        f"point {index} ({_values(dict(one.point.values))}) failed: {one.error}"
        for index, one in enumerate(found.points)
        if one.error is not None
    ]


def _values(values: object) -> str:
    assert isinstance(values, dict)
    return ", ".join(f"{name}={value_text(value)}" for name, value in values.items())


def row_name(found: TrainingGrid, row: TrainingRow) -> str:
    """The number and the values of a row, or that it is the raw embeddings."""
    if row is found.raw:
        return RAW
    values = _values(dict(row.values))
    return f"row {found.rows.index(row)}{f' ({values})' * bool(values)}"


def verdict(found: TrainingGrid) -> list[str]:
    """The best row in sentences, after those that are as good for less."""
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
    """The row that comes next to the best, and whether that is known to be better."""
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
    """Sentences on the intervals, and on the pairs that the figures are of."""
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


def rows_table(found: TrainingGrid, times: bool = False) -> Table:
    """All rows, the best in bold and those as good marked; with `times` the time of training."""
    columns, measures = _columns(found), _measures(found)
    asked = [_questions(found, row) for row in found.rows]
    limited = any(one.limit is not None for many in asked for one in many)
    if any(asked):
        columns += _question_columns(limited)
    if times:
        columns.append(Column("time", help="of training; of each seed where there are several"))
    keys = [key.name for key in found.grid if key.name != SEED]
    rows: list[list[Content]] = []
    for index, row in enumerate(found.rows):
        cells: list[Content] = [str(index)]
        for key in keys:
            value = row.values.get(key)
            cells.append(None if value is None else value_text(value))
        cells += [*_figures(found, row, measures), *_costs(found, row)]
        if any(asked):
            cells += _question_cells(asked[index], limited)
        rows.append([*cells, _seconds(found, row)] if times else cells)
    if found.raw is not None:
        cells = [RAW, *[None] * len(keys), *_figures(found, found.raw, measures)]
        rows.append([*cells, *[None] * (len(columns) - len(cells))])
    styles = ["result" if index == found.best else "" for index in range(len(rows))]
    return make_table(counted(len(found.rows), "row"), columns, rows, styles, notes(found))


OF_MEANS = tuple(one for one in RANKINGS if one.of_means is not None)
"""Metrics of the means, not of rankings."""


def _measures(found: TrainingGrid) -> list[str]:
    """The names of the metrics that the table has, those that lead first."""
    names = ["map", "r1"] if found.by_class else ["r1"]
    ways = [f"{name}_{way}" for name in names for way in WAYS]
    known = found.rows[0].metrics if found.rows else {}
    return [*ways, *(one.name for one in OF_MEANS if one.name in known)]


def _columns(found: TrainingGrid) -> list[Column]:
    shares = {
        f"{name}_{way}": Column(f"{title}\n{said}", percent, unit="%")
        for name, title in MEASURES.items()
        for way, said in way_names(found.modalities).items()
    }
    others = {one.name: Column(one.label, number, one.help, essential=False) for one in OF_MEANS}
    keys = [key for key in found.grid if key.name != SEED]
    behind = f"{found.lead} of the best row less its own, mean of both ways; * leaves 0 out"
    return [
        Column("row", help="its number in results.json"),
        *(Column(key.name, None if _has_word(key.values) else str) for key in keys),
        *((shares | others)[name] for name in _measures(found)),
        Column("behind", percent, behind, unit="points"),
        Column("best\nepoch", help="of each seed; 0 is before any training", essential=False),
        Column("weights", whole, "of both projectors", essential=False),
    ]


def _has_word(values: Sequence[object]) -> bool:
    return any(isinstance(one, str | bool) for one in values)


def _figures(found: TrainingGrid, row: TrainingRow, measures: Sequence[str]) -> list[Content]:
    cells: list[Content] = []
    for name in measures:
        form = percent if RANKINGS_BY_KEY[name].share else number
        cells.append(_cell(row.metrics.get(name), form))
    star = " *" if row.behind is not None and row.behind.is_real else ""
    return [*cells, _cell(row.behind, percent, star)]


def _cell(change: Change | None, form: Callable[[float], str], star: str = "") -> Content:
    if change is None:
        return None
    known = math.isfinite(change.low)
    note = f"[{form(change.low)}, {form(change.high)}]" if known else ""
    return Cell(form(change.value), change.value, note + star)


def _costs(found: TrainingGrid, row: TrainingRow) -> list[Content]:
    trained = found.trained(row)
    return [", ".join(str(one.best_epoch) for one in trained), trained[0].weights]


def _questions(found: TrainingGrid, row: TrainingRow) -> list[Question]:
    return [one.question for one in found.trained(row) if one.question is not None]


def _question_columns(limited: bool) -> list[Column]:
    even = "the same where every wrong pair scores as their mean, and every right one as theirs"
    limit = (
        "what InfoNCE comes to then for many wrong pairs: log(n - 1) + (wrong - right) / tau; no "
        "such limit where the loss sums over all pairs"
    )
    bare = "(wrong - right) / tau, as the document has it that derives it"
    asked = "what its question costs in batches of the size that trained, by the loss that trained"
    return [
        Column("a text's\nloss", four_digits, asked, essential=False),
        Column("even\nscores", four_digits, even, essential=False),
        *[
            Column("limit", four_digits, limit, essential=False),
            Column("without\nlog(n - 1)", four_digits, bare, essential=False),
        ]
        * limited,
    ]


def _question_cells(asked: Sequence[Question], limited: bool) -> list[Content]:
    names = ["loss", "even", *["limit", "limit_without_log"] * limited]
    cells: list[Content] = []
    for name in names:
        values = [getattr(one, name) for one in asked]
        known = [value for value in values if value is not None]
        cells.append(math.fsum(known) / len(known) if known else None)
    return cells


def _seconds(found: TrainingGrid, row: TrainingRow) -> Content:
    folders = (found.points[index].folder for index in row.points)
    times = [None if one is None else one.seconds for one in folders]
    return ", ".join("-" if one is None else f"{one:.1f} s" for one in times)
