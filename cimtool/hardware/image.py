"""Images of arrays: the cells of an array as the lines of a text file, and back.

The order of cells is data of a target, its table `[image]`. A line holds a word line: the digits of
its cells, in the order of `columns` and `pair`, as one number or as words of `word_bits`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from cimtool.base.arrays import Array, blocks
from cimtool.base.toml_files import TomlTable
from cimtool.hardware.keys import PairAxis

ColumnOrder = Literal["weight-major", "slice-major"]
PairOrder = Literal["positive-first", "negative-first"]
RowOrder = Literal["ascending", "descending"]
WordDigits = Literal["hex", "binary"]
BitOrder = Literal["lsb-first", "msb-first"]
WordBits = Annotated[int, Field(ge=1, le=1 << 20)]


class ImageSpec(TomlTable):
    """The order of cells in the image of an array, and the form of its words."""

    columns: ColumnOrder = Field(
        default="weight-major",
        title="Order of an array's columns: the slices of a weight side by side, or the weights of "
        "a slice.",
    )
    pair: PairOrder = Field(
        default="positive-first", title="The polarity of a pair whose cell comes first."
    )
    rows: RowOrder = Field(default="ascending", title="Order of word lines in an image.")
    word_bits: WordBits | None = Field(
        default=None,
        title="Bits of a word; a line has the words that its word line needs. If left out, a word "
        "line is one word.",
    )
    digits: WordDigits = Field(default="hex", title="Digits of a word: hexadecimal or binary.")
    bit_order: BitOrder = Field(
        default="lsb-first", title="The end of a word, lowest or highest bit, where cells begin."
    )

    @property
    def suffix(self) -> str:
        """The ending of an image's name."""
        return "hex" if self.digits == "hex" else "bin"

    def words_of(self, bits: int) -> tuple[int, int]:
        """The words of a line of `bits` bits, and the bits of each."""
        width = self.word_bits or bits
        return -(-bits // width), width

    def line_bytes(self, bits: int) -> int:
        """The bytes of a line of this many bits, with its end."""
        words, width = self.words_of(bits)
        return words * (self._letters(width) + 1)

    def text(self, cells: Array, cell_bits: int) -> Array:
        """Lines of text for cells [.., rows, columns] of `cell_bits`, as bytes [.., rows, n]."""
        order = np.arange(cell_bits)
        if self.bit_order == "msb-first":
            order = order[::-1]
        planes = (cells[..., None] >> order.astype(cells.dtype) & 1).astype(np.uint8)
        bits = planes.reshape(*cells.shape[:-1], -1)
        words, width = self.words_of(bits.shape[-1])
        letters = self._letters(width)
        bits = _padded(bits, words * width).reshape(*bits.shape[:-1], words, width)
        if self.bit_order == "lsb-first":
            bits = bits[..., ::-1]
        each = 4 if self.digits == "hex" else 1
        bits = np.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(letters * each - width, 0)])
        values = bits.reshape(*bits.shape[:-1], letters, each) @ _weights(each)
        lines = np.full((*values.shape[:-1], letters + 1), ord(" "), np.uint8)
        lines[..., :-1] = LETTERS[values]
        lines[..., -1, -1] = ord("\n")
        return lines.reshape(*lines.shape[:-2], -1)

    def cells(self, text: bytes, rows: int, columns: int, cell_bits: int) -> Array:
        """Cells [rows, columns] of an image's text; ValueError for one that is none of this form.

        `text` is as long as the lines of such an image.
        """
        bits = columns * cell_bits
        words, width = self.words_of(bits)
        letters, each = self._letters(width), 4 if self.digits == "hex" else 1
        lines = np.frombuffer(text, np.uint8).reshape(rows, words, letters + 1)
        held = np.empty((rows, columns), np.uint8)
        for block in blocks(rows, BLOCK // (words * (letters + 1))):
            values = VALUES[lines[block, :, :-1]]
            wrong = (values >= 1 << each).any(axis=(1, 2))
            wrong |= (lines[block, :-1, -1] != ord(" ")).any(axis=1)
            wrong |= lines[block, -1, -1] != ord("\n")
            if wrong.any():
                line = block.start + int(wrong.argmax()) + 1
                raise ValueError(f"line {line} holds no words of {width} bits")
            planes = values[..., None] >> np.arange(each, dtype=np.uint8)[::-1] & 1
            found = planes.reshape(len(values), words, -1)[..., letters * each - width :]
            if self.bit_order == "lsb-first":
                found = found[..., ::-1]
            stream = found.reshape(len(values), -1)[:, :bits].reshape(-1, columns, cell_bits)
            if self.bit_order == "msb-first":
                stream = stream[..., ::-1]
            held[block] = stream @ _weights(cell_bits)[::-1]
        return held

    def in_rows(self, cells: Array) -> Array:
        """Word lines [.., rows, columns] in the order of an image; twice, in their own again."""
        return cells[..., ::-1, :] if self.rows == "descending" else cells

    def _letters(self, width: int) -> int:
        return -(-width // 4) if self.digits == "hex" else width


BLOCK = 1 << 20
"""Letters of an image whose bits are taken apart at a time."""

LETTERS = np.frombuffer(b"0123456789abcdef", np.uint8)

VALUES = np.full(256, 255, np.uint8)
"""The value of each letter; 255 for one that is no digit."""
VALUES[LETTERS] = np.arange(16)


def _weights(bits: int) -> Array:
    """The factors of bits, the highest first."""
    return (1 << np.arange(bits)[::-1]).astype(np.uint8)


def _padded(values: Array, width: int) -> Array:
    """Values [.., n] with zeros behind them, [.., width]."""
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, width - values.shape[-1])])


