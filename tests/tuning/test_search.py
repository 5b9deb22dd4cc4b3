"""The walk over a made-up model: what it measures, in which order it moves, where it stops."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cimtool.sweeps.evaluator import Outcome
from cimtool.tuning.search import Search, probe
from cimtool.tuning.widths import BitAssignment, LayerCosts, Width

GAINS = {Width("a", "weight_bits"): 1.0, Width("b", "weight_bits"): 64.0}
START = dict.fromkeys(GAINS, 8)


def measure(bits: BitAssignment) -> Outcome:
    square = sum(gain * 4.0 ** -bits[width] for width, gain in GAINS.items())
    return Outcome(metrics={"logit_rmse": square**0.5})


def cost(bits: BitAssignment) -> dict[str, float]:
    """An array a two bits, as 2-bit cells have it; conversions go with every bit."""
    return {"arrays": sum(-(-b // 2) for b in bits.values()), "conversions": sum(bits.values())}


COSTS = cast(LayerCosts, SimpleNamespace(cost=cost))


def silent(line: str) -> None:
    pass


def test_a_probe_finds_what_each_width_adds() -> None:
    found = probe(START, measure, silent)
    assert found == pytest.approx(GAINS, rel=1e-9)


def walked(holds: Callable[[Outcome], bool]) -> tuple[Search, Any]:
    search = Search(COSTS, ("arrays", "conversions"), GAINS, dict(START))
    return search, search.run(measure, holds, silent)


def test_it_stops_where_no_single_move_holds() -> None:
    limit = 0.2
    search, steps = walked(lambda one: one.metrics["logit_rmse"] <= limit)
    assert measure(search.bits).metrics["logit_rmse"] <= limit
    for width, bits in search.bits.items():
        lower = {**search.bits, width: bits - 1}
        assert measure(lower).metrics["logit_rmse"] > limit
    assert search.bits[Width("a", "weight_bits")] < search.bits[Width("b", "weight_bits")]
    assert {step.kept for step in steps} == {True, False}


def test_without_a_limit_every_width_ends_at_the_lowest_bits() -> None:
    search, _ = walked(lambda one: True)
    assert set(search.bits.values()) == {2}


def test_what_did_not_hold_alone_is_not_tried_again() -> None:
    _, steps = walked(lambda one: one.metrics["logit_rmse"] <= 0.2)
    alone = [(one.moves[0].width, one.moves[0].now) for one in steps if len(one.moves) == 1]
    assert len(alone) == len(set(alone))


def test_arrays_are_saved_first_where_a_bit_costs_least() -> None:
    search = Search(COSTS, ("arrays", "conversions"), GAINS, dict(START))
    moves, _ = search.ahead(1)
    assert [(one.width.layer, one.was, one.now) for one in moves] == [("a", 8, 6)]
