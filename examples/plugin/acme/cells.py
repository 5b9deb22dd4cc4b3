"""A weight code: digits -1, 0 and 1, one differential pair of one-bit cells each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.hardware.weight_codes import Slice, WeightCode, plain


@dataclass(frozen=True)
class NonAdjacent(WeightCode, name="non-adjacent"):
    """The non-adjacent form of a weight: of two neighbouring digits one is 0, so fewer conduct."""

    paired: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.cell_bits != 1:
            raise ValueError(f"cell_bits = {self.cell_bits}: a ternary digit takes cell_bits = 1")

    def encode(self, weight: IntArray, groups: Sequence[slice]) -> tuple[Slice, ...]:
        rest, slices = weight, []
        for shift in range(self.slices):
            digits = np.where(rest & 1, 2 - (rest & 3), 0)
            slices.append(plain(digits, groups, shift))
            rest = rest - digits >> 1
        return tuple(slices)
