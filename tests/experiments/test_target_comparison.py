"""One model on several targets: rows, their order, what is said first."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.demo.data import DemoFiles
from cimtool.experiments.budgets import DriftBudget
from cimtool.experiments.compiled import Outcome
from cimtool.experiments.engine import PointsFailed
from cimtool.experiments.render_targets import summary, target_table
from cimtool.experiments.target_comparison import TargetComparison, TargetRow
from cimtool.report.terminal import terminal

ITEMS = 10_000
BUDGET = {"r1_loss": 0.5}


def compare(files: DemoFiles, output: Path, *targets: str, **more: Any) -> TargetComparison:
    given: dict[str, Any] = {"budget": BUDGET, "gallery": ITEMS}
    return api.compare_targets(
        files.projectors, *targets, poly=files.poly, calibration=files.calibration,
        data=files.eval, output=output, **given | more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def compared(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> TargetComparison:
    place = tmp_path_factory.mktemp("compared")
    settings = place / "wide.toml"
    settings.write_text("accumulator_bits = 40\n")
    targets = ("ideal", "dcim-22nm-tsmc", "isaac-rram-128")
    return compare(small_trunk, place / "out", *targets, settings=settings)


def test_a_row_is_for_each_target_and_way(compared: TargetComparison) -> None:
    assert {(row.target, row.way) for row in compared.rows} >= {
        ("isaac-rram-128", "digital"), ("isaac-rram-128", "in-memory"), ("ideal", "digital"),
    }  # fmt: skip
    assert [row.rank for row in compared.rows] == sorted(row.rank for row in compared.rows)
    priced = [row.outcome.cost["energy_pj"] for row in compared.within if row.priced]
    assert priced == sorted(priced)
    assert not any(row.priced for row in compared.rows if row.target == "ideal")


@pytest.mark.thorough("a bundle and a report more")
def test_figures_are_those_of_a_sweep_and_of_cost(
    compared: TargetComparison, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    files, digital = small_trunk, ("isaac-rram-128", "digital")
    (row,) = (row for row in compared.rows if (row.target, row.way) == digital)
    built = api.compile(
        files.projectors, files.poly, calibration=files.calibration, target="isaac-rram-128",
        accumulator_bits=40, drift="given", output=tmp_path / "bundle",
    )  # fmt: skip
    found = api.cost(built.folder, gallery=ITEMS)
    assert found.query is not None
    assert row.outcome.cost["energy_pj"] == found.query.energy_pj.value
    encoding = (found.text + found.video).energy_pj.value
    assert row.outcome.cost["encoding_energy_pj"] == encoding
    report = api.verify(built.folder, files.eval, report=tmp_path / "report").to_json()
    assert row.outcome.metrics["r1_loss"] == pytest.approx(report["metrics"]["r1_loss"])


def test_the_first_line_names_the_cheapest(compared: TargetComparison) -> None:
    text = " ".join(terminal(compared.document()).split())
    best = next(row for row in compared.within if row.priced)
    assert f"keep r1_loss up to 0.5; a query among {ITEMS:,} items takes least on" in text
    assert f"takes least on {best.target}" in text
    noted = "not ranked by energy, of which parts have no price: ideal"
    assert noted in terminal(compared.document(), verbose=True)
    assert set(compared.to_json()["within"]) >= {"isaac-rram-128", "ideal"}


def test_energies_and_latencies_have_intervals(compared: TargetComparison) -> None:
    table = target_table(compared)
    titles = [column.title for column in table.columns]
    priced = [cells.cells for cells, row in zip(table.rows, compared.rows, strict=True)
              if row.priced]  # fmt: skip
    assert len(priced) >= 2
    for title in ("query", "latency", "encoding"):
        for cells in priced:
            low, _, high = cells[titles.index(title)].note.strip("[]").partition(", ")
            assert low != high
    text = " ".join(terminal(compared.document(), verbose=True).split())
    one = r"[\d.]+ [munp]J \([\d.]+ [munp]J to [\d.]+ [munp]J\)"
    assert re.search(rf"takes least on [^:]+: {one}, latency [\d.]+ [mun]s \(", text)
    assert re.search(rf"the least is {one} on [^,]+, [\d.]+ times \([\d.]+ to [\d.,]+\)", text)


def test_an_earlier_run_is_used(
    compared: TargetComparison, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    place = compared.written[0].parent
    settings = place.parent / "wide.toml"
    targets = ("ideal", "dcim-22nm-tsmc", "isaac-rram-128")
    before = (place / "results.json").read_bytes()
    again = compare(small_trunk, place, *targets, settings=settings)
    assert again.points.resumed == sum(not one.error for one in again.points.outcomes)
    assert (place / "results.json").read_bytes() == before


@pytest.mark.parametrize(
    ("targets", "more", "sentence"),
    [
        (("ideal", "ideal"), {}, "what ideal: the target is given twice; expected it once"),
        (("idael",), {}, 'did you mean "ideal"?'),
        (("ideal",), {"gallery": 10**13}, "gallery is 10,000,000,000,000; expected 2 to"),
        (("ideal",), {"gallery": 0}, "gallery is 0; expected 2 to"),
        (("ideal",), {"budget": {"r1": 1.0}}, 'budget metric "r1" is not known'),
        (("none.toml",), {}, "none.toml"),
    ],
)
def test_a_mistake_is_one_sentence(
    targets: tuple[str, ...],
    more: dict[str, Any],
    sentence: str,
    small_trunk: DemoFiles,
    tmp_path: Path,
) -> None:
    with pytest.raises(CimError) as caught:
        compare(small_trunk, tmp_path / "out", *targets, **more)
    assert sentence in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_budget_that_no_target_keeps_is_a_failed_check(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    settings = tmp_path / "digital.toml"
    settings.write_text('score_mapping = "digital"\n')
    budget = {"centred_rmse": 1e-9}
    with pytest.raises(PointsFailed, match="no target is within the budget") as caught:
        compare(small_trunk, tmp_path / "out", "ideal", settings=settings, budget=budget)
    (row,) = caught.value.found.rows
    assert (row.way, row.kept) == ("digital", False)
    assert "No target of 1 keeps centred_rmse up to 1e-09." in terminal(
        caught.value.found.document()
    )


def test_rows_are_sorted_and_a_reason_is_kept(made: Callable[..., Outcome]) -> None:
    budget = DriftBudget({"r1_loss": 0.01})
    known = {"energy_pj": 5.0}
    rows = {
        "cheap": TargetRow("a", "digital", made(0.05, energy_pj=1.0), budget),
        "dear": TargetRow("b", "digital", made(0.05, **known), budget),
        "bound": TargetRow("c", "digital", made(0.05, energy_missing="arrays", **known), budget),
        "over": TargetRow("d", "digital", made(0.5, **known), budget),
        "cannot": TargetRow("e", "digital", Outcome("too few bits"), budget),
    }
    assert sorted(rows, key=lambda name: rows[name].rank) == list(rows)
    assert [one.kept for one in rows.values()] == [True, True, True, False, False]
    assert rows["cannot"].reason == "too few bits"
    assert not rows["cheap"].surely  # there is no interval
    over = rows["over"].outcome
    for low, maybe in ((0.0, True), (0.02, False)):
        reaching = replace(over, intervals={"r1_loss": (low, 0.9)})
        assert replace(rows["over"], outcome=reaching).maybe == maybe
    assert not rows["cannot"].maybe


def test_a_budget_that_more_queries_may_show_to_be_kept_is_open(
    compared: TargetComparison, made: Callable[..., Outcome]
) -> None:
    outcome = replace(made(0.5, energy_pj=5.0), intervals={"r1_loss": (0.0, 0.9)})
    row = TargetRow("d", "digital", outcome, DriftBudget({"r1_loss": 0.01}))
    found = replace(compared, budget=row.budget)
    vars(found)["rows"] = [row]
    (said,) = summary(found)
    assert (said.level, said.tone) == ("verdict", "")
    assert said.text.startswith("No target of 1 is shown to keep ")
    assert "; whether d does is open: the intervals reach within, and more queries" in said.text
