from __future__ import annotations

import math

import pytest

from cimtool.report.formats import (
    ENERGIES,
    counted,
    coverage,
    digits,
    digits_apart,
    fine_percent,
    number,
    numbered,
    percent,
    percent_range,
    scaled,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (0.10159, "0.1016"), (-0.5, "-0.5000"), (12.345678, "12.35"),
        (1234.5, "1234"), (1.2e-7, "1e-07"), (4.9e-5, "5e-05"), (5e-5, "0.0001"),
    ],
)  # fmt: skip
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(math.inf, "-"), (math.nan, "-"), (0.12345, "12.3"), (-0.0001, "0.0")]
)
def test_shares_are_in_percent(value: float, text: str) -> None:
    assert percent(value) == text


def test_intervals_and_rare_events() -> None:
    assert percent_range(0.25, 0.305) == "[25.0, 30.5]"
    assert fine_percent(0.000015) == "0.002"


@pytest.mark.parametrize(("share", "text"), [(1, "100%"), (0.9999, "99%"), (0.286, "29%")])
def test_coverage_is_all_only_where_it_is(share: float, text: str) -> None:
    assert coverage(share) == text


def test_a_quantity_has_the_unit_that_fits() -> None:
    assert [scaled(x, ENERGIES) for x in (0.5, 999.0, 2.5e3, 4e12)] == [
        "0.5 pJ", "999 pJ", "2.5 nJ", "4 J",
    ]  # fmt: skip


def test_digits_have_no_exponent_where_a_number_is_large() -> None:
    assert [digits(1234567.0), digits(0.0456), digits(98.7, 3)] == ["1,200,000", "0.046", "98.7"]
    assert [digits_apart(*ends) for ends in ((1.2, 1.3), (2.297, 2.304), (5, 5))] == [2, 4, 2]


def test_things_are_counted_and_equal_names_numbered() -> None:
    assert [counted(n, "chip") for n in (1, 5000)] == ["1 chip", "5,000 chips"]
    assert numbered(["a", "b", "a"]) == ("a (1)", "b", "a (2)")
