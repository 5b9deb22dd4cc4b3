"""Weights in the cells of crossbars."""

from __future__ import annotations

import numpy as np
from crossbars import PLAIN, changed
from hypothesis import given
from hypothesis import strategies as st
from random_crossbars import CROSSBARS, drawn, weight_limits

from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.stored import StoredWeights


def test_offset_inputs_are_corrected_in_the_bias() -> None:
    weight = np.array([[1, -2], [3, 4]])
    offset = StoredWeights(weight, changed(PLAIN, input_encoding="offset"))
    assert offset.correction.tolist() == [4 << 7, 2 << 7]
    assert not StoredWeights(weight, PLAIN).correction.any()


@given(CROSSBARS, st.integers(1, 19), st.integers(0, 2**32 - 1))
def test_cells_conduct_their_digits_and_the_leak(hardware: Crossbar, rows: int, seed: int) -> None:
    weight = drawn(np.random.default_rng(seed), weight_limits(hardware), (rows, 3))
    stored = StoredWeights(weight, hardware)
    cells = stored.cells
    assert (cells.fraction_bits, cells.leak) == (hardware.fraction_bits, hardware.column_leak)
    for held, found, plain in zip(stored.slices, cells.slices, cells.digits, strict=True):
        digits = held.digits.astype(np.int64)
        np.testing.assert_array_equal(found.digits, (digits << cells.fraction_bits) + cells.leak)
        np.testing.assert_array_equal(plain, digits)
        np.testing.assert_array_equal(found.flipped, held.flipped)
        assert (found.shift, found.sign) == (held.shift, held.sign)


def test_released_cells_are_cut_anew() -> None:
    stored = StoredWeights(np.array([[1, -2], [3, 4]]), PLAIN)
    held = stored.cells
    stored.release()
    assert not {"slices", "cells"} & vars(stored).keys()
    for one, other in zip(held.slices, stored.cells.slices, strict=True):
        np.testing.assert_array_equal(one.digits, other.digits)
