"""Weight codes: whatever the code, the digits that cells hold rebuild the weights."""

from __future__ import annotations

import numpy as np
import pytest
from crossbars import PLAIN, changed
from hypothesis import given
from hypothesis import strategies as st
from random_crossbars import CROSSBARS, drawn, weight_limits
from random_layers import WIDTHS, random_weights

from cimtool.base.errors import CimError
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.stored import StoredWeights, cell_digits
from cimtool.hardware.weight_codes import Microscaled, WeightCode


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
        total += cells.worth * plain
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
        ("ternary", 8, 1, 6),
        ("ternary", 6, 1, 4),
        ("ternary", 3, 1, 2),
        ("ternary", 2, 1, 1),
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
    assert cells.counts.tolist() == [[-1, 1], [1, -1]]


@given(st.integers(2, 16), st.integers(0, 2**32 - 1))
def test_ternary_digits_count_powers_of_three(bits: int, seed: int) -> None:
    hardware = changed(PLAIN, encoding="ternary", weight_bits=bits, cell_bits=1)
    weight = drawn(np.random.default_rng(seed), weight_limits(hardware), (9, 3))
    slices = StoredWeights(weight, hardware).slices
    total = np.sum([3**k * one.digits.astype(int) for k, one in enumerate(slices)], axis=0)
    np.testing.assert_array_equal(total, weight)
    assert {int(d) for one in slices for d in one.digits.flat} <= {-1, 0, 1}
    assert 3 ** len(slices) >= 2**bits - 1 > 3 ** (len(slices) - 1)
    assert hardware.weights.cells_per_weight == 2 * len(slices)


def test_a_ternary_digit_takes_cells_of_one_bit() -> None:
    with pytest.raises(ValueError, match='cell_bits = 2: encoding = "ternary"'):
        WeightCode.named("ternary", "encoding")(8, 2)


@pytest.mark.parametrize("name", WIDTHS)
@given(st.integers(1, 100), st.integers(1, 4), st.integers(0, 2**32 - 1), st.data())
def test_elements_and_shared_exponents_rebuild_the_weights(
    name: str, rows: int, cell_bits: int, seed: int, data: st.DataObject
) -> None:
    bits = data.draw(st.sampled_from(WIDTHS[name]))
    hardware = changed(PLAIN, encoding=name, weight_bits=bits, cell_bits=cell_bits)
    code = hardware.weights
    assert isinstance(code, Microscaled)
    weight = random_weights(np.random.default_rng(seed), code, (rows, 3))
    assert np.abs(weight).max() <= code.largest
    slices = StoredWeights(weight, hardware).slices  # it checks sums and limits of digits
    assert len(slices) == hardware.slices
    exponents = code.exponents(weight)
    for start in range(0, rows, 32):
        assert (exponents[start : start + 32] == exponents[start]).all()
    assert 0 <= exponents.min() <= exponents.max() <= 3
    for one in slices:
        assert not (one.digits & (1 << exponents) - 1).any()


def test_the_values_of_mxfp4_are_those_of_the_specification() -> None:
    """OCP MX 1.0: E2M1 holds 0, 0.5, 1, 1.5, 2, 3, 4 and 6; in halves."""
    held = []
    for value in range(100):
        stored = StoredWeights(np.array([[value]]), changed(PLAIN, encoding="mxfp", weight_bits=4))
        try:
            _ = stored.slices
        except ValueError:
            continue
        held.append(value)
    alone = [0, 1, 2, 3, 4, 6, 8, 12]
    assert held == sorted({value << e for value in alone for e in range(4)})


def test_a_weight_off_its_blocks_grid_is_named() -> None:
    weight = np.full((33, 2), 56)
    weight[[31, 32], 1] = 1  # row 32 is the next block's
    stored = StoredWeights(weight, changed(PLAIN, encoding="mxint", weight_bits=4))
    with pytest.raises(ValueError, match="digits that make 0 of the weight 1"):
        _ = stored.slices
    weight[31, 1] = 8
    assert len(StoredWeights(weight, stored.crossbar).slices) == 2


@pytest.mark.parametrize(
    ("encoding", "bits", "largest", "slices", "cells"),
    [
        ("sign-magnitude", 4, 7, 3, 4),
        ("mxint", 4, 7 << 3, 4, 4),
        ("mxint", 8, 127 << 3, 8, 8),
        ("mxfp", 4, 12 << 3, 2, 4),
        ("mxfp", 6, 60 << 3, 4, 6),
    ],
)
def test_digital_codes_in_cells_of_a_bit(
    encoding: str, bits: int, largest: int, slices: int, cells: int
) -> None:
    code = WeightCode.named(encoding, "encoding")(bits, 1)
    assert (code.largest, code.slices, code.cells_per_weight) == (largest, slices, cells)
    assert not code.analog
    stored = StoredWeights(np.zeros((2, 2), int), changed(PLAIN, encoding=encoding))
    with pytest.raises(CimError, match=f'encoding = "{encoding}": an array makes its digits'):
        cell_digits(stored, slice(None))
