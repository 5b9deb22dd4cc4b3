"""Mechanisms of whole arrays: stuck cells with their spare columns, and the drop along wires.

IR drop is to first order in the wires' resistance. Rows are driven from the side of the first
column, columns are read (at ground) below the last row, and each cell adds one wire resistance r to
its row and one to its column. A cell at row i, column j of an array with conductances g sees the
drive less

    r sum_j' g_ij' (min(j, j') + 1)                     along its row, and
    r drive sum_i' g_i'j (rows - max(i, i'))            along its column,

as shares of the full drive. `drive` is the share of rows that conduct while it does: 1 where
rows that are not driven are held at ground, so that they take current back; less where their
cells are cut off.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from cimtool.base.arrays import Array, BoolArray, FloatArray
from cimtool.base.errors import CimError
from cimtool.hardware.noise.model import ArrayNoise, ArrayState, PositiveNumber, Probability

Spares = Annotated[int, Field(ge=0, le=4096)]

LARGEST_DROP = 0.1
"""The model was checked against a nodal solve up to this share of the drive, and not beyond."""


class Stuck(ArrayNoise, name="stuck"):
    """A cell conducts g_max with probability `p_on` and g_min with `p_off`, not what is written.

    Faults are known when an array is programmed: of its columns those with the largest error go to
    its redundant columns, and to `spare_columns` more that no array's width counts, where they do
    less harm.
    """

    order: ClassVar[float] = 50
    stream: ClassVar[int | None] = 3

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

    def effective(self, g: FloatArray, state: ArrayState) -> FloatArray:
        held = state.digits, state.column_weights, state.top
        on, off = self.draw(state.rng, *held, state.redundant)
        return np.where(on, state.full, np.where(off, state.erased, g))

    def draw(
        self,
        rng: np.random.Generator,
        digits: FloatArray,
        weights: FloatArray,
        top: int,
        redundant: int = 0,
    ) -> tuple[BoolArray, BoolArray]:
        """Cells stuck on and off [rows, columns] of one array after its faults are remapped.

        `digits` [rows, columns] are what its cells should hold, up to `top`, and `weights`
        [columns] what a digit of each counts in the result; it has `redundant` more columns.
        """
        rows, columns = digits.shape
        chance = rng.random((rows, columns + self.spare_columns))
        if redundant:  # drawn last: faults of the other cells do not depend on how many there are
            chance = np.concatenate([chance, rng.random((rows, redundant))], axis=1)
        on, off = chance < self.p_on, chance >= 1 - self.p_off
        if chance.shape[1] == columns:
            return on, off
        place = self._remapped(on, off, digits, weights, top)
        return on[:, place], off[:, place]

    def _remapped(
        self, on: BoolArray, off: BoolArray, digits: FloatArray, weights: FloatArray, top: int
    ) -> Array:
        """The place of each column of weights: its own, or the spare that does least harm."""
        columns = digits.shape[1]
        place = np.arange(columns)
        harm = _harm(on[:, :columns], off[:, :columns], digits, top) * weights**2
        free = list(range(columns, on.shape[1]))
        for column in np.argsort(-harm, kind="stable")[: len(free)]:
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


class IrDrop(ArrayNoise, name="ir_drop"):
    """Each cell conducts less by what the wires drop before and behind it.

    `wire_resistance` is in ohm a cell, of rows and columns alike, `drive` the mean share of rows
    that conduct at a time.
    """

    order: ClassVar[float] = 70

    wire_resistance: PositiveNumber = Field(json_schema_extra={"unit": "ohm a cell"})
    drive: Probability = Field(1.0)

    def effective(self, g: FloatArray, state: ArrayState) -> FloatArray:
        """Conductances [rows, columns] of one array in uS, wires included.

        Raises CimError naming the layer if a drop leaves the range in which this was checked.
        """
        drop = self.drop(g)
        largest = float(drop.max(initial=0.0))
        if largest > LARGEST_DROP:
            raise CimError(
                f"noise.ir_drop.wire_resistance = {self.wire_resistance:g}: wires of {state.layer} "
                f"would drop up to {largest:.1%} of the drive; the first-order model was checked "
                f"up to {LARGEST_DROP:.0%}, so expected a lower resistance or smaller arrays"
            )
        left: FloatArray = g * (1 - drop)
        return left

    def drop(self, g: FloatArray) -> FloatArray:
        """The share of the drive that each cell [rows, columns] of conductance g (uS) loses."""
        along_row = _shared(g.T).T
        along_column = _shared(g[::-1])[::-1]
        total: FloatArray = self.wire_resistance * 1e-6 * (along_row + self.drive * along_column)
        return total


def _shared(g: FloatArray) -> FloatArray:
    """sum_k' g_k' (min(k, k') + 1) along axis 0: currents through the wire that k and k' share."""
    beyond = np.cumsum(g[::-1], axis=0)[::-1]  # what flows through the segment before cell k
    summed: FloatArray = np.cumsum(beyond, axis=0)
    return summed
