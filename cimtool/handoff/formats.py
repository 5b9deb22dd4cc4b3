"""The files of numbers in a hand-off: each is declared once, for its writer, its size and its page.

A line is a hexadecimal number that `$readmemh` reads. It has one lane, or a lane for each of an
axis, lane 0 in the lowest bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.base.files import place_in
from cimtool.hardware.image import LETTERS

NUMBER_BITS = 64
"""Bits of a number that has its own line in a hand-off."""

PLACES = {
    "layer": "LAYER",
    "array": "LAYER/rR.cC",
    "band": "LAYER/rR",
    "group": "gG",
    "requantisation": "LAYER/qN",
    "die": "dD",
    "suffix": "*",
    "search": "SEARCH",
    "words": "rR.cC",
    "segment": "cC",
}
"""Names in braces of a path, and what they stand for: LAYER a layer, R and C the row and column of
one of its arrays, G a row group within an array, N a requantisation, D a die. SEARCH is a search in
a content-addressable memory; R and C are the place of one of its arrays."""

AXES = {
    "vector": "inputs of a layer, in the order of `taps/taps.json`",
    "cycle": "input cycles, in the order of the lines `cycle`",
    "row": "rows of weights of an array",
    "lane": "converted columns of an array: its weights' slices and polarities, then the unit "
    "column if there is one",
    "weight": "weights side by side in an array; of the last array of a layer, some are unused",
    "slice": "slices of a weight",
    "pair": "cells of a slice: 2 if a digit is a pair of cells",
    "polarity": "lanes of a slice: 2 if each cell of a pair is converted by itself",
    "column": "columns of the layer's weights: its outputs",
    "converter": "converted slices, in the order of the lines `slice`, then the unit column if "
    "there is one",
    "reference": "cycles with their own references, or 1 for all cycles",
    "table": "tables of thresholds and levels: one, or with `kind` 3 one for each converter and "
    "reference, the reference fastest",
    "threshold": "codes above the lowest",
    "level": "codes from the lowest on",
    "stage": "additions and limits before a requantisation",
    "term": "factor, addend, lowest and highest value of a stage",
    "input": "directed inputs of a requantiser",
    "digit": "digits that a cell may hold, from 0",
    "bound": "the target, the lowest and the highest conductance of a cell",
}
"""The axes of files, by name."""

CAM_AXES = {
    "query": "queries of a search",
    "word": "words of an array of a content-addressable memory: an item each",
    "cell": "cells of a word",
    "item": "items of the gallery",
    "place": "places of the shortlist, the nearest item first",
}
"""The axes of the files of `cam/`, by name."""


WHERE = {
    "stages": "sums are added to, or limited, before they are requantised",
    "converters": "there are converters",
    "tables": "converters have tables of thresholds and levels",
    "references": "references of converters are set",
    "writes": "cells are programmed by write-verify",
}
"""The layers that have a file, if not all do, by the name of their fact."""


@dataclass(frozen=True)
class NumberFile:
    """A file with a number for each place of its axes, in two's complement; the last runs fastest.

    `axes` are those of lines. A line holds one number of NUMBER_BITS, or, with `lanes`, one for
    each of that axis. `bits` names the width of a lane. `path` is that in its part of a hand-off,
    with keys of PLACES in braces; `where` is the key of WHERE of the layers that
    have it, if not all do.
    """

    path: str
    what: str
    axes: tuple[str, ...]
    lanes: str = ""
    bits: str = "number"
    where: str = ""

    @property
    def told(self) -> str:
        """Its path with what stands for names: `LAYER/rR.cC/gG.sums.hex`."""
        return self.path.format(**PLACES)

    @property
    def of_search(self) -> bool:
        """True if it belongs to a search in a CAM, not to a layer."""
        return "{search}" in self.path

    @property
    def every(self) -> tuple[str, ...]:
        """All of its axes, the lanes last."""
        return (*self.axes, self.lanes) if self.lanes else self.axes

    def write(self, folder: Path, values: IntArray, bits: int = NUMBER_BITS, **names: str) -> None:
        """Write values [of its axes] to its place below a part's folder."""
        if values.ndim != len(self.every):
            raise ValueError(f"{self.path} has axes {self.every}; got {values.shape}")
        file = place_in(folder, self.path.format(**names))
        file.parent.mkdir(parents=True, exist_ok=True)
        lanes = values.shape[-1] if self.lanes else 1
        file.write_bytes(hex_lines(values.reshape(-1, lanes), bits))

    def size(self, extents: Mapping[str, int], bits: int = NUMBER_BITS) -> int:
        """The bytes of such a file with these extents of axes."""
        lines = math.prod(extents[axis] for axis in self.axes)
        lanes = extents[self.lanes] if self.lanes else 1
        return lines * (lanes * -(-bits // 4) + 1)


@dataclass(frozen=True)
class LineFile:
    """A file of lines of decimal numbers, with blanks between: a number for each of `fields`.

    `path`, `what` and `where` are as those of NumberFile; each layer has one such file.
    """

    path: str
    what: str
    fields: Mapping[str, str]
    where: str = ""

    @property
    def told(self) -> str:
        """A sentence on its lines, with the names of their fields."""
        return f"{self.what}, a line each: {', '.join(self.fields)}"


def lane_bits(lo: int, hi: int) -> int:
    """Bits of a lane for `lo` to `hi` in two's complement: a multiple of 4."""
    return -(-(max(lo, hi, -lo - 1).bit_length() + 1) // 4) * 4


def hex_lines(values: IntArray, bits: int) -> bytes:
    """A line of hexadecimal digits for `$readmemh` for each row of values [.., lanes].

    A lane has `bits` bits of two's complement, in ceil(bits / 4) digits; lane 0 is the rightmost.
    """
    *lines, lanes = values.shape
    digits, lowest_last = -(-bits // 4), values[..., ::-1]
    if bits % 4:
        lowest_last = lowest_last.astype(np.int64) & (1 << bits) - 1
    text = np.empty((*lines, lanes * digits + 1), np.uint8)
    text[..., -1] = ord("\n")
    places = text[..., :-1].reshape(*lines, lanes, digits)
    for place in range(digits):
        places[..., digits - 1 - place] = LETTERS[lowest_last >> 4 * place & 15]
    return text.tobytes()
