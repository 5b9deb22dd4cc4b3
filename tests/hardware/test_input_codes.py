"""Input codes: whatever the code, the digits that cycles drive rebuild the inputs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_crossbars import CROSSBARS, INPUTS, drawn, input_limits

from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.input_codes import InputCode


@settings(deadline=None)
@given(CROSSBARS, st.integers(0, 2**32 - 1))
def test_cycles_rebuild_the_inputs(hardware: Crossbar, seed: int) -> None:
    x = drawn(np.random.default_rng(seed), input_limits(hardware), (2, 5))
    total = np.zeros_like(x)
    for digits, cycle in zip(hardware.digits(x), hardware.cycles, strict=True):
        if hardware.shift_add == "digital":
            assert cycle.bits is not None
            assert cycle.bits <= hardware.inputs.dac_bits
            assert np.abs(digits).max() < 1 << cycle.bits
        lo, hi = hardware.digit_limits
        assert lo <= digits.min() <= digits.max() <= hi
        assert cycle.factor == cycle.sign << cycle.shift
        total += cycle.sign * (digits << cycle.shift)
    if hardware.inputs.name == "offset":
        total -= 1 << hardware.inputs.bits - 1
    np.testing.assert_array_equal(total, x)


@settings(deadline=None)
@given(CROSSBARS)
def test_limits_are_the_smallest_and_the_largest_input(hardware: Crossbar) -> None:
    assert hardware.inputs.limits(hardware.inputs.bits) == input_limits(hardware)


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("bits", [2, 3, 8])
def test_the_fewest_bits_that_hold_the_limits_are_those_that_have_them(
    name: str, bits: int
) -> None:
    code = InputCode.named(name, "encoding")
    lo, hi = code.limits(bits)
    assert code.bits_for(lo, hi) == bits
    assert code.bits_for(0, hi) == bits
    assert code.bits_for(0, hi + 1) == bits + 1
