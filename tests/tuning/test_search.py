"""The walk over a made-up model: what it measures, in which order it moves, where it stops."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cimtool.sweeps.bench import Outcome
from cimtool.tuning.knobs import Bits, Hardware, Knob
from cimtool.tuning.search import Walk, probe, walk

GAINS = {Knob("a", "weight_bits"): 1.0, Knob("b", "weight_bits"): 64.0}
START = dict.fromkeys(GAINS, 8)


def measure(bits: Bits) -> Outcome:
    square = sum(gain * 4.0 ** -bits[knob] for knob, gain in GAINS.items())
    return Outcome(metrics={"logit_rmse": square**0.5})


def cost(bits: Bits) -> dict[str, float]:
    """An array a two bits, as 2-bit cells have it; conversions go with every bit."""
    return {"arrays": sum(-(-b // 2) for b in bits.values()), "conversions": sum(bits.values())}


HARDWARE = cast(Hardware, SimpleNamespace(cost=cost))


def silent(line: str) -> None:
    pass


def test_a_probe_finds_what_each_knob_adds() -> None:
    found = probe(START, measure, silent)
    assert found == pytest.approx(GAINS, rel=1e-9)


def walked(holds: Callable[[Outcome], bool]) -> tuple[Walk, Any]:
    walking = Walk(HARDWARE, ("arrays", "conversions"), GAINS, dict(START))
    return walking, walk(walking, measure, holds, silent)


def test_it_stops_where_no_single_move_holds() -> None:
    limit = 0.2
    walking, steps = walked(lambda one: one.metrics["logit_rmse"] <= limit)
    assert measure(walking.bits).metrics["logit_rmse"] <= limit
    for knob, bits in walking.bits.items():
        lower = {**walking.bits, knob: bits - 1}
        assert measure(lower).metrics["logit_rmse"] > limit
    assert walking.bits[Knob("a", "weight_bits")] < walking.bits[Knob("b", "weight_bits")]
    assert {step.kept for step in steps} == {True, False}


def test_without_a_limit_every_knob_ends_at_the_lowest_bits() -> None:
    walking, _ = walked(lambda one: True)
    assert set(walking.bits.values()) == {2}


def test_what_did_not_hold_alone_is_not_tried_again() -> None:
    _, steps = walked(lambda one: one.metrics["logit_rmse"] <= 0.2)
    alone = [(one.moves[0].knob, one.moves[0].now) for one in steps if len(one.moves) == 1]
    assert len(alone) == len(set(alone))


def test_arrays_are_saved_first_where_a_bit_costs_least() -> None:
    walking = Walk(HARDWARE, ("arrays", "conversions"), GAINS, dict(START))
    moves, _ = walking.ahead(1)
    assert [(one.knob.layer, one.was, one.now) for one in moves] == [("a", 8, 6)]
