"""Raw rows in digital beside a compiled query."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cimtool.base.intervals import Change
from cimtool.bundle.bundle import read_bundle
from cimtool.costs.bundle_cost import BundleCost, bundle_cost
from cimtool.costs.price_errors import ratio
from cimtool.costs.raw_rows import TimesRaw, raw_query, row_width, times_raw
from cimtool.costs.ways import times as ways_times

BUNDLE = Path(__file__).resolve().parents[2] / "exports" / "reference-small@isaac-rram-128"


def estimated(gallery: int | None) -> BundleCost:
    return bundle_cost(read_bundle(BUNDLE), 10, gallery)


def test_raw_rows_take_a_product_and_a_read_of_each_number() -> None:
    found = estimated(1000)
    raw = raw_query(found)
    assert raw is not None
    width = found.program.text.inputs["x"].shape[-1]
    numbers = 1000 * int(width)
    assert raw.digital.multiplications == numbers
    assert raw.digital.count("sram", "dram") == numbers
    twice = raw_query(found.with_gallery(2000))
    assert twice is not None
    # The text comes from the host once.
    host = raw.parts["links"].energy.value or 0
    assert host > 0
    assert twice.energy_pj.value == pytest.approx(2 * (raw.energy_pj.value or 0) - host)


def test_rows_that_no_longer_fit_the_buffer_are_read_from_dram() -> None:
    found = estimated(10**7)
    raw = raw_query(found)
    assert raw is not None
    assert raw.digital.count("dram") > 0
    assert raw.digital.count("sram") == 0


def test_a_query_is_a_multiple_of_raw_rows_by_the_one_rule_of_intervals() -> None:
    found = estimated(1000)
    raw, query, times = raw_query(found), found.query, times_raw(found)
    assert raw is not None
    assert query is not None
    assert times is not None
    own, other = query.energy_pj, raw.energy_pj
    assert own.value is not None
    assert other.value is not None
    assert times.times.value == pytest.approx(own.value / other.value)
    expected = ratio(query.energy_by_price, raw.energy_by_price)
    assert times.times == expected
    (row,) = [one for one in found.ways if one.kind == "raw rows"]
    (built,) = [one for one in found.ways if one.kind == "digital"]
    assert ways_times(built, row) == expected


def test_large_multiples_have_no_exponent() -> None:
    sentence = TimesRaw(Change(1.234e6, 0.0456, 98.7), 7, lower_bound=False).sentence()
    assert sentence.text == (
        "Energy per query: 1,200,000 times (0.046 to 99) that of raw rows in int8 among 7 items."
    )


def test_without_a_gallery_or_with_rows_of_two_widths_there_is_nothing_to_compare() -> None:
    assert raw_query(estimated(None)) is None
    found = estimated(1000)
    text = found.program.text
    wide = replace(text.inputs["x"], shape=("n", 7))
    changed = replace(text, inputs={**text.inputs, "x": wide})
    other = replace(found, program=replace(found.program, text=changed))
    assert row_width(other) is None
    assert raw_query(other) is None
    assert times_raw(other) is None
