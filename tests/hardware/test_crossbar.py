"""The arrays of a layer: their row groups, and their codes in a file."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from crossbars import PLAIN, changed
from hypothesis import given
from hypothesis import strategies as st
from random_crossbars import (
    CONVERTING,
    CROSSBARS,
    MEASURED,
)

from cimtool.base.errors import CimError
from cimtool.hardware.converters import Measured
from cimtool.hardware.crossbar import Crossbar, RowTiling
from cimtool.hardware.references import AdcReferences


def test_an_array_as_a_field_of_a_converter_is_one_sentence() -> None:
    wrong = Measured(1, np.array([8]))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^Measured\.transfer is of type ndarray; expected an int"):
        replace(PLAIN, converter=wrong)
    with pytest.raises(
        TypeError, match=r"^Measured\.transfer is of type tuple \(int64\); expected"
    ):
        replace(PLAIN, converter=Measured(1, tuple(np.array([8]))))


def test_the_last_row_group_is_what_is_left() -> None:
    groups = RowTiling(4).groups(10)
    assert [(g.start, g.stop) for g in groups] == [(0, 4), (4, 8), (8, 10)]
    assert RowTiling(None).groups(10) == (slice(0, 10),)


def test_a_lossless_converter_has_no_codes() -> None:
    assert PLAIN.law is None
    sums = np.arange(-3, 4)
    np.testing.assert_array_equal(PLAIN.read(sums, AdcReferences.from_zero(4), 0), sums)


def test_no_row_group_reaches_over_the_end_of_an_array() -> None:
    tiling = RowTiling(5, 2, "driven")
    groups = tiling.groups(9)
    assert [(g.start, g.stop) for g in groups] == [(0, 2), (2, 4), (4, 5), (5, 7), (7, 9)]
    assert tiling.idle(9).tolist() == [0, 0, 0, 0, 0]
    assert tiling.idle(6).tolist() == [0, 0, 0, 1]
    assert RowTiling(5, unused="driven").idle(7).tolist() == [0, 3]
    assert RowTiling(5).idle(7).tolist() == [0, 0]


def test_the_leak_cancels_in_analog_differences() -> None:
    hardware = changed(PLAIN, encoding="differential", leak=777)
    assert (hardware.column_leak, hardware.fraction_bits) == (0, 0)
    assert changed(hardware, adc_on="polarity").fraction_bits == 12


@given(st.one_of(CROSSBARS, CONVERTING, MEASURED))
def test_a_crossbar_is_read_back_from_a_file(hardware: Crossbar) -> None:
    assert Crossbar.from_json(json.loads(json.dumps(hardware.to_json()))) == hardware


def test_a_file_names_its_codes() -> None:
    values = PLAIN.to_json()
    assert [values[key]["name"] for key in ("weights", "inputs", "converter")] == [
        "offset", "twos-complement", "lossless",
    ]  # fmt: skip
    values["weights"]["name"] = "ofset"
    with pytest.raises(CimError, match=r'weights "ofset" is not known: .*did you mean "offset"'):
        Crossbar.from_json(values)
