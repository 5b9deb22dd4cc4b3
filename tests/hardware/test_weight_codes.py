"""Weight codes: whatever the code, the digits that cells hold rebuild the weights."""

from __future__ import annotations

import numpy as np
import pytest
from crossbars import PLAIN, changed
from hypothesis import given
from hypothesis import strategies as st
from random_crossbars import CROSSBARS, drawn, weight_limits

from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.stored import StoredWeights


@given(CROSSBARS, st.integers(1, 19), st.integers(0, 2**32 - 1))
def test_slices_rebuild_the_weights(hardware: Crossbar, rows: int, seed: int) -> None:
    weight = drawn(np.random.default_rng(seed), weight_limits(hardware), (rows, 3))
    slices = StoredWeights(weight, hardware).slices
    assert len(slices) == hardware.slices
    total = np.zeros_like(weight)
    for cells in slices:
        plain = cells.digits.astype(np.int64)
        lo, hi = hardware.weights.digit_limits
        assert lo <= plain.min()
        assert plain.max() <= hi
        for r, group in enumerate(hardware.tiling.groups(rows)):
            flipped = cells.flipped[r]
            plain[group] = np.where(
                flipped, hardware.weights.complement - plain[group], plain[group]
            )
        total += cells.sign * (plain << cells.shift)
    if hardware.weights.is_offset:
        total -= hardware.weights.offset
    np.testing.assert_array_equal(total, weight)


@given(st.integers(1, 8), st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_after_flipping_no_column_stores_more_than_half(
    cell_bits: int, rows: int, height: int, seed: int
) -> None:
    hardware = changed(PLAIN, encoding="offset-flip", cell_bits=cell_bits, rows=height)
    weight = drawn(np.random.default_rng(seed), (-128, 127), (rows, 5))
    for cells in StoredWeights(weight, hardware).slices:
        assert cells.digits.min() >= 0
        for group in hardware.tiling.groups(rows):
            size = group.stop - group.start
            stored = cells.digits[group].sum(axis=0, dtype=np.int64)
            assert 2 * stored.max() <= hardware.weights.cell_maximum * size


def test_centred_cells_hold_what_flipped_ones_do_less_the_reference_columns_digit() -> None:
    weight = drawn(np.random.default_rng(0), (-128, 127), (20, 5))
    flipped, centred = (
        StoredWeights(weight, changed(PLAIN, encoding=name, cell_bits=4, rows=8)).slices
        for name in ("offset-flip", "centred")
    )
    for one, other in zip(flipped, centred, strict=True):
        np.testing.assert_array_equal(one.digits.astype(int) - 7, other.digits)
        np.testing.assert_array_equal(one.flipped, other.flipped)


def test_a_reference_column_leaves_no_leak() -> None:
    hardware = changed(PLAIN, encoding="centred", leak=777)
    assert (hardware.column_leak, hardware.fraction_bits, hardware.signed_sums) == (0, 0, True)


@pytest.mark.parametrize(
    ("encoding", "weight_bits", "cell_bits", "slices"),
    [
        ("differential", 8, 7, 1),
        ("differential", 8, 2, 4),
        ("offset", 8, 2, 4),
        ("offset", 9, 2, 5),
    ],
)
def test_slices_leave_out_the_sign_where_it_is_analog(
    encoding: str, weight_bits: int, cell_bits: int, slices: int
) -> None:
    hardware = changed(PLAIN, encoding=encoding, weight_bits=weight_bits, cell_bits=cell_bits)
    assert hardware.slices == slices


def test_columns_of_complements_count_with_the_other_sign() -> None:
    hardware = changed(PLAIN, encoding="offset-flip", rows=2, cell_bits=8)
    weight = np.array([[100, -100], [100, -100], [-100, 100]])
    (cells,) = StoredWeights(weight, hardware).slices
    assert cells.flipped.tolist() == [[True, False], [False, True]]
    assert cells.signs.tolist() == [[-1, 1], [1, -1]]
