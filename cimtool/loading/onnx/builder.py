"""The builder of a tower, which knows two things of values that no other one needs.

* The numbers of values that are the same for all items, as class tokens and learned queries are. A
  file spreads a constant over the items (`Expand`), and what follows may move, project and split
  it. Where such a value meets one that depends on the input it is a constant again.
* The constants that were added to values of which some are masks of attention: -inf, or a number
  so low that its power is 0. A softmax takes them off again and leaves those numbers out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.ir.arithmetic import Add, Arrange, BatchMatMul, Clip, Mvm, scalar
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.op import Op
from cimtool.ir.program import Range
from cimtool.ir.source import NO_WEIGHT
from cimtool.ir.types import numbers_of_item, rows_of_item
from cimtool.loading.layout import arranged
from cimtool.loading.onnx.views import Rows

MOST_NUMBERS = 1 << 24
"""Numbers of values that are the same for all items, all together."""

MOST_PRODUCTS = 1 << 32
"""Multiply-adds by which they are computed, all together; the program computes what is beyond."""

LOWEST_OFFSET = -1e6
"""Of a number from which more than this is taken, 16 bits hold nothing."""

LARGEST_NUMBER = float(np.finfo(np.float32).max)


class MaskRead(Exception):
    """Raised where an operation reads masked numbers in another way than a softmax."""


class FileBuilder(TowerBuilder):
    """Builds a tower, knowing the numbers [rows of an item, ...] of `fixed` values on the way.

    `masks` [rows of an item, width] are the sums of constants that were added to masked values,
    and `unmasked` the values without these.
    `item_numbers` and `item_products` count what an item has in all values, and its multiply-adds;
    `item_places` count the numbers of the values of the file.
    """

    def __init__(self, width: int):
        super().__init__(width)
        self.fixed: dict[str, FloatArray] = {}
        self.masks: dict[str, FloatArray] = {}
        self.unmasked: dict[str, str] = {}
        self.item_numbers = self.item_products = self.item_places = 0
        self._numbers, self._products = MOST_NUMBERS, MOST_PRODUCTS

    def add(self, name: str, op: Op, *inputs: str, seen: Range | None = None) -> str:
        """The same, and what is known of the value; MaskRead where masked numbers are read."""
        made = super().add(name, op, *inputs, seen=seen)
        numbers = numbers_of_item(self.types[made].shape)
        inner = self.extent(inputs[0]) if isinstance(op, Mvm | BatchMatMul) else 0
        self.item_numbers += numbers
        self.item_products += numbers * inner
        if all(i in self.fixed for i in inputs) and self._affordable(numbers, numbers * inner):
            with np.errstate(all="ignore"):
                self.fixed[made] = np.asarray(op.run(*(self.fixed[i] for i in inputs)), np.float64)
        mask = self._mask(made, op, inputs)
        if mask is not None:
            self.masks[made] = mask
            self.unmasked[made] = self._without_mask(made, op, inputs)
        return made

    def forget(self, name: str) -> None:
        """Take back a value that nothing reads."""
        numbers = numbers_of_item(self.types[name].shape)
        node = self.by_name.pop(name)
        self.item_numbers -= numbers
        self.item_products -= numbers * self.extent(node.inputs[0])
        for known in (self.types, self.fixed, self.masks, self.unmasked):
            known.pop(name, None)

    def _affordable(self, numbers: int, products: int) -> bool:
        """True where the numbers of a value are few enough; they count then."""
        if numbers > self._numbers or products > self._products:
            return False
        self._numbers -= numbers
        self._products -= products
        return True

    def _mask(self, made: str, op: Op, inputs: Sequence[str]) -> FloatArray | None:
        """The constants that were added to a value, if some of them mask."""
        masks = [self.masks.get(i) for i in inputs]
        known = [one for one in masks if one is not None]
        match op:
            case Add() if known or op.offset.min() <= NO_WEIGHT:
                shape = self.types[made].shape
                total = np.zeros((rows_of_item(shape[0])[0], int(shape[1]))) + op.offset
                for factor, one in zip(op.factors, masks, strict=True):
                    if one is not None:
                        _require_low(np.maximum(-factor, 0.0) * one)  # turned, it masks nothing
                        total += factor * one
                return total if (total <= NO_WEIGHT).any() else None
            case Arrange() if known:
                moved = known[0].reshape(-1)[op.places]
                return moved if (moved <= NO_WEIGHT).any() else None
            case Clip() if known and op.lo.max() <= NO_WEIGHT and op.hi.min() == np.inf:
                return np.where(known[0] <= NO_WEIGHT, np.maximum(known[0], op.lo), known[0])
        for one in known:
            _require_low(one)
        return None

    def _without_mask(self, name: str, op: Op, inputs: Sequence[str]) -> str:
        """The value without the constants that were added to masked ones."""
        inputs = [self.unmasked.get(i, i) for i in inputs]
        if isinstance(op, Arrange):
            return arranged(self, inputs[0], op.places)
        if isinstance(op, Clip):
            return inputs[0]
        assert isinstance(op, Add)
        # What is masked anyway needs no factor, as a choice has 0 there.
        low = (self.masks[name] <= NO_WEIGHT).all(axis=0)
        factors = [np.where(low, 1.0, f) if f.ndim else f for f in op.factors]
        if len(inputs) == 1 and (factors[0] == 1).all():
            return inputs[0]
        return self.add(f"{name}_unmasked", Add(tuple(factors), scalar(0.0)), *inputs)

    def repeated(self, name: str, array: FloatArray, axis: int) -> Rows:
        """A value that has the numbers of an array for every item; the items come into an axis.

        Before the numbers that are along it.
        """
        first = arranged(self, "x", np.zeros((1, array.size), np.int64))
        numbers = np.array(array, np.float64).reshape(-1)
        made = self.add(name, Add((scalar(0.0),), np.maximum(numbers, -LARGEST_NUMBER)), first)
        self.fixed[made] = numbers[None]
        return Rows.in_order(made, array.shape, axis)

    def same(self, name: str, array: FloatArray, view: Rows) -> Rows:
        """A value with the numbers of an array for every item, which is where a view has it."""
        return replace(self.repeated(name, array, view.items), before=view.before)

    def numbers(self, view: Rows) -> FloatArray | None:
        """The numbers of a view along its axes, the items' left out; None where items differ."""
        known = self.fixed.get(view.name)
        return None if known is None else known.reshape(-1)[view.places]


def _require_low(mask: FloatArray) -> None:
    """Raise MaskRead for masked numbers that an operation reads, unless 16 bits hold them."""
    if (least := float(mask.min())) < LOWEST_OFFSET:
        least = -np.inf if least <= -LARGEST_NUMBER else least
        raise MaskRead(f"{least:g}")
