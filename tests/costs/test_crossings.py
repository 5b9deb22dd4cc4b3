"""The cheapest way by size: what a search finds is what a scan of all sizes shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool import api
from cimtool.costs.crossings import CLOSE, SIZES, CheapestFrom, cheapest_by_size
from cimtool.costs.totals import Quantity
from cimtool.costs.ways import KINDS, GalleryWay, cheapest


def ways_of(figures: list[tuple[float, float]], spread: float, items: int) -> list[GalleryWay]:
    made = []
    for kind, (fixed, slope) in zip(KINDS, figures, strict=False):
        value = fixed + slope * items
        made.append(
            GalleryWay(kind, kind, items, kind, Quantity(value, (), value / spread, value * spread))
        )
    return made


def test_two_lines_cross_where_arithmetic_says() -> None:
    # 0 + 3 M is less than 50,000 + 1 M below M = 25,000.
    found = cheapest_by_size(lambda items, _: ways_of([(0, 3), (50_000, 1)], 1.0, items))
    assert [one.ways[0] for one in found] == ["raw rows", "CPU core"]
    assert found[0].items == 1000
    assert 25_000 <= found[1].items <= 25_000 * CLOSE
    assert [one.takes_less for one in found] == [False, False]


def test_between_two_clear_answers_it_is_open() -> None:
    # With a factor of the root of 2 each way, one is less for sure where 2^(1/sqrt 2) times it is.
    sure = 2**0.5**0.5
    found = cheapest_by_size(lambda items, _: ways_of([(0, 3), (50_000, 0.5)], 2**0.5, items))
    assert [one.ways for one in found] == [
        ("raw rows",), ("raw rows", "CPU core"), ("CPU core", "raw rows"), ("CPU core",)
    ]  # fmt: skip
    for one, exact in zip(
        found[1:],
        (50_000 / (3 * sure - 0.5), 50_000 / 2.5, 50_000 * sure / (3 - 0.5 * sure)),
        strict=True,
    ):
        assert exact <= one.items <= exact * CLOSE + 1


def test_the_answer_is_open_if_both_sides_may_be_cheapest() -> None:
    assert CheapestFrom(1, ("digital", "shortlist")).takes_less is True
    assert CheapestFrom(1, ("digital", "GPU")).takes_less is None
    assert CheapestFrom(1, ("GPU",)).takes_less is False


figure = st.tuples(st.floats(0, 1e9), st.floats(1e-3, 1e4))


@given(figure, figure, st.floats(1, 3))
def test_a_dense_scan_of_two_lines_shows_the_same(
    one: tuple[float, float], other: tuple[float, float], spread: float
) -> None:
    found = cheapest_by_size(lambda items, _: ways_of([one, other], spread, items))
    for items in (round(10 ** (3 + 5 * i / 197)) for i in range(198)):
        first, *rest = cheapest(ways_of([one, other], spread, items))
        said = [each for each in found if each.items <= items][-1]
        near = any(each.items / CLOSE <= items < each.items for each in found)
        assert near or {first.kind, *(each.kind for each in rest)} == set(said.ways)
        assert near or first.kind == said.ways[0]


@pytest.mark.thorough("a scan of a bundle's sizes; lines are scanned in the first tier")
def test_a_bundle_by_size_is_what_a_scan_of_its_costs_shows(small_bundle: Path) -> None:
    found = api.cost(small_bundle, gallery=5000)
    by_size = found.cheapest_by_size
    assert by_size[0].items == SIZES[0]
    for items in (round(10 ** (3 + 5 * i / 97)) for i in range(98)):
        (said,) = [one for one in by_size if one.items <= items][-1:]
        near = any(abs(one.items / items - 1) < 2 * (CLOSE - 1) for one in by_size)
        ways = api.cost(small_bundle, gallery=items).ways
        assert near or {one.kind for one in cheapest(ways)} == set(said.ways)


def test_without_a_gallery_there_are_no_sizes(small_bundle: Path) -> None:
    assert api.cost(small_bundle).cheapest_by_size == ()
