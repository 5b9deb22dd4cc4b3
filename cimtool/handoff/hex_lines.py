"""Numbers as lines of hexadecimal digits, as `$readmemh` reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.hardware.image import LETTERS

NUMBER_BITS = 64
"""Bits of a number that has a line to itself in a hand-off."""


def hex_lines(values: IntArray, bits: int) -> bytes:
    """One line of two's complement hex for each number, in C order."""
    digits = -(-bits // 4)
    flat = values.reshape(-1).astype(np.int64).view(np.uint64)
    if bits < 64:
        flat = flat & np.uint64((1 << bits) - 1)
    lines = np.full((flat.size, digits + 1), ord("\n"), np.uint8)
    for place in range(digits):
        lines[:, digits - 1 - place] = LETTERS[(flat >> np.uint64(4 * place)) & np.uint64(15)]
    return lines.tobytes()


def bus_digits(values: IntArray, bits: int) -> Array:
    """Bus-wide lines of values [.., lanes]: letters [.., n], each line with its end.

    A lane has `bits`, a multiple of 4, of two's complement; lane 0 is the rightmost.
    """
    lanes = values.shape[-1]
    digits = bits // 4
    lines = np.empty((*values.shape[:-1], lanes * digits + 1), np.uint8)
    lines[..., -1] = ord("\n")
    places = lines[..., :-1].reshape(*values.shape[:-1], lanes, digits)
    lowest_last = values[..., ::-1]
    for place in range(digits):
        places[..., digits - 1 - place] = LETTERS[lowest_last >> 4 * place & 15]
    return lines


def write_numbers(file: Path, values: IntArray) -> None:
    """Write a line for each number, in NUMBER_BITS of two's complement."""
    file.write_bytes(hex_lines(values, NUMBER_BITS))


def write_bus(file: Path, values: IntArray, bits: int) -> None:
    """Write a bus-wide line for each row of values [lines, lanes]."""
    file.write_bytes(bus_digits(values, bits).tobytes())
