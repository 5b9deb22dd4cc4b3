"""The one rule of intervals, by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.costs.price_errors import ratio
from cimtool.costs.totals import Cost, PartShare, Quantity, independent


def test_a_price_that_both_have_cancels() -> None:
    # 20 and 10 of DRAM alone, whose price is between half and three times the middle.
    found = ratio(20, {"memory": (10, 60)}, 10, {"memory": (5, 30)})
    assert (found.value, found.low, found.high) == (2, 2, 2)


def test_what_is_left_of_a_common_price_counts_once() -> None:
    # Above 10 of DRAM and 10 of arrays, below 10 of DRAM: DRAM at 5 and at 30.
    found = ratio(20, {"memory": (15, 40)}, 10, {"memory": (5, 30)})
    # At the lowest 15 / 5 = 3, at the highest 40 / 30.
    assert (found.value, found.low, found.high) == pytest.approx((2, 4 / 3, 3))


def test_prices_of_one_way_alone_add_in_squares_and_two_ways_multiply() -> None:
    # Above two prices of 10, each 7 to 14 and 6 to 13; below one of 5, 4 to 8.
    found = ratio(20, {"a": (17, 24), "b": (16, 23)}, 5, {"c": (4, 8)})
    up = math.hypot(math.log((20 + math.hypot(4, 3)) / 20), math.log(5 / 4))
    down = math.hypot(math.log(20 / (20 - math.hypot(3, 4))), math.log(8 / 5))
    assert found.value == 4
    assert (found.low, found.high) == pytest.approx((4 * math.exp(-down), 4 * math.exp(up)))


def test_over_a_constant_the_ratio_has_the_interval_of_the_energy() -> None:
    both = Quantity(3.0, (), 1.0, 6.0)
    cost = Cost(parts={name: PartShare(both) for name in ("arrays", "converters", "memory")})
    energy = cost.energy_pj
    assert energy == independent([both + both, both])
    found = ratio(energy.value or 0, cost.energy_by_price, 3.0, {})
    assert (3 * found.low, 3 * found.high) == pytest.approx((energy.low, energy.high))


def test_an_energy_that_may_be_nothing_leaves_an_end_open() -> None:
    assert ratio(2, {}, 1, {"a": (0, 1)}).high == math.inf
    assert ratio(2, {"a": (0, 2)}, 1, {}).low == 0
    assert ratio(2, {"a": (0, 2)}, 1, {"a": (0, 1)}).low == 2


ends = st.tuples(st.floats(0.05, 1), st.floats(1, 20))
priced = st.dictionaries(st.sampled_from("abcd"), st.tuples(st.floats(0.01, 100), ends), min_size=1)


@given(priced, priced)
def test_the_interval_lies_within_all_prices_at_their_worst(
    above: dict[str, tuple[float, tuple[float, float]]],
    below: dict[str, tuple[float, tuple[float, float]]],
) -> None:
    def total(of: dict[str, tuple[float, tuple[float, float]]], at: dict[str, int]) -> float:
        return sum(part * factors[at[name]] if name in at else part
                   for name, (part, factors) in of.items())  # fmt: skip

    one, other = total(above, {}), total(below, {})
    by_price = [
        {name: (total(of, {name: 0}), total(of, {name: 1})) for name in of} for of in (above, below)
    ]
    found = ratio(one, by_price[0], other, by_price[1])
    assert found.low <= found.value * (1 + 1e-9)
    assert found.value <= found.high * (1 + 1e-9)
    turned = ratio(other, by_price[1], one, by_price[0])
    assert (turned.low, turned.high) == pytest.approx((1 / found.high, 1 / found.low))
    # Never wider than both energies at their own worst ends.
    worst = [total(of, dict.fromkeys(of, end)) for of in (above, below) for end in (0, 1)]
    assert found.low >= worst[0] / worst[3] * (1 - 1e-9)
    assert found.high <= worst[1] / worst[2] * (1 + 1e-9)
