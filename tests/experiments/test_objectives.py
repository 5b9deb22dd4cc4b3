"""Objectives: their text, their prices, every mistake."""

from __future__ import annotations

import pytest

from cimtool.base.errors import CimError
from cimtool.experiments.objectives import COSTS, CostObjective

COST = dict(zip(COSTS, (10.0, 20.0, 30.0, 40.0, 50.0), strict=True))


@pytest.mark.parametrize("text", [*COSTS, "query_energy=1,arrays=0.5", "latency=2"])
def test_the_text_of_an_objective_is_what_was_given(text: str) -> None:
    assert CostObjective.of(text).text == text


def test_a_sum_weighs_shares_of_the_start() -> None:
    objective = CostObjective(CostObjective.of("query_energy=1, arrays=0.5").weights, COST)
    assert objective.prices(COST) == (1.5,)
    assert objective.prices({**COST, "query_energy": 5.0}) == (1.0,)
    assert objective.prices({**COST, "arrays": 20.0}) == (1.25,)


def test_arrays_and_conversions_break_their_ties_by_the_other() -> None:
    assert CostObjective.of("arrays").prices(COST) == (40, 50)
    assert CostObjective.of("conversions").prices(COST) == (50, 40)
    assert CostObjective.of("latency").prices(COST) == (30,)


@pytest.mark.parametrize("text", [*COSTS, "query_energy=1,arrays=0.5"])
def test_prices_need_no_other_costs(text: str) -> None:
    objective = CostObjective.of(text)
    few = {name: COST[name] for name in objective.needed}
    assert objective.prices(few) == objective.prices(COST)


def test_a_start_that_converts_nothing_is_no_division_by_zero() -> None:
    none = {**COST, "conversions": 0.0}
    assert CostObjective({"arrays": 1.0}, none).prices(none) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("energy", 'objective cost "energy" is not known'),
        ("query_enrgy=1", 'did you mean "query_energy"?'),
        ("", 'objective cost "" is not known'),
        ("arrays=", "objective arrays=: a weight is a number above 0"),
        ("arrays=-1", "objective arrays=-1: a weight is a number above 0; expected such as"),
        ("arrays=0", "objective arrays=0: a weight is a number above 0"),
        ("arrays=nan", "objective arrays=nan: a weight is a number above 0"),
        ("arrays=1,arrays=2", "objective arrays is given twice; expected one weight"),
    ],
)
def test_a_mistake_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(CimError) as caught:
        CostObjective.of(text)
    assert sentence in str(caught.value)
