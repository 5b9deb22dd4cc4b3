"""Arrays in words: of published designs by hand, and of every target."""

from __future__ import annotations

import pytest

from cimtool.hardware.in_words import array_text
from cimtool.hardware.target import derived, load_target, target_names


def test_an_array_is_told_as_its_publication_has_it() -> None:
    assert list(array_text(load_target("isaac-rram-128"))) == [
        "an array of 128 x 128 cells of 2 bits holds 128 x 32 weights of 8 bits, offset-flip: 4 "
        "cells and 4 converted columns a weight",
        "inputs of 8 bits, twos-complement, take 8 cycles of 1 bit, all rows at once",
        "converters of 8 bits convert 8 times a column",
    ]


def test_groups_of_rows_and_what_is_assumed_are_told() -> None:
    base = load_target("charge-65nm-princeton")
    own = {"name": "mine", "title": "mine", "array": {"rows_active": 256}}
    _, driven, converted, assumed = array_text(derived(base, own))
    assert driven.endswith("take 8 cycles of 1 bit, 9 groups of rows one after another")
    assert converted == "converters of 8 bits convert 8 times a column"
    assert assumed == "no adc_rate: converters are taken to keep up with the cycles"


@pytest.mark.parametrize("name", target_names())
def test_every_target_is_told(name: str) -> None:
    target = load_target(name)
    size, driven, converted, *_ = array_text(target)
    if target.keys.rows is not None:
        assert size.startswith(f"an array of {target.keys.rows} x {target.keys.columns} cells of ")
    assert driven.startswith("inputs of ")
    assert (converted == "sums are exact: no converter") == (target.keys.adc_bits is None)
