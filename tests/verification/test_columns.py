from __future__ import annotations

import math
from dataclasses import replace

import pytest

from cimtool.reference.bootstrap import Change, Interval
from cimtool.verification.columns import (
    change_text,
    drift_columns,
    interval_text,
    number,
    percent,
    retrieval_columns,
    rmse_cell,
    survival_columns,
    survivors,
)
from cimtool.verification.report import Report


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"), (0.0, "0"), (0.10159, "0.1016"), (-0.5, "-0.5000"), (12.345678, "12.35"),
        (1234.5, "1234"), (1.2e-7, "1e-07"), (4.9e-5, "5e-05"), (5e-5, "0.0001"),
    ],
)  # fmt: skip
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (math.inf, "-"), (math.nan, "-"), (0.12345, "12.3")]
)
def test_shares_are_in_percent(value: float | None, text: str) -> None:
    assert percent(value) == text


def test_intervals_stand_in_brackets() -> None:
    assert interval_text({"r1": Interval(0.25, 0.305)}, "r1") == " [25.0, 30.5]"
    assert interval_text({}, "r1") == ""
    assert change_text(Change(-0.0, -0.011, 0.005)) == "0.0 [-1.1, 0.5]"
    assert change_text(None) == "-"


def test_survivors_are_the_rows_that_matter(report: Report, noisy_report: Report) -> None:
    assert [row.stage for row in survivors(report)] == ["exact", "polynomial", "compiled model"]
    assert survivors(report)[-1].retrieval == report.final.retrieval
    assert len(survivors(noisy_report)) == 3 + 2 * len(noisy_report.noisy)


def test_the_surrogate_is_named_once_where_it_is_the_reference(unknown_report: Report) -> None:
    assert [row.stage for row in survivors(unknown_report)] == ["polynomial", "compiled model"]


def test_survival_has_intervals_and_no_loss_of_the_reference(report: Report) -> None:
    stage, forth, back, loss = survival_columns(report)
    first, _, compiled = survivors(report)
    assert stage.cell(compiled) == "compiled model"
    assert compiled.retrieval is not None
    low = compiled.intervals["r1_text_to_video"].low
    r1 = compiled.retrieval.text_to_video.r1
    assert forth.cell(compiled).startswith(f"{percent(r1)} [{percent(low)}, ")
    assert back.value(compiled) == compiled.retrieval.video_to_text.r1
    assert (loss.cell(first), loss.value(first)) == ("-", None)
    assert loss.value(compiled) == compiled.losses["r1_loss"].value


def test_values_are_what_cells_say(report: Report) -> None:
    for column in (*drift_columns(report), *retrieval_columns(report)):
        for row in report.rows:
            value, cell = column.value(row), column.cell(row)
            if value is None:
                assert cell in (row.stage, "-")
            else:
                shown = float(cell.removesuffix(" *"))
                close = (pytest.approx(scale * value, abs=0.06, rel=0.5) for scale in (1, 100))
                assert any(shown == one for one in close)


def test_the_reference_row_shows_its_own_scatter(sampled_report: Report) -> None:
    first = sampled_report.rows[0]
    assert sampled_report.scatter is not None
    error = sampled_report.scatter.standard_error
    assert rmse_cell(first, sampled_report) == f"±{error:.4f}"
    assert rmse_cell(replace(first, retrieval=None), sampled_report) == "not known"


def test_an_exact_reference_has_no_scatter(report: Report) -> None:
    assert rmse_cell(report.rows[0], report) == "-"
