"""The page of a grid of trainings: a picture of all rows with their intervals, and the table."""

from __future__ import annotations

from cimtool.base.grids import value_text
from cimtool.experiments.training_grid.render import failures, notes, row_name, rows_table, verdict
from cimtool.experiments.training_grid.results import LEAD, TrainingGrid, TrainingRow
from cimtool.reference.metrics import RAW
from cimtool.reference.modality_names import way_names
from cimtool.reference.queries import WAYS
from cimtool.report.charts import ParetoPoint, Whisker, pareto, whiskers
from cimtool.report.document import Document, Picture, Sentence
from cimtool.report.page import render
from cimtool.report.svg import percent_tick

PACKAGE = "cimtool.experiments.training_grid"
PAGE = "grid.html"


def grid_page(found: TrainingGrid) -> str:
    """The whole page as one HTML document."""
    return render(
        PAGE,
        PACKAGE,
        title=f"Trainings on {found.data}",
        found=found,
        verdict=verdict(found),
        picture=_picture(found),
        sizes=_sizes(found),
        rows=rows_table(found),
        notes=notes(found),
        failures=failures(found),
        grid=list(map(str, found.grid)),
        common=[f"{name}={value_text(value)}" for name, value in found.common.items()],
    )


def _picture(found: TrainingGrid) -> str:
    name = "map" if found.by_class else "r1"
    rows = [*found.rows, *([found.raw] if found.raw is not None else [])]
    drawn = [
        Whisker(
            _label(found, row),
            tuple(row.metrics[f"{name}_{way}"] for way in WAYS),
            strong=found.best is not None and row is found.rows[found.best],
        )
        for row in rows
    ]
    label = f"{found.lead} of {len(found.rows)} rows, each way with its interval"
    return whiskers(drawn, list(way_names(found.modalities).values()), label, percent_tick)


def _label(found: TrainingGrid, row: TrainingRow) -> str:
    """The number and the values of a row without their keys, which have no room."""
    if row is found.raw:
        return RAW
    values = ", ".join(map(value_text, row.values.values()))
    return f"{found.rows.index(row)}: {values}"


def _sizes(found: TrainingGrid) -> str | None:
    """Missed queries against weights, where these tell rows apart."""
    points = [(found.price(row)[0], 1 - row.metrics[LEAD].value) for row in found.rows]
    if len({weights for weights, _ in points}) < 2:
        return None
    candidates = [
        ParetoPoint(
            f"row {index}",
            *point,
            not any(other != point and _beats(other, point) for other in points),
            row_name(found, row),
        )
        for index, (row, point) in enumerate(zip(found.rows, points, strict=True))
    ]
    label = f"what is lacking of {found.lead} against weights of {len(points)} rows"
    return pareto(candidates, "weights", f"1 - {found.lead}", label)


def _beats(one: tuple[int, float], other: tuple[int, float]) -> bool:
    return one[0] <= other[0] and one[1] <= other[1]


def document(found: TrainingGrid) -> Document:
    """The best row, and all rows."""
    pictures = [Picture("rows", _picture(found))] if found.rows else []
    said = map(Sentence, [*verdict(found), *failures(found)])
    return Document(
        f"{len(found.points)} trainings on {found.data}, {found.failed} failed",
        (*said, rows_table(found).named("rows"), *pictures),
        found.to_json,
    )