@dataclass(frozen=True)
class ArrayLayout:
    """The places of a layer's cells in an array of `rows` x `columns` cells.

    `across` weights lie side by side in it, each in `slices` cells of every polarity; a pair takes
    two columns or two rows. Behind the columns of all weights come the unit column and the
    reference column, if there are such. Cells of no weight hold 0.
    """

    rows: int
    columns: int
    across: int
    slices: int
    polarities: int
    pairs: PairAxis
    auxiliary: int
    order: ImageSpec

    @property
    def own_columns(self) -> int:
        """Columns of the weights of a full array."""
        return self.across * self.slices * self.polarities // self.rows_per_weight

    def cells(self, digits: Array, beside: Array) -> Array:
        """The cells [arrays, rows, columns] of the arrays that lie side by side.

        Of `digits` [K, N, slices, polarities] of their weights and those of the auxiliary columns,
        `beside` [auxiliary].
        """
        if self.order.pair == "negative-first":
            digits = digits[..., ::-1]
        split = self.in_arrays(digits)
        laid = split.transpose(self._axes).reshape(len(split), -1, self.own_columns)
        cells = np.zeros((len(split), self.rows, self.columns), np.uint8)
        used = laid.shape[1]
        cells[:, :used, : self.own_columns] = laid
        cells[:, :used, self.own_columns : self.own_columns + self.auxiliary] = beside
        return cells

    def digits(self, cells: Array, rows: slice) -> Array:
        """The digits [n, arrays x across, slices, polarities] of some rows of weights."""
        each, count = self.rows_per_weight, rows.stop - rows.start
        own = cells[:, rows.start * each : rows.stop * each, : self.own_columns]
        extents = (len(cells), count, self.across, self.slices, self.polarities)
        split = own.reshape([extents[axis] for axis in self._axes])
        found = split.transpose(np.argsort(self._axes)).swapaxes(0, 1)
        found = found.reshape(count, -1, self.slices, self.polarities)
        return found[..., ::-1] if self.order.pair == "negative-first" else found

    def in_arrays(self, values: Array) -> Array:
        """Values [n, N, ..] of weights as arrays side by side have them, [arrays, n, across, ..].

        Values without a weight are zero.
        """
        parts = -(-values.shape[1] // self.across)
        full = np.zeros((len(values), parts * self.across, *values.shape[2:]), values.dtype)
        full[:, : values.shape[1]] = values
        return full.reshape(len(values), parts, self.across, *values.shape[2:]).swapaxes(0, 1)

    def lanes(self, values: Array) -> Array:
        """Values [arrays, n, across, slices, ..] in the order of columns, [arrays, n, lanes]."""
        if self.order.columns == "slice-major":
            values = values.swapaxes(2, 3)
        return values.reshape(*values.shape[:2], -1)

    def unlaned(self, lanes: Array) -> Array:
        """Undo `lanes`: values [.., across, slices]."""
        shape = (self.across, self.slices)
        if self.order.columns == "weight-major":
            return lanes.reshape(*lanes.shape[:-1], *shape)
        return lanes.reshape(*lanes.shape[:-1], *shape[::-1]).swapaxes(-1, -2)

    @property
    def rows_per_weight(self) -> int:
        """Rows of cells that a weight takes."""
        return self.polarities if self.pairs == "rows" else 1

    @property
    def _axes(self) -> tuple[int, ...]:
        """The order of (array, row, weight, slice, polarity) in the cells of arrays."""
        columns = (2, 3) if self.order.columns == "weight-major" else (3, 2)
        return (0, 1, 4, *columns) if self.pairs == "rows" else (0, 1, *columns, 4)
