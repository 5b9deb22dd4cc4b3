"""Directed inputs of a requantiser: what tells one that is a little wrong from the right one."""

from __future__ import annotations

import numpy as np
import pytest

from cimtool.base.arrays import BoolArray, IntArray
from cimtool.handoff.requantiser import DIRECTED, Requantisation, mistakes, requantiser_inputs


def channels(multiplier: IntArray, shift: IntArray, lo: int, hi: int) -> Requantisation:
    width = len(multiplier)
    none = np.zeros((0, width, 4), np.int64)
    limits = np.full(width, lo, np.int64), np.full(width, hi, np.int64)
    return Requantisation("y", none, multiplier, shift, *limits)


def told(after: Requantisation, x: IntArray, mistake: str) -> BoolArray:
    """The channels [N] of which any of `x` [.., N] tells a mistake."""
    shown: BoolArray = mistakes(after, x)[mistake].any(axis=0)
    return shown


@pytest.mark.thorough("more vectors", quick=("1024", "16384"))
@pytest.mark.parametrize(("lo", "hi"), [(0, 255), (-128, 127)])
@pytest.mark.parametrize("reach", [1 << 10, 1 << 14, 1 << 17])
def test_lost_bits_show_where_any_number_shows_them(lo: int, hi: int, reach: int) -> None:
    """A multiplier that loses 6 bits is told in 95% of the channels where it can be told at all."""
    rng = np.random.default_rng(reach)
    multiplier = rng.integers(1 << 30, 1 << 31, 200)
    # The largest number comes to about a quarter to four times the highest result.
    shift = np.floor(np.log2(multiplier * float(reach) / hi)).astype(np.int64)
    shift += rng.integers(-2, 3, 200)
    least, most = np.full(200, -reach), np.full(200, reach)
    after = channels(multiplier, shift, lo, hi)
    x = requantiser_inputs(after, least, most)
    assert x.shape == (DIRECTED, 200)
    assert (least <= x).all()
    assert (x <= most).all()
    possible = np.zeros(200, bool)
    for first in range(-reach, reach + 1, 1 << 14):
        every = np.arange(first, min(first + (1 << 14), reach + 1))[:, None]
        possible |= told(after, every, "LOW_BITS")
    shown = told(after, x, "LOW_BITS")
    assert not (shown & ~possible).any()
    if possible.any():
        assert shown.sum() >= 0.95 * possible.sum()


def test_ties_are_reached_where_there_are_any() -> None:
    multiplier = np.array([3 << 20, 5 << 12, (1 << 30) + 1])
    after = channels(multiplier, np.array([24, 20, 40]), -128, 127)
    least, most = np.full(3, -1000), np.full(3, 1000)
    shown = told(after, requantiser_inputs(after, least, most), "TIES")
    np.testing.assert_array_equal(shown, told(after, np.arange(-1000, 1001)[:, None], "TIES"))
    assert shown.tolist() == [True, True, False]
