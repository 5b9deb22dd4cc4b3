"""Pareto fronts, and the cheapest point within a budget."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cimtool.demo.data import DemoFiles
from cimtool.experiments.budgets import (
    OBJECTIVE,
    Choice,
    DriftBudget,
    cheapest,
    comparable,
    front,
    with_objective,
)
from cimtool.experiments.compiled import Outcome
from cimtool.experiments.objectives import CostObjective
from cimtool.experiments.render_sweep import points_table
from cimtool.experiments.sweep import Sweep
from cimtool.report.html import html
from cimtool.report.terminal import terminal

Made = Callable[..., Outcome]
SAME = ["ideal, 128x128"] * 9
FAILED = Outcome("it failed")


def test_a_front_has_what_nothing_beats_cheapest_first(made: Made) -> None:
    outcomes = [
        made(0.3, arrays=10),
        made(0.1, arrays=30),
        made(0.2, arrays=30),  # no cheaper than the one before, and worse
        made(0.3, arrays=20),  # no better than the first, and dearer
        FAILED,
        made(0.2, arrays=15),
    ]
    assert front(outcomes, "arrays", SAME) == [0, 5, 1]


def test_points_that_are_the_same_are_both_there(made: Made) -> None:
    outcomes = [made(0.2, arrays=10), made(0.2, arrays=10), made(0.2, arrays=11)]
    assert front(outcomes, "arrays", SAME) == [0, 1]
    assert front([FAILED], "arrays", SAME) == []


def test_energies_that_lack_more_are_not_compared(made: Made) -> None:
    outcomes = [
        made(0.3, energy_pj=1.0, energy_missing="conversions; digital"),
        made(0.2, energy_pj=9.0, energy_missing="digital"),
        made(0.1),
        made(0.1, energy_pj=10.0, energy_missing="digital"),
    ]
    assert comparable(outcomes, "energy_pj", SAME) == [[1, 3]]
    assert front(outcomes, "energy_pj", SAME) == [1, 3]
    whole = made(0.5, energy_pj=50.0)
    assert comparable([*outcomes, whole], "energy_pj", SAME) == [[4]]


def test_the_cheapest_is_by_energy_where_it_is_known(made: Made) -> None:
    outcomes = [
        made(0.3, energy_pj=1.0, arrays=1),
        made(0.1, energy_pj=3.0, arrays=2),
        made(0.05, energy_pj=2.0, arrays=9),
        FAILED,
    ]
    found = cheapest(outcomes, DriftBudget({"logit_rmse": 0.2}), SAME)
    assert (found.index, found.cost, found.within) == (2, "energy_pj", 2)
    tight = cheapest(outcomes, DriftBudget({"logit_rmse": 0.2, "r1_loss": 0.005}), SAME)
    assert tight.within == 1
    budget = DriftBudget({"logit_rmse": 0.01})
    assert cheapest(outcomes, budget, SAME) == Choice(budget, None, None, 0)


def test_the_cheapest_is_by_conversions_or_arrays_where_energies_say_nothing(made: Made) -> None:
    outcomes = [
        made(0.1, energy_pj=1.0, conversions=200, arrays=9),
        made(0.1, conversions=100, arrays=10),
    ]
    found = cheapest(outcomes, DriftBudget({"r1_loss": 1.0}), SAME)
    assert (found.index, found.cost) == (1, "conversions")
    digital = made(0.1, conversions=0, arrays=3)
    found = cheapest([*outcomes, digital], DriftBudget({"r1_loss": 1.0}), SAME)
    assert (found.index, found.cost) == (2, "arrays")


def test_arrays_of_other_hardware_are_not_compared(made: Made) -> None:
    outcomes = [made(0.1, arrays=9), made(0.3, arrays=1), made(0.2, arrays=10)]
    units = ["ideal, 128x128", "ideal, 512x64", "ideal, 128x128"]
    assert comparable(outcomes, "arrays", units) == [[0, 2], [1]]
    assert front(outcomes, "arrays", units) == [0, 1]
    budget = DriftBudget({"logit_rmse": 1.0})
    assert cheapest(outcomes, budget, units) == Choice(budget, None, None, 3)
    budget = DriftBudget({"logit_rmse": 0.25})
    within = cheapest(outcomes, budget, units)
    assert within == Choice(budget, 0, "conversions", 2), "what is too far off does not matter"
    known = [made(0.1, energy_pj=5.0), made(0.3, energy_pj=2.0)]
    budget = DriftBudget({"logit_rmse": 1.0})
    assert cheapest(known, budget, units) == Choice(budget, 1, "energy_pj", 2)


def test_a_point_whose_median_die_is_over_the_budget_is_not_within(made: Made) -> None:
    dies = (
        {"time": "0 s", "r1_loss": {"median": 0.02}},
        {"time": "1 d", "r1_loss": {"median": 0.3}},
    )
    outcomes = [replace(made(0.1, arrays=1), dies=dies), made(0.1, arrays=2)]
    budget = DriftBudget({"r1_loss": 0.1})
    assert cheapest(outcomes, budget, SAME) == Choice(budget, 1, "conversions", 1)
    budget = DriftBudget({"r1_loss": 0.3})
    assert cheapest(outcomes, budget, SAME) == Choice(budget, 0, "conversions", 2)


def test_of_equal_costs_the_least_drift_is_taken(made: Made) -> None:
    outcomes = [made(0.2), made(0.1), made(0.1)]
    found = cheapest(outcomes, DriftBudget({"logit_rmse": 1.0}), SAME)
    assert found.index == 1


def test_an_offset_of_the_polynomial_chooses_no_point(
    sweep_small: Callable[..., Sweep], small_trunk: DemoFiles, tmp_path: Path
) -> None:
    poly = json.loads(small_trunk.poly.read_text())
    poly["bias"] += 5.0  # 4 bits lower all scores, and so come nearest with the offset
    file = tmp_path / "offset.json"
    file.write_text(json.dumps(poly))
    found = sweep_small(tmp_path / "s", {"weight_bits": [4, 8]}, poly=file)
    four, eight = (one.metrics for one in found.outcomes)
    assert four["logit_rmse"] < eight["logit_rmse"]
    assert 2 * eight["centred_rmse"] < four["centred_rmse"]
    assert found.outcomes[0].cost["arrays"] == found.outcomes[1].cost["arrays"]
    assert found.fronts["arrays"] == [1]
    assert "front: unbeaten in centred RMSE without noise and " in terminal(
        found.document(), verbose=True
    )
    assert "centred logit RMSE against arrays" in html(found.document())
    titles = [column.title for column in points_table(found).columns]
    assert titles[3:5] == ["centred RMSE", "RMSE"]


def test_an_objective_is_a_sum_of_shares_of_the_first_point_that_has_all(made: Made) -> None:
    outcomes = [
        made(0.1, energy_pj=8.0, energy_missing="digital", arrays=5),  # a lower bound
        made(0.3, energy_pj=4.0, arrays=10),
        made(0.2, energy_pj=2.0, arrays=25),
        FAILED,
    ]
    objective = CostObjective.of("query_energy=1,arrays=0.5")
    found = with_objective(outcomes, objective, SAME[: len(outcomes)])
    # (1 + 0.5) / 1.5, and (2 / 4 + 0.5 * 25 / 10) / 1.5.
    assert [one.cost.get(OBJECTIVE) for one in found] == [
        None,
        1.0,
        pytest.approx(1.75 / 1.5),
        None,
    ]
    assert comparable(found, OBJECTIVE, SAME) == [[1, 2]]
    budget = DriftBudget({"logit_rmse": 0.5})
    # A point without a part of a cost cannot be compared, so none is named.
    assert cheapest(found, budget, SAME, (), (OBJECTIVE,)) == Choice(budget, None, None, 3)
    assert cheapest(found[1:], budget, SAME, (), (OBJECTIVE,)) == Choice(budget, 0, OBJECTIVE, 2)
    assert front(found, OBJECTIVE, SAME) == [1, 2]


def test_an_objective_compares_what_its_costs_can_be_compared_over(made: Made) -> None:
    outcomes = [
        made(0.3, energy_pj=4.0, latency_ns=10.0, energy_basis="arrays reference"),
        made(0.2, energy_pj=2.0, latency_ns=20.0),
    ]
    units = ["ideal, 128x128", "ideal, 64x64"]
    for text, groups in (
        ("latency", [[0, 1]]), ("query_energy", [[0], [1]]), ("arrays=1,latency=1", [[0], [1]]),
    ):  # fmt: skip
        found = with_objective(outcomes, CostObjective.of(text), units)
        assert comparable(found, OBJECTIVE, units) == groups
    same = with_objective(outcomes, CostObjective.of("arrays"), SAME[:2])
    assert comparable(same, OBJECTIVE, SAME) == [[0, 1]]


@pytest.mark.thorough("two points are compiled; the rule itself is in the first tier")
def test_a_sweep_chooses_by_the_objective(
    sweep_small: Callable[..., Sweep], tmp_path: Path
) -> None:
    given = {"budget": {"logit_rmse": 99.0}, "gallery": 2000}
    grid = {"feature_bits": [4, 6, 8]}
    found = sweep_small(tmp_path / "out", grid, objective="latency=1,query_energy=2", **given)
    values = [one.cost[OBJECTIVE] for one in found.outcomes]
    assert found.chosen is not None
    assert found.chosen.index == values.index(min(values))
    assert found.to_json()["objective"] == {"latency": 1.0, "query_energy": 2.0}
    text = " ".join(terminal(found.document(), verbose=True).split())
    assert "by latency=1,query_energy=2: latency " in text
    assert re.search(r"query energy [\d.]+ [num]J \([\d.]+ [num]J to [\d.]+ [num]J\)", text)
