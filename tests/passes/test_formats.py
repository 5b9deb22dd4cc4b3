"""Formats: scales that cover, and power-of-two ones where exactness asks for them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.ir.arithmetic import Store
from cimtool.ir.types import real
from cimtool.passes.formats import covering, next_power_of_two, value_format


@given(st.floats(1e-30, 1e30))
def test_the_next_power_of_two_is_the_smallest_not_below(x: float) -> None:
    power = next_power_of_two(x)
    assert np.frexp(power)[0] == 0.5
    assert power / 2 < x <= power


def test_powers_of_two_stay() -> None:
    assert [next_power_of_two(2.0**k) for k in (-40, 0, 7)] == [2.0**-40, 1.0, 128.0]


@given(st.floats(1e-12, 1e12), st.integers(2, 16), st.booleans(), st.booleans())
def test_the_largest_integer_covers_the_largest_value(
    top: float, bits: int, signed: bool, exact: bool
) -> None:
    fmt = covering(top, bits, signed, exact)
    reach = fmt.hi * float(fmt.scale)
    assert top * (1 - 1e-12) <= reach < 2 * top * (1 + 1e-12)
    if not exact:
        assert reach == pytest.approx(top)
    else:
        assert np.frexp(float(fmt.scale))[0] == 0.5


def test_nothing_has_a_scale_too() -> None:
    assert float(covering(0.0, 8, True, False).scale) == 1 / 127


def test_normal_values_are_steps_of_a_power_of_two_up_to_one() -> None:
    fmt = value_format(real(("n",), -1.0, 1.0), Store("normal", 21))
    assert (fmt.lo, fmt.hi, float(fmt.scale)) == (-(2**20), 2**20, 2.0**-20)
