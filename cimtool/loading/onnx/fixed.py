"""Values that are the same for all items, as class tokens and learned queries are.

A file spreads a constant over the items (`Expand`), and what follows may move, project and split
it with the items among its axes. It is a value of the program like any other, whose numbers are
known: where it meets a value that depends on the input they are constants again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.ir.arithmetic import Add, BatchMatMul, Mvm, scalar
from cimtool.ir.calibration import Range
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.op import Op
from cimtool.ir.types import numbers_of_item
from cimtool.loading.layout import arranged
from cimtool.loading.onnx.views import ITEMS, FileAxis, Rows, axis_of, contiguous

MOST_NUMBERS = 1 << 24
"""Numbers of values that are the same for all items, all together."""

MOST_PRODUCTS = 1 << 32
"""Multiply-adds by which they are computed, all together; the program computes what is beyond."""


class FixedBuilder(TowerBuilder):
    """Builds a tower, knowing the numbers [rows of an item, ...] of `fixed` values on the way.

    `item_numbers` and `item_products` count what an item has in all values, and its multiply-adds.
    """

    def __init__(self, width: int):
        super().__init__(width)
        self.fixed: dict[str, FloatArray] = {}
        self.item_numbers = self.item_products = 0
        self._numbers, self._products = MOST_NUMBERS, MOST_PRODUCTS

    def add(self, name: str, op: Op, *inputs: str, seen: Range | None = None) -> str:
        """The same, and the numbers of what is made of fixed values alone."""
        made = super().add(name, op, *inputs, seen=seen)
        numbers = numbers_of_item(self.types[made].shape)
        inner = self.extent(inputs[0]) if isinstance(op, Mvm | BatchMatMul) else 0
        self.item_numbers += numbers
        self.item_products += numbers * inner
        if all(i in self.fixed for i in inputs) and self._affordable(numbers, numbers * inner):
            with np.errstate(all="ignore"):
                self.fixed[made] = np.asarray(op.run(*(self.fixed[i] for i in inputs)), np.float64)
        return made

    def _affordable(self, numbers: int, products: int) -> bool:
        """True where the numbers of a value are few enough; they count then."""
        if numbers > self._numbers or products > self._products:
            return False
        self._numbers -= numbers
        self._products -= products
        return True

    def repeated(self, name: str, array: FloatArray, axis: int) -> Rows:
        """A value that has the numbers of an array for every item; the items come into an axis.

        Before the numbers that are along it.
        """
        first = arranged(self, "x", np.zeros((1, array.size), np.int64))
        numbers = np.array(array, np.float64).reshape(-1)
        held = np.maximum(numbers, np.finfo(np.float32).min)  # -inf has no bounds to add
        made = self.add(name, Add((scalar(0.0),), held), first)
        self.fixed[made] = numbers[None]
        axes = [axis_of(size, 1) for size in array.shape]
        axes[axis] = (ITEMS, *axes[axis])
        return Rows(made, contiguous(axes))

    def same(self, name: str, array: FloatArray, axes: Sequence[FileAxis]) -> Rows:
        """A value of these axes that has the numbers of an array for every item."""
        return replace(self.repeated(name, array.reshape(1, -1), 0), axes=contiguous(axes))

    def numbers(self, view: Rows) -> FloatArray | None:
        """The numbers of a view along its axes, the items' left out; None where items differ."""
        known = self.fixed.get(view.name)
        return None if known is None else known.reshape(-1)[view.positions()].reshape(view.extents)
