"""The one rule of intervals, by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.base.intervals import Change
from cimtool.costs.price_errors import EnergyByPrice, least_known, ratio, times_text
from cimtool.costs.silicon import setup_width
from cimtool.costs.totals import Cost, PartShare, Quantity, independent

ALIKE = setup_width()
"""The width of a price in another set-up of the same circuits."""


def test_a_price_cancels_for_the_work_that_both_do() -> None:
    # 20 and 10 of DRAM alone: half of the energy above is beyond that below.
    found = ratio({"memory": Change(20, 10, 60)}, {"memory": Change(10, 5, 30)})
    ends = 2 * (1 + (ALIKE.low - 1) / 2), 2 * (1 + (ALIKE.high - 1) / 2)
    assert found.value == 2
    assert (found.low, found.high) == pytest.approx(ends)
    same = {"memory": Change(20, 10, 60), "arrays": Change(3, 1, 5)}
    assert ratio(same, same) == Change(1, 1, 1)


def test_a_price_that_is_known_better_than_another_set_up_has_its_own_interval() -> None:
    found = ratio({"memory": Change(20, 19.8, 20.2)}, {"memory": Change(10, 9.9, 10.1)})
    assert (found.low, found.high) == pytest.approx((1.99, 2.01))


def test_what_is_left_of_a_common_price_counts_once() -> None:
    # Above 10 of DRAM and 10 of arrays, below 10 of DRAM: DRAM at 5 and at 30.
    found = ratio(
        {"memory": Change(10, 5, 30), "arrays": Change(10, 10, 10)}, {"memory": Change(10, 5, 30)}
    )
    # At the lowest 15 / 5 = 3, at the highest 40 / 30.
    assert (found.value, found.low, found.high) == pytest.approx((2, 4 / 3, 3))


def test_the_price_that_leaves_most_open_is_named() -> None:
    gpu, arrays = Change(10, 5, 20), Change(8, 1, 90)
    assert least_known({"GPU": gpu}, {"arrays": arrays, "memory": Change(1, 0.5, 2)}) == "arrays"
    assert least_known({"GPU": gpu}, {"arrays": Change(8, 7, 9)}) == "GPU"
    # What both do alike cancels, however little its price is known.
    both = {"memory": Change(10, 0, 1e6)}
    assert least_known(both | {"GPU": gpu}, both | {"arrays": Change(8, 7, 9)}) == "GPU"


def test_prices_of_one_way_alone_add_in_squares_and_two_ways_multiply() -> None:
    # Above two prices of 10, each 7 to 14 and 6 to 13; below one of 5, 4 to 8.
    above = {"a": Change(10, 7, 14), "b": Change(10, 6, 13)}
    found = ratio(above, {"c": Change(5, 4, 8)})
    up = math.hypot(math.log((20 + math.hypot(4, 3)) / 20), math.log(5 / 4))
    down = math.hypot(math.log(20 / (20 - math.hypot(3, 4))), math.log(8 / 5))
    assert found.value == 4
    assert (found.low, found.high) == pytest.approx((4 * math.exp(-down), 4 * math.exp(up)))


def test_over_a_constant_the_ratio_has_the_interval_of_the_energy() -> None:
    both = Quantity(3.0, (), 1.0, 6.0)
    cost = Cost(parts={name: PartShare(both) for name in ("arrays", "converters", "memory")})
    energy = cost.energy_pj
    assert energy == independent([both + both, both])
    found = ratio(cost.energy_by_price, {"nothing": Change(3, 3, 3)})
    assert (3 * found.low, 3 * found.high) == pytest.approx((energy.low, energy.high))


def test_an_energy_that_may_be_nothing_leaves_an_end_open() -> None:
    nothing, two = {"a": Change(1, 0, 1)}, {"a": Change(2, 0, 2)}
    constant = {"b": Change(1, 1, 1)}
    assert ratio({"b": Change(2, 2, 2)}, nothing).high == math.inf
    assert ratio(two, constant).low == 0
    assert ratio(two, nothing).low == pytest.approx(1 + ALIKE.low)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Change(2.04, 1.31, 2.96), "2 times (1.3 to 3)"),
        (Change(2.3, 2.297, 2.304), "2.3 times (2.297 to 2.304)"),
        (Change(0.25, 0.2381, 0.2412), "0.25 times (0.238 to 0.241)"),
        (Change(1234.0, 1231.0, 1239.0), "1,230 times (1,230 to 1,240)"),
        (Change(1.0, 1.0, 1.0), "exactly 1 times"),
        (Change(2.0, 1.2, math.inf), "2 times (at least 1.2)"),
        (Change(2.0, 0.0, 5.0), "2 times (at most 5)"),
        (Change(2.0, 0.0, math.inf), "2 times (no end is known)"),
    ],
)
def test_a_multiple_never_shows_two_equal_ends(found: Change, text: str) -> None:
    assert times_text(found) == text


@given(st.floats(1e-6, 1e9), st.floats(1e-9, 2), st.floats(1e-9, 2))
def test_the_ends_that_are_shown_differ(value: float, below: float, above: float) -> None:
    found = Change(value, value / (1 + below), value * (1 + above))
    shown = times_text(found)
    low, high = shown.partition("(")[2].rstrip(")").split(" to ")
    assert float(low.replace(",", "")) < float(high.replace(",", ""))


ends = st.tuples(st.floats(0.05, 1), st.floats(1, 20))
parts = st.builds(
    lambda part, factors: Change(part, part * factors[0], part * factors[1]),
    st.floats(0.01, 100),
    ends,
)
priced = st.dictionaries(st.sampled_from("abcd"), parts, min_size=1)


@given(priced, priced)
def test_the_interval_lies_within_all_prices_at_their_worst(
    above: EnergyByPrice, below: EnergyByPrice
) -> None:
    found, turned = ratio(above, below), ratio(below, above)
    assert found.low <= found.value * (1 + 1e-9)
    assert found.value <= found.high * (1 + 1e-9)
    assert (turned.low, turned.high) == pytest.approx((1 / found.high, 1 / found.low))
    # Never wider than both energies at their own worst ends.
    worst = [
        sum(getattr(one, end) for one in of.values())
        for of in (above, below)
        for end in ("low", "high")
    ]
    assert found.low >= worst[0] / worst[3] * (1 - 1e-9)
    assert found.high <= worst[1] / worst[2] * (1 + 1e-9)


@given(priced, st.floats(0.1, 0.99))
def test_energies_of_unlike_work_have_a_ratio_with_an_interval(
    above: EnergyByPrice, share: float
) -> None:
    below = {n: Change(share * one.value, share * one.low, share * one.high)
             for n, one in above.items()}  # fmt: skip
    found = ratio(above, below)
    wide = any(one.low < one.value * 0.999 and one.high > one.value * 1.001
               for one in above.values())  # fmt: skip
    assert not wide or found.low < found.value < found.high
