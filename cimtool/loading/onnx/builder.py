"""Values of an ONNX file, as views of an item's numbers, and the builder of a tower.

In a program, a value has one or several rows per item. In a file, a value has any axes; the axis of
the items can be at any place, and can be joined with others. Reshape, Transpose and Slice make
another view of the same value. Numbers move only if an operation needs them in rows.

The builder keeps two facts about values that other builders do not need:

* The numbers of values that are the same for all items, such as class tokens and learned queries. A
  file spreads a constant over the items (`Expand`); later nodes may move, project and split it. If
  such a value meets a value that depends on the input, it is used as a constant again.
* The constants that were added to a value, if some are attention masks: -inf, or numbers so low
  that their exponential is 0. A softmax subtracts them again and leaves the masked numbers out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.ir.arithmetic import Add, Arrange, BatchMatMul, Clip, Mvm, scalar
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.op import Op
from cimtool.ir.program import Node, Range
from cimtool.ir.source import NO_WEIGHT
from cimtool.ir.types import numbers_of_item, rows_of_item
from cimtool.loading.layout import arranged

MOST_NUMBERS = 1 << 24
"""Numbers, in total, of all values that are the same for all items."""

MOST_PRODUCTS = 1 << 32
"""Multiply-adds, in total, to compute these values here; beyond, the program computes them."""

LOWEST_OFFSET = -1e6
"""Below this offset, 16 bits hold nothing of the number that it is added to."""

LARGEST_NUMBER = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Rows:
    """Numbers that depend on the input: a view of a value of the program.

    `places` has the axes of the file's value and gives, at each place, the index of the item's
    number. The items are along the axis `items`, after `before` numbers of each item.
    """

    name: str
    places: IntArray
    items: int = 0
    before: int = 1

    @classmethod
    def in_order(cls, name: str, extents: Sequence[int], items: int = 0, before: int = 1) -> Rows:
        """All numbers of a value in its own order."""
        return cls(name, np.arange(math.prod(extents)).reshape(extents), items, before)

    @property
    def extents(self) -> tuple[int, ...]:
        """Numbers of an item along each axis."""
        return self.places.shape

    @property
    def rank(self) -> int:
        """The number of axes."""
        return self.places.ndim

    @property
    def size(self) -> int:
        """Numbers of an item in the view."""
        return self.places.size

    @property
    def items_apart(self) -> bool:
        """True if nothing else is along the axis of the items."""
        return self.extents[self.items] == 1

    @property
    def text(self) -> str:
        """Its axes in a few words: `[n, 8, 64]`, `[8, 4n, 16]`."""
        parts = [str(size) for size in self.extents]
        parts[self.items] = f"{'' if self.items_apart else parts[self.items]}n"
        return f"[{', '.join(parts)}]"

    def sizes(self, items: int) -> list[int]:
        """Extents of the axes for this many items."""
        return [size * (items if i == self.items else 1) for i, size in enumerate(self.extents)]

    def alike(self, other: Rows) -> bool:
        """True if both have the same places; their values may differ."""
        same = (self.items, self.before) == (other.items, other.before)
        return same and np.array_equal(self.places, other.places)

    def covers(self, size: int) -> bool:
        """True if the view has each of an item's `size` numbers once."""
        found = np.zeros(size, bool)
        found[self.places.reshape(-1)] = True
        return self.size == size and bool(found.all())

    def reordered(self, order: Sequence[int]) -> Rows:
        """The view with its axes in another order."""
        return replace(self, places=self.places.transpose(order), items=order.index(self.items))

    def back(self, order: Sequence[int]) -> Rows:
        """The view before `reordered` with this order."""
        return self.reordered([order.index(i) for i in range(self.rank)])

    def last(self, axis: int) -> list[int]:
        """An order of the axes with `axis` last."""
        return [i for i in range(self.rank) if i != axis] + [axis]

    def expanded(self, axis: int) -> Rows:
        """The view with another axis, of extent 1."""
        return replace(
            self, places=np.expand_dims(self.places, axis), items=self.items + (axis <= self.items)
        )

    def squeezed(self, axis: int) -> Rows:
        """The view without an axis of extent 1."""
        return replace(
            self, places=np.squeeze(self.places, axis), items=self.items - (axis < self.items)
        )

    def taken(self, axis: int, places: IntArray) -> Rows:
        """The view with only the numbers at `places` along an axis."""
        return replace(self, places=np.take(self.places, places, axis))

    def widened(self, extents: Sequence[int]) -> Rows:
        """The view with axes of extent 1 repeated to other extents."""
        pairs = zip(self.extents, extents, strict=True)
        shape = [new if own == 1 else own for own, new in pairs]
        return replace(self, places=np.broadcast_to(self.places, shape))

    def reshaped(self, sizes: Sequence[int], items: int) -> Rows | None:
        """The view in axes of these sizes, for this many `items`; None if there is no such view."""
        ahead = math.prod(self.extents[: self.items]) * self.before  # numbers before the items
        for axis, size in enumerate(sizes):
            before, left = divmod(ahead, math.prod(sizes[:axis]))
            if not (left or size % items or (size // items) % before):
                shape = [*sizes[:axis], size // items, *sizes[axis + 1 :]]
                if math.prod(shape) != self.size:
                    return None
                return Rows(self.name, self.places.reshape(shape), axis, before)
        return None

    def narrowed(self, width: int) -> Rows:
        """The same rows of the program, with `width` columns."""
        rows = self.places[..., :1] // self.extents[-1]
        return replace(self, places=rows * width + np.arange(width))


class MaskRead(Exception):
    """Raised if an operation reads masked numbers in another way than a softmax."""


class FileBuilder(TowerBuilder):
    """Builds a tower; `fixed` has the numbers [rows of an item, ...] of values equal for all items.

    `masks` [rows of an item, width] has the sums of the constants that were added to masked values,
    and `unmasked` has the values without them. Per item, `item_numbers` counts the numbers in all
    values of the program, `item_products` the multiply-adds, and `item_places` the numbers in all
    values of the file.
    """

    def __init__(self, width: int):
        super().__init__(width)
        self.fixed: dict[str, FloatArray] = {}
        self.masks: dict[str, FloatArray] = {}
        self.unmasked: dict[str, str] = {}
        self.item_numbers = self.item_products = self.item_places = 0
        self._numbers, self._products = MOST_NUMBERS, MOST_PRODUCTS

    def add(self, name: str, op: Op, *inputs: str, seen: Range | None = None) -> str:
        """Append an operation and record the facts; MaskRead if it reads masked numbers."""
        made = super().add(name, op, *inputs, seen=seen)
        numbers = numbers_of_item(self.types[made].shape)
        inner = self.extent(inputs[0]) if isinstance(op, Mvm | BatchMatMul) else 0
        self.item_numbers += numbers
        self.item_products += numbers * inner
        affordable = numbers <= self._numbers and numbers * inner <= self._products
        if affordable and all(i in self.fixed for i in inputs):
            self._numbers -= numbers
            self._products -= numbers * inner
            with np.errstate(all="ignore"):
                self.fixed[made] = np.asarray(op.run(*(self.fixed[i] for i in inputs)), np.float64)
        mask = self._mask(made, op, inputs)
        if mask is not None:
            self.masks[made] = mask
            self.unmasked[made] = self._without_mask(made, op, inputs)
        return made

    def forget(self, name: str) -> None:
        """Remove a value that nothing reads."""
        numbers = numbers_of_item(self.types[name].shape)
        node = self.by_name.pop(name)
        self.item_numbers -= numbers
        self.item_products -= numbers * self.extent(node.inputs[0])
        for known in (self.types, self.fixed, self.masks, self.unmasked):
            known.pop(name, None)

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
                        _require_low(np.maximum(-factor, 0.0) * one)  # negated, it masks nothing
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
        """The value without the constants that were added to masked values."""
        inputs = [self.unmasked.get(i, i) for i in inputs]
        if isinstance(op, Arrange):
            return arranged(self, inputs[0], op.places)
        if isinstance(op, Clip):
            return inputs[0]
        assert isinstance(op, Add)
        # A choice has factor 0 at masked numbers; they are left out anyway, so 1 will do.
        low = (self.masks[name] <= NO_WEIGHT).all(axis=0)
        factors = [np.where(low, 1.0, f) if f.ndim else f for f in op.factors]
        if len(inputs) == 1 and (factors[0] == 1).all():
            return inputs[0]
        return self.add(f"{name}_unmasked", Add(tuple(factors), scalar(0.0)), *inputs)

    def repeated(self, name: str, array: FloatArray, axis: int) -> Rows:
        """A value with the numbers of an array for every item.

        The items join `axis`, before the numbers along it.
        """
        first = arranged(self, "x", np.zeros((1, array.size), np.int64))
        numbers = np.array(array, np.float64).reshape(-1)
        made = self.add(name, Add((scalar(0.0),), np.maximum(numbers, -LARGEST_NUMBER)), first)
        self.fixed[made] = numbers[None]
        return Rows.in_order(made, array.shape, axis)

    def same(self, name: str, array: FloatArray, view: Rows) -> Rows:
        """A value with the numbers of an array for every item; items are placed as in `view`."""
        return replace(self.repeated(name, array, view.items), before=view.before)

    def made_by(self, name: str, *kinds: type[Op]) -> list[Node] | None:
        """The chain of nodes of these kinds that makes a value, last node first; else None."""
        nodes = list[Node]()
        for kind in kinds:
            node = self.by_name.get(name)
            if node is None or not isinstance(node.op, kind):
                return None
            nodes.append(node)
            name = node.inputs[0]
        return nodes

    def multiple(self, name: str) -> tuple[str, Add] | None:
        """The source and the operation of a value that is constants times a source; else None."""
        node = self.by_name.get(name)
        if node is None or not isinstance(node.op, Add) or len(node.inputs) > 1:
            return None
        return None if node.op.offset.any() else (node.inputs[0], node.op)

    def covered(self, view: Rows) -> bool:
        """True if a view has each number of its value once."""
        shape = self.types[view.name].shape
        return view.covers(rows_of_item(shape[0])[0] * int(shape[1]))

    def in_rows(self, view: Rows, columns: int = 1) -> Rows:
        """The view as rows of the program; the last `columns` axes are joined to one row.

        Numbers move only if needed. An item's rows may be in another order than in the view.
        """
        width = math.prod(view.extents[view.rank - columns :])
        table = view.places.reshape(-1, width)
        whole = (table == table[:, :1] // width * width + np.arange(width)).all()
        if width == self.extent(view.name) and whole and self.covered(view):
            return view
        return self.in_order(view, columns)

    def in_order(self, view: Rows, columns: int = 1) -> Rows:
        """As `in_rows`, but an item's rows are in the order of the view."""
        width = math.prod(view.extents[view.rank - columns :])
        name = arranged(self, view.name, view.places.reshape(-1, width))
        return Rows.in_order(name, view.extents, view.items, view.before)

    def like(self, view: Rows, other: Rows) -> str:
        """The numbers of a view, moved to the places of `other`, which covers its value."""
        item, _ = rows_of_item(self.types[other.name].shape[0])
        places = np.empty(other.size, np.int64)
        places[other.places.reshape(-1)] = view.places.reshape(-1)
        return arranged(self, view.name, places.reshape(item, -1))

    def numbers(self, view: Rows) -> FloatArray | None:
        """The numbers of a view for one item, along its axes; None if items differ."""
        known = self.fixed.get(view.name)
        return None if known is None else known.reshape(-1)[view.places]


def _require_low(mask: FloatArray) -> None:
    """Raise MaskRead if an operation reads masked numbers that 16 bits do not hold."""
    if (least := float(mask.min())) < LOWEST_OFFSET:
        least = -np.inf if least <= -LARGEST_NUMBER else least
        raise MaskRead(f"{least:g}")
