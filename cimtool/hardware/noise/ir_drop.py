"""IR drop: what the wires of an array take from its cells, to first order in their resistance.

Rows are driven from the side of the first column, columns are read (at ground) below the last row,
and each cell adds one wire resistance r to its row and one to its column. To first order in r a
cell at row i, column j of an array with conductances g sees the drive less

    r sum_j' g_ij' (min(j, j') + 1)                     along its row, and
    r drive sum_i' g_i'j (rows - max(i, i'))            along its column,

as shares of the full drive. `drive` is the share of rows that conduct while it does: 1 where
rows that are not driven are held at ground, so that they take current back; less where their
cells are cut off.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import CimError
from cimtool.hardware.noise.model import ArrayNoise, ArrayState, Positive, Probability, Redraw

LARGEST_DROP = 0.1
"""The model was checked against a nodal solve up to this share of the drive, and not beyond."""


class IrDrop(ArrayNoise, name="ir_drop"):
    """Each cell conducts less by what the wires drop before and behind it.

    `wire_resistance` is in ohm a cell, of rows and columns alike, `drive` the mean share of rows
    that conduct at a time.
    """

    drawn: ClassVar[Redraw] = "die"

    wire_resistance: Positive
    drive: Probability = Field(1.0)

    def effective(self, g: FloatArray, array: ArrayState) -> FloatArray:
        """Conductances [rows, columns] of one array in uS, wires included.

        Raises CimError naming the layer where a drop leaves the range in which this was checked.
        """
        drop = self.drop(g)
        largest = float(drop.max(initial=0.0))
        if largest > LARGEST_DROP:
            raise CimError(
                f"noise.ir_drop.wire_resistance = {self.wire_resistance:g}: wires of {array.layer} "
                f"would drop up to {largest:.1%} of the drive; the first-order model was checked "
                f"up to {LARGEST_DROP:.0%}, so expected a lower resistance or smaller arrays"
            )
        left: FloatArray = g * (1 - drop)
        return left

    def drop(self, g: FloatArray) -> FloatArray:
        """What each cell [rows, columns] of conductance g (uS) loses of the drive, as a share."""
        along_row = _shared(g.T).T
        along_column = _shared(g[::-1])[::-1]
        total: FloatArray = self.wire_resistance * 1e-6 * (along_row + self.drive * along_column)
        return total


def _shared(g: FloatArray) -> FloatArray:
    """sum_k' g_k' (min(k, k') + 1) along axis 0: currents through the wire that k and k' share."""
    beyond = np.cumsum(g[::-1], axis=0)[::-1]  # what flows through the segment before cell k
    summed: FloatArray = np.cumsum(beyond, axis=0)
    return summed
