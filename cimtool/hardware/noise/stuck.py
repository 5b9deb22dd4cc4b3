"""Cells stuck at full or at erased conductance, and the spare columns that take their place."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from cimtool.base.arrays import Array, BoolArray, FloatArray
from cimtool.hardware.noise.model import ArrayNoise, ArrayState, Probability, Redraw

Spares = Annotated[int, Field(ge=0, le=4096)]


class Stuck(ArrayNoise, name="stuck"):
    """A cell conducts g_max with probability `p_on` and g_min with `p_off`, whatever is written.

    Faults are known when an array is programmed: of its columns those with the largest error go to
    its `spare_columns`, where they do less harm.
    """

    drawn: ClassVar[Redraw] = "die"

    p_on: Probability = 0.0
    p_off: Probability = 0.0
    spare_columns: Spares = 0

    @model_validator(mode="after")
    def _disjoint(self) -> Self:
        if self.p_on + self.p_off > 1:
            raise ValueError(
                f"p_on + p_off = {self.p_on + self.p_off:g}; expected at most 1, a cell is stuck "
                "one way"
            )
        return self

    def effective(self, g: FloatArray, array: ArrayState) -> FloatArray:
        on, off = self.draw(array.rng, array.digits, array.column_weights, array.top)
        return np.where(on, array.full, np.where(off, array.erased, g))

    def draw(
        self, rng: np.random.Generator, digits: FloatArray, weights: FloatArray, top: int
    ) -> tuple[BoolArray, BoolArray]:
        """Cells stuck on and off [rows, columns] of one array after its faults are remapped.

        `digits` [rows, columns] are what its cells should hold, up to `top`, and `weights`
        [columns] what a digit of each counts in the result.
        """
        rows, columns = digits.shape
        chance = rng.random((rows, columns + self.spare_columns))
        on, off = chance < self.p_on, chance >= 1 - self.p_off
        if self.spare_columns == 0:
            return on, off
        place = self._remapped(on, off, digits, weights, top)
        return on[:, place], off[:, place]

    def _remapped(
        self, on: BoolArray, off: BoolArray, digits: FloatArray, weights: FloatArray, top: int
    ) -> Array:
        """Where each column of weights goes: its own column, or the spare that does least harm."""
        columns = digits.shape[1]
        place = np.arange(columns)
        harm = _harm(on[:, :columns], off[:, :columns], digits, top) * weights**2
        free = list(range(columns, columns + self.spare_columns))
        for column in np.argsort(-harm, kind="stable")[: self.spare_columns]:
            own = digits[:, [column]]
            on_spares = _harm(on[:, free], off[:, free], own, top) * weights[column] ** 2
            best = int(on_spares.argmin())
            if on_spares[best] < harm[column]:
                place[column] = free.pop(best)
        return place


def _harm(on: BoolArray, off: BoolArray, digits: FloatArray, top: int) -> FloatArray:
    """Squared error [columns] that faults make in digits."""
    total: FloatArray = (on * (top - digits) ** 2 + off * digits**2).sum(axis=0)
    return total
