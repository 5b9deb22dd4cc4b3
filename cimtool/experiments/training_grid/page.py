"""The page of a grid of trainings: a picture of all rows with their intervals, and the table."""

from __future__ import annotations

from cimtool.base.grids import value_text
from cimtool.experiments.training_grid.render import failures, row_name, rows_table, verdict
from cimtool.experiments.training_grid.results import LEAD, TrainingGrid, TrainingRow
from cimtool.reference.measures import WAYS
from cimtool.reference.metrics import RAW
from cimtool.reference.modality_names import way_names
from cimtool.report.charts import ParetoPoint, Whisker, pareto, whiskers
from cimtool.report.document import Document, FactList, Note, Picture, Section, Sentence
from cimtool.report.html import html
from cimtool.report.svg import percent_tick

PAGE = "grid.html"


def grid_page(found: TrainingGrid) -> str:
    """The whole page as one HTML document."""
    return html(document(found))


def document(found: TrainingGrid) -> Document:
    """The best row, every row, and what was trained."""
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
            *([Section("Failed", tuple(map(Note, failed)))] if failed else []),
            Section(f"{found.lead} of every row", tuple(drawn)),
            Section("Rows", (rows_table(found).named("rows"),)),
            Section("What was trained", (FactList(trained),)),
        ),
        found.to_json,
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
