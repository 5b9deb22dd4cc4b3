"""Work that arrays skip: counted as the integers of a layer have it, digit by digit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from crossbars import changed
from hypothesis import given
from hypothesis import strategies as st
from random_crossbars import CROSSBARS, drawn, input_limits, weight_limits

from cimtool.base.errors import CimError
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.settings import resolve
from cimtool.hardware.skipping import driven_shares, empty_columns
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.target import derived, load_target


@given(CROSSBARS, st.integers(1, 19), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_shares_and_empty_columns_are_those_of_the_digits(
    hardware: Crossbar, rows: int, density: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    hardware = changed(hardware, shift_add="digital")
    weight = drawn(rng, weight_limits(hardware), (rows, 3)) * (rng.random((rows, 3)) < density)
    x = drawn(rng, input_limits(hardware), (4, rows)) * (rng.random((4, rows)) < density)
    stored = StoredWeights(weight, hardware)
    height = hardware.tiling.height or rows
    digits, busy = hardware.digits(x), []
    for row in range(len(x)):
        of_arrays: dict[int, list[int]] = {}
        for group in hardware.tiling.groups(rows):
            driven = sum(any(cycle[row, group].tolist()) for cycle in digits)
            of_arrays.setdefault(group.start // height, []).append(driven)
        busy.append(of_arrays)
    cycles = len(digits)
    groups = sum(len(one) for one in busy[0].values())
    reads = max(len(one) for one in busy[0].values())
    total = sum(sum(one) for of_arrays in busy for one in of_arrays.values())
    slowest = sum(max(sum(one) for one in of_arrays.values()) for of_arrays in busy)
    expected = total / (4 * groups * cycles), slowest / (4 * reads * cycles)
    assert driven_shares(x, stored) == pytest.approx(expected)
    empty = sum(
        not any(one.digits[group, column].tolist())
        for one in stored.slices
        for group in stored.groups
        for column in range(3)
    )
    assert empty_columns(stored) == empty


def skipping(**tables: Any) -> Any:
    own = {"name": "mine", "title": "mine", "figures": [], **tables}
    own["array"] = {"skips": ["zero-inputs", "zero-slices"]} | own.get("array", {})
    return derived(load_target("isaac-rram-128"), own)


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ({"adc": {"references": "column"}}, 'references = "column" sets offsets'),
        ({"array": {"on_off_ratio": 20.0}}, "erased cells conduct with on_off_ratio = 20"),
        (
            {"adc": {"bits": 1, "transfer": [-0.5]}},
            "a sum of 0 that is not read must count 0, and this converter reads it as another",
        ),
        ({"array": {"skips": ["zeros"]}}, "array.skips"),
    ],
)
def test_a_sum_that_is_skipped_counts_zero(tables: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CimError, match=sentence):
        skipping(**tables)


def test_references_that_are_set_later_are_refused() -> None:
    with pytest.raises(CimError, match=r'skips = .*references = "slice" sets offsets'):
        resolve(skipping(), None, {"references": "slice"})
