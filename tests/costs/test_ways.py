"""Ways beside each other: the comparison, the cheapest, one of each kind."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.base.intervals import Change
from cimtool.costs.silicon import setup_width
from cimtool.costs.totals import Quantity
from cimtool.costs.ways import HERE, KINDS, GalleryWay, WayKind, cheapest, one_of_each, times


def way(
    kind: WayKind, value: float | None, low: float = 0, high: float = 0, place: str = HERE,
    missing: tuple[str, ...] = (), refused: str = "",
) -> GalleryWay:  # fmt: skip
    energy = Quantity(value, missing, low or value, high or value)
    return GalleryWay(kind, kind, 1000, place, energy, Quantity(50.0), refused=refused)


def test_ways_of_one_place_are_compared_at_the_same_ends_of_prices() -> None:
    ratio = times(way("digital", 30, 10, 90), way("raw rows", 10, 5, 30))
    assert ratio is not None
    # 10 over 5, and 90 over 30, but for the 20 of 30 that are beyond the 10 below.
    high = 3 * (1 + (setup_width().high - 1) * 20 / 30)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((3, 2, high))


def test_errors_of_ways_of_two_places_add_up_in_squares() -> None:
    ratio = times(way("digital", 30, 10, 90), way("GPU", 10, 5, 30, "A100"))
    assert ratio is not None
    assert ratio.value == 3
    # Factors of 3 and 3 downwards, of 3 and 2 upwards.
    assert ratio.low == pytest.approx(3 / 3 ** math.sqrt(2))
    assert ratio.high == pytest.approx(3 * math.exp(math.hypot(math.log(3), math.log(2))))


def test_a_lower_bound_leaves_an_end_open() -> None:
    bound, whole = way("digital", 3, missing=("arrays",)), way("raw rows", 1)
    assert (of := times(bound, whole)) is not None
    assert (of.low, of.high) == (3, math.inf)
    assert (of := times(whole, bound)) is not None
    assert of.low == 0
    assert times(way("digital", None), whole) is None
    assert times(way("digital", 2, refused="no"), whole) is None


def test_the_cheapest_comes_first_and_then_what_may_be_as_cheap() -> None:
    ways = [way("raw rows", 20, 10, 40), way("GPU", 30, 15, 60, "A100"), way("digital", 50, 30, 90)]
    assert [one.kind for one in cheapest(ways)] == ["raw rows", "GPU"]
    assert cheapest([way("digital", None)]) == ()
    # A lower bound may be more than it says.
    bound = [way("digital", 1, missing=("arrays",)), way("raw rows", 2)]
    assert [one.kind for one in cheapest(bound)] == ["raw rows", "digital"]
    assert [one.kind for one in cheapest(bound[:1])] == ["digital"]


energies = st.floats(1e-3, 1e9)


@given(st.lists(st.tuples(energies, st.floats(1, 9), st.floats(1, 9)), min_size=1, max_size=8))
def test_all_that_are_left_out_take_more_at_every_end(figures: list[tuple[float, ...]]) -> None:
    ways = [
        way(kind, value, value / less, value * more, HERE if i % 2 else "machine")
        for i, (kind, (value, less, more)) in enumerate(zip(KINDS, figures, strict=False))
    ]
    first, *others = cheapest(ways)
    assert first.energy_pj.value == min(one.energy_pj.value or 0 for one in ways)
    for one in ways:
        lows = [ratio.low for other in ways if (ratio := times(one, other)) is not None]
        assert len(lows) == len(ways)
        assert (max(lows) > 1) == (one is not first and one not in others)
    assert others == sorted(others, key=lambda one: one.energy_pj.value or 0)


def test_a_way_is_left_out_if_another_than_the_first_takes_less() -> None:
    ways = [way("shortlist", 10, 1, 100), way("in the memory", 12, 11, 13), way("GPU", 20, 19, 21)]
    assert [one.kind for one in cheapest(ways)] == ["shortlist", "in the memory"]
    ways[2] = way("GPU", 20, 19, 21, "machine")
    assert [one.kind for one in cheapest(ways)] == ["shortlist", "in the memory"]


def test_one_of_each_kind_the_first_that_is_not_refused() -> None:
    ways = [
        way("shortlist", None, refused="no"), way("shortlist", 3), way("shortlist", 2),
        way("in the memory", None, refused="too large"), way("raw rows", 1),
    ]  # fmt: skip
    kept = one_of_each(ways)
    assert [one.kind for one in kept] == ["raw rows", "in the memory", "shortlist"]
    assert kept[2].energy_pj.value == 3
    assert kept[1].refused == "too large"


def test_of_shortlists_the_cheapest_that_holds_enough_is_taken() -> None:
    def listed(energy: float, recall: float) -> GalleryWay:
        return replace(way("shortlist", energy), recall=Change(recall, recall, recall))

    few, many, most = listed(1, 0.9), listed(3, 0.99), listed(2, 1.0)
    assert one_of_each([few, many, most]) == [most]
    assert one_of_each([few, many]) == [many]
    assert one_of_each([listed(1, 0.5), few]) == [few]
    assert one_of_each([way("shortlist", 5), few]) == [few]


def test_queries_a_second_are_those_of_batches_one_after_another() -> None:
    one = GalleryWay("GPU", "", 1, latency_ns=Quantity(1000.0, (), 500.0, 2000.0), batch=3)
    rate = one.queries_per_s
    assert (rate.value, rate.low, rate.high) == pytest.approx((3e6, 1.5e6, 6e6))
    assert GalleryWay("GPU", "", 1).queries_per_s.value is None
    assert one.to_json()["queries_per_s"]["value"] == 3e6
