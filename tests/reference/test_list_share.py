"""Shortlists of large galleries, measured on fewer items."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.reference.list_share import ListShare

SIZES = st.integers(1, 10**12)


@pytest.mark.parametrize(
    ("length", "gallery", "items", "measured"),
    [
        (1000, 100_000, 1500, 15),
        (100, 100_000, 1500, 1),
        (66, 100_000, 1500, 0),  # 0.99 of an item
        (100, 1_000_000, 1000, 0),
        (1000, 1_000_000, 1000, 1),
        (1999, 1_000_000, 1000, 1),
        (100, 1000, 1000, 100),
        (10, 100, 1500, 150),
        (100, 100, 60, 60),
    ],
)
def test_a_list_is_measured_as_its_share(
    length: int, gallery: int, items: int, measured: int
) -> None:
    assert ListShare(length, gallery, items).measured == measured


@given(SIZES, SIZES, st.data())
def test_the_shortest_list_that_is_measured_as_so_many(
    gallery: int, items: int, data: st.DataObject
) -> None:
    wanted = data.draw(st.integers(1, items))
    length = ListShare(1, gallery, items).length_for(wanted)
    assert 1 <= length <= gallery
    assert ListShare(length, gallery, items).measured >= wanted
    assert ListShare(length - 1, gallery, items).measured < wanted


def test_the_reason_says_what_can_be_measured() -> None:
    assert ListShare(66, 100_000, 1500).unmeasured == (
        "of 100,000 items it is fewer than one of the 1,500 that it is measured on; expected a "
        "list of at least 67, or at least 1,516 items to measure on"
    )
    assert ListShare(67, 100_000, 1500).measured == ListShare(66, 100_000, 1516).measured == 1
    assert ListShare(66, 100_000, 1515).measured == 0
