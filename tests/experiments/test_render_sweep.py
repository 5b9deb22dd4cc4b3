"""The Pareto page: every point, every front, and nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from cimtool.experiments import render_sweep
from cimtool.experiments.budgets import COSTS
from cimtool.experiments.compiled import Outcome
from cimtool.experiments.points import points, read_grid
from cimtool.experiments.references import Remarks
from cimtool.experiments.render_sweep import notes_of_points, points_table
from cimtool.experiments.sweep import Sweep
from cimtool.report.html import html
from cimtool.report.table import Table
from cimtool.report.terminal import terminal

Made = Callable[..., Outcome]


class Seen(HTMLParser):
    """Counts tags and collects what would be fetched, and texts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def sweep_of(outcomes: list[Outcome], **changed: Any) -> Sweep:
    axes = read_grid({"weight_bits": list(range(4, 4 + len(outcomes)))})
    values: dict[str, Any] = {
        "model": "<model>",
        "data": {
            "file": "eval.npz",
            "texts": 40,
            "videos": 30,
            "modalities": ("text", "video"),
            "gallery": 30,
        },
        "reference": "exact",
        "baselines": {},
        "baseline_intervals": {},
        "remarks": Remarks(),
        "grid": axes,
        "dies": None,
        "points": points(axes, "ideal", None),
        "outcomes": outcomes,
        "resumed": 0,
        "written": (Path("results.json"),),
    }
    return Sweep(**values | changed)


def texts(table: Table, title: str) -> list[str]:
    """The texts of one column."""
    index = [column.title for column in table.columns].index(title)
    return [row.cells[index].text for row in table.rows]


@pytest.fixture
def swept(made: Made) -> Sweep:
    rest = {"latency_ns": None, "latency_missing": "arrays", "energy_missing": "digital"}
    return sweep_of(
        [
            made(0.5, arrays=1, energy_pj=2.0, **rest),
            made(0.25, arrays=2, energy_pj=None, **rest),
            made(0.75, arrays=2, energy_pj=9.0, **rest),
            Outcome("what failed & why"),
        ]
    )


def test_the_page_stands_alone_and_holds_every_point(swept: Sweep) -> None:
    page = html(swept.document())
    seen = Seen()
    seen.feed(page)
    assert seen.tags.count("svg") == len(COSTS)
    assert seen.tags.count("tr") == 1 + len(swept.points)
    assert all(one.startswith(("#", "data:")) for one in seen.fetched)
    assert not re.search(r"https?://(?!www\.w3\.org)", page)
    assert "Sweep of <model>" in seen.texts
    assert "point 3 failed: what failed & why" in seen.texts


