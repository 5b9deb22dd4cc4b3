from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cimtool.report.formats import percent
from cimtool.report.table import Cell, Table
from cimtool.verification.report import Report
from cimtool.verification.tables import (
    drift_table,
    probability_table,
    retrieval_table,
    survival_table,
)

from .conftest import changed


def cells(table: Table, title: str) -> list[Cell]:
    """One column from the top."""
    index = [column.title for column in table.columns].index(title)
    return [row.cells[index] for row in table.rows]


def test_survivors_are_the_rows_that_matter(report: Report, noisy_report: Report) -> None:
    assert [row.stage for row in report.drift.survivors] == [
        "exact",
        "raw embeddings",
        "polynomial",
        "compiled model",
    ]
    assert report.drift.survivors[-1].metrics == report.drift.final.metrics
    assert len(noisy_report.drift.survivors) == 4 + 2 * len(noisy_report.drift.noisy)


def test_the_surrogate_is_named_once_where_it_is_the_reference(unknown_report: Report) -> None:
    stages = [row.stage for row in unknown_report.drift.survivors]
    assert stages == ["raw embeddings", "polynomial", "compiled model"]


def test_survival_has_intervals_and_no_loss_of_the_reference(report: Report) -> None:
    table = survival_table(report.drift)
    compiled = report.drift.survivors[-1]
    low = compiled.intervals["r1_text_to_video"].low
    assert [cell.text for cell in cells(table, "stage")][-1] == "compiled model"
    forth = cells(table, "R@1 text to video")[-1]
    assert forth.text == percent(compiled.metrics["r1_text_to_video"])
    assert forth.note.startswith(f"[{percent(low)}, ")
    assert cells(table, "R@1 video to text")[-1].value == compiled.metrics["r1_video_to_text"]
    first, *_, last = cells(table, "R@1 loss, points")
    assert (first.text, first.key) == ("-", "NaN")
    assert last.value == compiled.losses["r1_loss"].value
    assert [row.style for row in table.rows][-1] == "result"


def test_values_are_what_cells_say(report: Report) -> None:
    for table in (drift_table(report.drift), retrieval_table(report.drift)):
        for row in table.rows:
            for cell in row.cells[1:]:
                assert cell.value is not None
                if math.isnan(cell.value):
                    assert cell.text == "-"
                    continue
                shown = float(cell.text.removesuffix(" *"))
                close = (pytest.approx(k * cell.value, abs=0.06, rel=0.5) for k in (1, 100))
                assert any(shown == one for one in close)


def test_every_recall_has_an_interval(report: Report) -> None:
    assert all(cell.note for cell in cells(retrieval_table(report.drift), "t>v R@5"))


CENTRED = "centred RMSE"
"""The heading of the error that can change a rank."""


def test_the_reference_row_shows_its_own_scatter(sampled_report: Report) -> None:
    first, *others = sampled_report.drift.rows
    assert sampled_report.drift.scatter is not None
    error = sampled_report.drift.scatter.centred_error
    assert cells(drift_table(sampled_report.drift), CENTRED)[0].text == f"±{error:.4f}"
    unknown = changed(sampled_report, rows=(replace(first, metrics={}), *others))
    assert cells(drift_table(unknown.drift), CENTRED)[0].text == "not known"


def test_an_exact_reference_has_no_scatter(report: Report) -> None:
    assert cells(drift_table(report.drift), CENTRED)[0].text == "-"


PROBABILITIES = ("log\nloss", "Brier", "calibr.\nerror")
SELECTIVE = ("t>v\nAURC", "t>v\nR@1 at 80%", "v>t\nanswer AUROC")


def test_probabilities_have_their_own_table(report: Report) -> None:
    table, retrieval = probability_table(report.drift), retrieval_table(report.drift)
    titles = [column.title for column in table.columns]
    assert table.title.startswith("Probabilities, shares in percent")
    assert [row.cells[0].text for row in table.rows] == [row.stage for row in report.drift.shown]
    for heading in (*PROBABILITIES, *SELECTIVE):
        assert heading.replace("\n", " ") in [title.replace("\n", " ") for title in titles]
        assert heading not in [column.title for column in retrieval.columns]
    narrow = {column.title for column in table.columns if column.essential}
    assert set(PROBABILITIES) <= {title.replace(" ", "\n") for title in narrow} | narrow


def test_rows_without_logits_have_no_probabilities(report: Report) -> None:
    table = probability_table(report.drift)
    at = [row.cells[0].text for row in table.rows]
    loss = dict(zip(at, cells(table, "log loss"), strict=True))
    final = report.drift.final.metrics["nll"]
    assert loss[report.drift.final.stage].value == final
    assert loss[report.drift.final.stage].note
    assert loss["-ed"].value is not None
    for name in ("raw embeddings", "raw rows, int8"):
        assert loss[name].text == "-"
    assert cells(table, "t>v answer AUROC")[at.index("raw embeddings")].text != "-"
