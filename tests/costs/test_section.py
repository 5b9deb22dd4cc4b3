"""The costs in a report, and beside those of an earlier one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cimtool import api
from cimtool.base.escapes import markdown_text
from cimtool.costs.instead import by_size_text, unmeasured_text, verdict
from cimtool.demo.data import DemoFiles
from cimtool.report.document import Sentence
from cimtool.report.markdown import markdown
from cimtool.report.terminal import terminal
from cimtool.verification.render import document
from cimtool.verification.sections import FigureChange, figure_changes


def changes(before: dict[str, Any], now: dict[str, Any] | None = None) -> dict[str, FigureChange]:
    found = figure_changes({"cost": now or {}}, {"cost": before})
    return {one.label: one for one in found}


def test_costs_are_numbers_or_not_known() -> None:
    values = {"layout": {"arrays": 8, "chips": True}, "query": {"energy_pj": {"value": 1 / 3}}}
    found = changes(values | {"video": "none"}, values)
    assert (found["arrays"].before, found["chips"].before) == (8, None)
    assert found["energy of a query"] == FigureChange("energy of a query", "pJ", 0.333333, 0.333333)
    assert found["conversions of an item"].before is None
    endless = changes({"layout": {"arrays": float("inf"), "chips": 10**30}})
    assert {endless[label].before for label in ("arrays", "chips")} == {None}


def test_an_earlier_report_may_have_other_sections() -> None:
    assert figure_changes({"cost": {}}, {"other": {"layout": 1}})[0].before is None
    assert figure_changes({}, {"cost": {"layout": {"arrays": 1}}}) == ()
    assert figure_changes({"cost": {}}, {"cost": [1]})[0].before is None


def test_the_cheapest_way_is_in_the_verdict_for_the_gallery_asked_for(
    small_bundle: Path, small_trunk: DemoFiles
) -> None:
    found = api.verify(small_bundle, small_trunk.eval, gallery=5000)
    cost = found.sections["cost"]
    line, *_ = verdict(cost)
    assert " among 5,000 items" in line.text
    assert terminal(found.document()).splitlines()[2] == line.text
    shown = [one.text for one in document(found).blocks if isinstance(one, Sentence)]
    assert shown[:2] == [found.drift.worth.sentence, line.text]
    told = markdown(found.document())
    assert by_size_text(cost) in told
    assert markdown_text(unmeasured_text(cost)) in told
    # R@1 is that of the rows above it.
    (row,) = [one for one in cost.ways if one.kind == "digital"]
    assert row.r1 is not None
    assert row.r1.value == found.drift.rows[-1].metrics["r1_text_to_video"]
    assert "instead" in found.document().tables
    assert "instead" in found.document().pictures
