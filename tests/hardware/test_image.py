"""The text of an image: its form by hand, and every order read back."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.hardware.image import ArrayLayout, ImageSpec

ORDERS = st.builds(
    ImageSpec,
    columns=st.sampled_from(["weight-major", "slice-major"]),
    pair=st.sampled_from(["positive-first", "negative-first"]),
    rows=st.sampled_from(["ascending", "descending"]),
    word_bits=st.none() | st.integers(1, 40),
    digits=st.sampled_from(["hex", "binary"]),
    bit_order=st.sampled_from(["lsb-first", "msb-first"]),
)


@pytest.mark.parametrize(
    ("order", "line"),
    [
        (ImageSpec(), b"e4\n"),
        (ImageSpec(bit_order="msb-first"), b"1b\n"),
        (ImageSpec(digits="binary"), b"11100100\n"),
        (ImageSpec(word_bits=4), b"4 e\n"),
        (ImageSpec(word_bits=4, bit_order="msb-first"), b"1 b\n"),
        (ImageSpec(word_bits=6), b"24 03\n"),
        (ImageSpec(word_bits=6, bit_order="msb-first", digits="binary"), b"000110 110000\n"),
    ],
)
def test_a_line_by_hand(order: ImageSpec, line: bytes) -> None:
    """Four cells of two bits that hold 0, 1, 2 and 3."""
    cells = np.arange(4, dtype=np.uint8)[None]
    assert order.text(cells, 2).tobytes() == line
    assert len(line) == order.line_bytes(8)


@given(ORDERS, st.integers(1, 8), st.integers(1, 9), st.integers(1, 21), st.integers(0, 2**32))
def test_a_text_is_read_back(
    order: ImageSpec, cell_bits: int, rows: int, columns: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 1 << cell_bits, (rows, columns), np.uint8)
    text = order.text(cells, cell_bits).tobytes()
    assert len(text) == rows * order.line_bytes(columns * cell_bits)
    np.testing.assert_array_equal(order.cells(text, rows, columns, cell_bits), cells)


@pytest.mark.parametrize(
    ("order", "text"),
    [
        (ImageSpec(), b"e4\nE4\n"),
        (ImageSpec(), b"e4\ne4 "),
        (ImageSpec(), b"e4\n\ne4"),
        (ImageSpec(digits="binary"), b"11100100\n11200100\n"),
        (ImageSpec(word_bits=4), b"4 e\n4\ne\n"),
    ],
)
def test_a_text_of_another_form_names_its_line(order: ImageSpec, text: bytes) -> None:
    with pytest.raises(ValueError, match="line 2 holds no words of"):
        order.cells(text, 2, 4, 2)


def test_columns_and_pairs_by_hand() -> None:
    """Two weights of two slices in pairs: digits 10 * weight + 2 * slice + polarity."""
    weight, cut, polarity = np.ogrid[:2, :2, :2]
    digits = (10 * weight + 2 * cut + polarity)[None].astype(np.uint8)
    rows = {
        ("weight-major", "positive-first"): [0, 1, 2, 3, 10, 11, 12, 13],
        ("weight-major", "negative-first"): [1, 0, 3, 2, 11, 10, 13, 12],
        ("slice-major", "positive-first"): [0, 1, 10, 11, 2, 3, 12, 13],
        ("slice-major", "negative-first"): [1, 0, 11, 10, 3, 2, 13, 12],
    }
    nothing = np.zeros(0, np.uint8)
    for (columns, pair), line in rows.items():
        order = ImageSpec.model_validate({"columns": columns, "pair": pair})
        side = ArrayLayout(1, 9, 2, 2, 2, "columns", 0, order)
        assert side.cells(digits, nothing).tolist() == [[[*line, 0]]]
        above = ArrayLayout(2, 4, 2, 2, 2, "rows", 0, order)
        assert above.cells(digits, nothing).tolist() == [[line[0::2], line[1::2]]]


def test_auxiliary_columns_have_their_place_whatever_the_weights() -> None:
    layout = ArrayLayout(3, 8, 5, 1, 1, "columns", 2, ImageSpec())
    cells = layout.cells(np.full((2, 3, 1, 1), 7, np.uint8), np.array([1, 2], np.uint8))
    assert cells.tolist() == [[[7, 7, 7, 0, 0, 1, 2, 0]] * 2 + [[0] * 8]]


@given(ORDERS, st.integers(0, 2**32))
def test_digits_are_read_back_from_their_cells(order: ImageSpec, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for pairs, polarities, auxiliary in product(("columns", "rows"), (1, 2), (0, 1)):
        digits = rng.integers(0, 4, (5, 7, 2, polarities), np.uint8)
        layout = ArrayLayout(12, 20, 3, 2, polarities, pairs, auxiliary, order)
        cells = layout.cells(digits, np.ones(auxiliary, np.uint8))
        assert cells.shape == (3, 12, 20)
        np.testing.assert_array_equal(layout.digits(cells, slice(0, 5))[:, :7], digits)
        assert not layout.digits(cells, slice(0, 5))[:, 7:].any()
        lanes = layout.lanes(layout.in_arrays(digits[..., 0]))
        back = layout.unlaned(lanes).swapaxes(0, 1).reshape(5, -1, 2)
        np.testing.assert_array_equal(back[:, :7], digits[..., 0])
