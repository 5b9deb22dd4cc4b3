"""The costs in a report, and beside those of an earlier one."""

from __future__ import annotations

from typing import Any

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