@pytest.mark.thorough("a browser; the page of a report opens in the first tier")
def test_the_page_opens_in_a_browser_and_asks_for_nothing(
    swept: Sweep, page: Page, events: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "pareto.html"
    file.write_text(html(swept.document()))
    page.goto(file.as_uri())
    assert page.title() == "Sweep of <model>"
    assert events == [f"request {file.as_uri()}"]


def test_what_is_not_comparable_is_said_to_be_left_out(swept: Sweep) -> None:
    page = html(swept.document())
    assert page.count("1 of 3 points are not here") == 1, "one energy is not given"


@pytest.mark.parametrize(("largest", "is_log"), [(0.05 * 19, False), (0.05 * 21, True)])
def test_an_axis_of_errors_twenty_times_apart_is_logarithmic(
    made: Made, monkeypatch: pytest.MonkeyPatch, largest: float, is_log: bool
) -> None:
    drawn: list[tuple[bool, bool]] = []
    kept = render_sweep.pareto

    def noting(*arguments: Any) -> str:
        drawn.append(arguments[-2:])
        return kept(*arguments)

    monkeypatch.setattr(render_sweep, "pareto", noting)
    rest = {"energy_pj": None, "latency_ns": None, "energy_missing": "", "latency_missing": ""}
    html(sweep_of([made(0.05, arrays=1, **rest), made(largest, arrays=2, **rest)]).document())
    assert set(drawn) == {(False, False), (False, is_log)}  # without energies nothing is drawn


def test_the_table_marks_the_fronts(swept: Sweep) -> None:
    table = points_table(swept)
    titles = [column.title for column in table.columns]
    assert titles[:5] == ["point", "front", "weight_bits", "centred RMSE", "RMSE"]
    assert titles[6:9] == ["R@1, % text to video", "R@1, % video to text", "R@1 loss"]
    assert [row.style for row in table.rows] == ["result", "result", "", ""]
    assert texts(table, "front") == ["energy, arrays", "conversions, arrays", "", ""]


def test_a_pipe_has_the_essential_columns_and_details_all(swept: Sweep) -> None:
    short, long = (
        terminal(swept.document(), 100, verbose, wrap=False) for verbose in (False, True)
    )
    for text in (short, long):
        table = [
            line for line in text.splitlines() if not line.startswith(("front: ", "settings "))
        ]
        assert max(map(len, table)) <= 100
    columns = {word for column in points_table(swept).columns for word in column.lines.split()}
    assert columns <= set(long.split())
    assert {"energy", "front", "weight_bits", "RMSE"} <= set(short.split())
    assert not {"conversions", "latency"} & set(
        short.split("front: ")[0].split("energy\n")[0].split()
    )
    assert ("What was swept" in short, "What was swept" in long) == (False, True)


def test_the_choice_is_on_the_page(swept: Sweep) -> None:
    from cimtool.experiments.budgets import DriftBudget, cheapest

    budget = DriftBudget({"logit_rmse": 0.6})
    choice = cheapest(swept.outcomes, budget, swept.units)
    chosen = replace(choice, command="cimtool compile --target ideal")
    page = html(sweep_of(list(swept.outcomes), chosen=chosen).document())
    assert "cheapest of 2 points within logit_rmse=0.6: point 1" in page
    assert "next: cimtool compile --target ideal" in page
    assert "Within the budget" not in html(swept.document())


def test_points_on_other_hardware_have_a_picture_of_their_own(made: Made) -> None:
    axes = read_grid({"target": ["ideal", "isaac-rram-128"]})
    found = sweep_of(
        [made(rmse, latency_ns=None) for rmse in (0.5, 0.1)],
        grid=axes,
        points=points(axes, None, None),
    )
    page = html(found.document())
    assert page.count("<svg") == 5, "one of energy, two of conversions, two of arrays"
    assert "Only points on isaac-rram-128, 128x128 arrays" in page
    assert found.fronts == {"energy_pj": [], "conversions": [0, 1], "arrays": [0, 1]}


def test_the_page_says_what_was_swept(swept: Sweep) -> None:
    page = html(replace(swept, files=(("folder/model.pth", "12ab"),)).document())
    assert "<dt>target</dt><dd>ideal</dd>" in page
    assert "<dt>model.pth</dt><dd>SHA-256 12ab</dd>" in page
    (shared,) = re.findall("<dt>settings of all points</dt><dd>(.*)</dd>", page)
    assert "cell_bits=8, " in shared
    assert "weight_bits" not in shared


def test_figures_that_are_not_there_sort_last(swept: Sweep) -> None:
    *_, failed = points_table(swept).rows
    assert [cell.key for cell in failed.cells[3:]] == ["NaN"] * 10


def test_a_sweep_where_all_failed_has_a_page_too(made: Made) -> None:
    page = html(sweep_of([Outcome("first"), Outcome("second")], baselines={}).document())
    assert "point 1 failed: second" in page


def test_points_that_are_the_same_are_marked_once_and_named(made: Made) -> None:
    found = sweep_of([made(0.5, latency_ns=None) for _ in range(3)])
    table = points_table(found)
    assert texts(table, "front") == ["conversions, arrays", "as point 0", "as point 0"]
    assert [row.style for row in table.rows] == ["result", "", ""]
    assert "points 0, 1, 2 give the same scores" in html(found.document())


def test_energies_that_lack_more_stand_in_brackets_beside_their_coverage(made: Made) -> None:
    rest = {"latency_ns": None}
    known = made(0.5, energy_pj=9.0, energy_coverage=0.9, **rest)
    small = made(0.5, energy_pj=1.0, energy_coverage=0.4, energy_missing="converters", **rest)
    found = sweep_of([known, small])
    table = points_table(found)
    assert texts(table, "energy") == ["9 pJ", "(> 1 pJ)"]
    assert texts(table, "of it known") == ["90%", "40%"]
    assert any("in brackets" in note for note in notes_of_points(found))
    alone = sweep_of([known])
    assert "of it known" not in [column.title for column in points_table(alone).columns]
    assert notes_of_points(alone) == []


def test_a_warning_of_points_is_told_once(made: Made) -> None:
    few = "warning: few levels"
    warned = replace(made(0.5, latency_ns=None), notes=(few, "other"), warnings=(few,))
    found = sweep_of(
        [made(0.25, latency_ns=None), warned, replace(warned, metrics=made(1).metrics)]
    )
    assert notes_of_points(found) == ["warning: few levels (points 1, 2)"]
