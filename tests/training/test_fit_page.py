"""Files of a fit: the polynomial, its figures, and a page that needs nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page

from cimtool.base.errors import CimError
from cimtool.loading.polynomial import read_polynomial
from cimtool.report.html import html
from cimtool.training.arguments import FormOptions
from cimtool.training.fit import Fit, fit_teacher, write_fit
from cimtool.training.fit_page import (
    DRAWN,
    document,
    error_table,
    fit_headline,
    fit_values,
)
from cimtool.training.polynomial import domain_values
from cimtool.training.teacher import Labels
from cimtool.training.teacher_file import Teacher


@pytest.fixture(scope="module")
def fit() -> Fit:
    rng = np.random.default_rng(0)
    ed, vd = rng.uniform(100, 200, 600), rng.uniform(10, 20, 600)
    log_p = -0.1 * ed + 0.002 * vd**2
    error = np.full(600, 0.125)
    labels = Labels(ed, vd, log_p + 0.125 * rng.normal(size=600), np.zeros(600), error)
    kind = "mc"
    matched = ed < 170
    return fit_teacher(
        Teacher(labels, kind, 0.1, 0.0, 10, 3, 32.0, 1024.0, matched=matched, file="some/t.npz"),
        FormOptions(degree=4),
    )


def test_files_are_written_and_read_back(fit: Fit, tmp_path: Path) -> None:
    poly = tmp_path / "new" / "p.json"
    write_fit(fit, poly)
    assert {file.name for file in poly.parent.iterdir()} == {"p.json", "p.fit.html", "p.fit.json"}
    assert read_polynomial(poly) == fit.polynomial
    held = json.loads(poly.read_text())
    assert held["domain"] == {
        name: list(ends) for name, ends in domain_values(fit.polynomial).items()
    }
    write_fit(fit, tmp_path / "q.json", tmp_path / "report")
    assert {file.name for file in (tmp_path / "report").iterdir()} == {"q.fit.html", "q.fit.json"}
    first = (poly.parent / "p.fit.html").read_bytes()
    assert first == (tmp_path / "report" / "q.fit.html").read_bytes()


def test_a_place_that_is_a_file_is_refused_before_the_polynomial(fit: Fit, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(CimError, match="taken: the report cannot be written"):
        write_fit(fit, tmp_path / "p.json", tmp_path / "taken")
    assert not (tmp_path / "p.json").exists()


def test_figures_are_plain_values(fit: Fit) -> None:
    values = json.loads(json.dumps(fit_values(fit), allow_nan=False))
    assert values["fitted_pairs"] + values["held_out_pairs"] == 600
    known = {"labels": "mc", "a": 0.1, "b": 0.0, "K": 10, "seed": 3}
    assert values["teacher"] == {**known, "model": None, "trained": None}  # of Gaussians
    assert values["divisors"] == {"ed": 32, "vd": 1024}
    assert values["errors"][0]["rmse"] == fit.errors[0].rmse
    assert values["errors"][0]["noise"] == pytest.approx(0.125)


def test_the_headline_says_from_what(fit: Fit) -> None:
    rmse = fit.errors[0].rmse
    assert fit_headline(fit).startswith("On 60 held-out pairs the polynomial of degree 4 is ")
    assert f"{rmse:.3g} (RMSE, logit) from their labels" in fit_headline(fit)
    assert "the labels' own standard error is 0.125" in fit_headline(fit)
    exact = replace(fit, teacher=replace(fit.teacher, kind="exact"))
    assert f"{rmse:.3g} (RMSE, logit) from the exact logit" in fit_headline(exact)


def test_the_table_has_a_row_a_group(fit: Fit) -> None:
    rows = [[cell.text for cell in row.cells] for row in error_table(fit).rows]
    assert [row[0] for row in rows] == ["all pairs", "right pairs", "wrong pairs"]
    assert rows[0][1:3] == ["60", f"{fit.errors[0].rmse:.4g}"]
    unknown = replace(fit, errors=(replace(fit.errors[0], noise=None),))
    assert error_table(unknown).rows[0].cells[-1].text == "not known"


def test_the_page_has_all_of_it_and_asks_for_nothing(fit: Fit) -> None:
    page = html(document(fit))
    assert "Polynomial of degree 4 for t.npz" in page
    assert fit_headline(fit).replace("'", "&#39;") in page
    for note in fit.notes:
        assert note.replace("'", "&#39;") in page
    assert "ed^2 vd^2" in page
    assert "domain of ed / 32" in page
    assert "<svg" in page
    for outside in ('src="http', 'href="http', "@import", "url(http"):
        assert outside not in page


@pytest.mark.thorough("the report in the browser stands for it")
def test_the_page_opens_in_a_browser_and_asks_for_nothing(
    fit: Fit, page: Page, events: list[str], tmp_path: Path
) -> None:
    write_fit(fit, tmp_path / "p.json")
    address = (tmp_path / "p.fit.html").as_uri()
    page.goto(address)
    assert page.title() == "Polynomial of degree 4 for t.npz"
    assert events == [f"request {address}"]


def test_the_picture_does_not_grow_with_the_pairs(fit: Fit) -> None:
    def size(count: int) -> int:
        held = Labels(*(np.linspace(100, 200, count) for _ in range(4)))
        return len(html(document(replace(fit, held=held, values=held.logit, matched=None))))

    assert size(DRAWN) > 1.2 * size(DRAWN // 4)
    assert size(4 * DRAWN) < 1.1 * size(DRAWN)


def test_a_hostile_name_is_only_text(fit: Fit) -> None:
    named = replace(fit, teacher=replace(fit.teacher, file="<script>alert(1)<x>.npz"))
    assert "<script>alert" not in html(document(named))
