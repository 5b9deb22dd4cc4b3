"""Student's interval of a mean."""

from __future__ import annotations

import math

import pytest

from cimtool.reference.students import students


def test_the_interval_of_three_figures() -> None:
    found = students([1.0, 2.0, 3.0])
    # 4.3027 is the 97.5% quantile of Student's t with 2 degrees of freedom.
    half = 4.302652729749464 / math.sqrt(3)
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2 - half, 2 + half))


def test_one_figure_has_no_interval() -> None:
    found = students([0.5])
    assert found.value == 0.5
    assert math.isnan(found.low)
    assert not found.is_real
