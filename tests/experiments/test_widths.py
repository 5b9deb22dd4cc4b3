"""The walk over a made-up model: what it measures, in which order it moves, where it stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from cimtool.experiments.compiled import Outcome
from cimtool.experiments.objectives import CostName, CostObjective
from cimtool.experiments.widths import (
    BitAssignment,
    LayerCosts,
    Search,
    Width,
    probe,
    probes,
)
from cimtool.hardware.configuration import Configuration

GAINS = {Width("a", "weight_bits"): 1.0, Width("b", "weight_bits"): 64.0}
START = dict.fromkeys(GAINS, 8)


def measure(bits: BitAssignment) -> Outcome:
    square = sum(gain * 4.0 ** -bits[width] for width, gain in GAINS.items())
    return Outcome(metrics=dict.fromkeys(("centred_rmse", "logit_rmse"), square**0.5))


class MadeUpCosts(NamedTuple):
    """An array a two bits, as 2-bit cells have it; conversions go with every bit."""

    layers: LayerCosts

    def below(self, width: Width, bits: int) -> tuple[int, ...]:
        return self.layers.below(width, bits)

    def cost(self, bits: BitAssignment) -> dict[CostName, float]:
        arrays = sum(-(-b // 2) for b in bits.values())
        return {"arrays": arrays, "conversions": sum(bits.values())}

    def prices(self, bits: BitAssignment) -> tuple[float, ...]:
        return CostObjective({"arrays": 1.0}).prices(self.cost(bits))


def costs(*products: str) -> MadeUpCosts:
    """Of two layers, some of which are products of a score in the memory."""
    start = Configuration.of("ideal", None, {})
    return MadeUpCosts(LayerCosts(start, {}, START, {name: name for name in products}))


def silent(line: str) -> None:
    pass


def probed(outcome: Callable[[BitAssignment], Outcome]) -> dict[Width, float]:
    lower = {width: outcome(bits) for width, bits in probes(START).items()}
    return probe(START, outcome(START), lower)


def test_a_probe_finds_what_each_width_adds() -> None:
    assert probed(measure) == pytest.approx(GAINS, rel=1e-9)


def test_an_offset_of_all_scores_adds_nothing_to_a_probe() -> None:
    def offset(bits: BitAssignment) -> Outcome:
        metrics = dict(measure(bits).metrics)
        metrics["logit_rmse"] += bits[Width("a", "weight_bits")]  # less of it at fewer bits
        return Outcome(metrics=metrics)

    assert probed(offset) == pytest.approx(GAINS, rel=1e-9)


def walked(holds: Callable[[Outcome], bool], *products: str) -> tuple[Search, Any]:
    search = Search(costs(*products), GAINS, dict(START))
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


def test_a_product_ends_left_out() -> None:
    search, steps = walked(lambda one: True, "b")
    assert search.bits == {Width("a", "weight_bits"): 2, Width("b", "weight_bits"): 0}
    assert 1 not in {move.now for step in steps for move in step.moves}


def test_what_did_not_hold_alone_is_not_tried_again() -> None:
    _, steps = walked(lambda one: one.metrics["logit_rmse"] <= 0.2)
    alone = [(one.moves[0].width, one.moves[0].now) for one in steps if len(one.moves) == 1]
    assert len(alone) == len(set(alone))


def test_arrays_are_saved_first_where_a_bit_costs_least() -> None:
    search = Search(costs(), GAINS, dict(START))
    moves, _ = search.ahead(1)
    assert [(one.width.layer, one.was, one.now) for one in moves] == [("a", 8, 6)]


def test_only_widths_with_a_weight_are_lowered() -> None:
    search = Search(costs(), {Width("b", "weight_bits"): 1.0}, dict(START))
    search.run(measure, lambda one: True, silent)
    assert search.bits == {Width("a", "weight_bits"): 8, Width("b", "weight_bits"): 2}
