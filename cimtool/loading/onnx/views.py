"""Values of an ONNX file as views of an item's numbers, by their places.

A program's values are rows, one or several of an item; a file's have any axes, among which that of
the items may stand anywhere and be joined with others. Reshape, Transpose and Slice make another
view of the same value, and numbers move only where an operation needs them in rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.ir.program import Builder
from cimtool.ir.types import rows_of_item
from cimtool.loading.layout import arranged


@dataclass(frozen=True, eq=False)
class Rows:
    """Numbers that depend on the input: a view of a value of the program.

    `places` have the axes of the file's value: which of an item's numbers stands where. The items
    themselves are along the axis `items`, behind `before` numbers of each item.
    """

    name: str
    places: IntArray
    items: int = 0
    before: int = 1

    @classmethod
    def in_order(cls, name: str, extents: Sequence[int], items: int = 0, before: int = 1) -> Rows:
        """All numbers of a value in the order that they have in it."""
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
        """Extents of the axes for so many items."""
        return [size * (items if i == self.items else 1) for i, size in enumerate(self.extents)]

    def alike(self, other: Rows) -> bool:
        """True if both have the same places, of whatever values."""
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
        """The view with axes that `reordered` moved where they were."""
        return self.reordered([order.index(i) for i in range(self.rank)])

    def last(self, axis: int) -> list[int]:
        """An order with one axis behind all others."""
        return [i for i in range(self.rank) if i != axis] + [axis]

    def expanded(self, axis: int) -> Rows:
        """The view with an axis of extent 1 more."""
        return replace(
            self, places=np.expand_dims(self.places, axis), items=self.items + (axis <= self.items)
        )

    def squeezed(self, axis: int) -> Rows:
        """The view without an axis of extent 1."""
        return replace(
            self, places=np.squeeze(self.places, axis), items=self.items - (axis < self.items)
        )

    def taken(self, axis: int, places: IntArray) -> Rows:
        """Some numbers along an axis."""
        return replace(self, places=np.take(self.places, places, axis))

    def widened(self, extents: Sequence[int]) -> Rows:
        """The view with axes of extent 1 repeated to other extents."""
        pairs = zip(self.extents, extents, strict=True)
        shape = [new if own == 1 else own for own, new in pairs]
        return replace(self, places=np.broadcast_to(self.places, shape))

    def reshaped(self, sizes: Sequence[int], items: int) -> Rows | None:
        """The view in other axes of these sizes, for so many `items`; None if it has no such."""
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
        """The same rows of the program with another number of columns."""
        rows = self.places[..., :1] // self.extents[-1]
        return replace(self, places=rows * width + np.arange(width))


def item_size(builder: Builder, name: str) -> int:
    """Numbers of an item in a value of the program."""
    return rows_of_item(builder.types[name].shape[0])[0] * builder.extent(name)


def in_rows(builder: Builder, view: Rows, columns: int = 1) -> Rows:
    """The same numbers as rows of the program: those along the last axes, `columns` of them.

    Numbers move if they are not. The rows of an item may be in another order than in the view.
    """
    width = math.prod(view.extents[view.rank - columns :])
    table = view.places.reshape(-1, width)
    whole = (table == table[:, :1] // width * width + np.arange(width)).all()
    if width == builder.extent(view.name) and whole and view.covers(item_size(builder, view.name)):
        return view
    return in_order(builder, view, columns)


def in_order(builder: Builder, view: Rows, columns: int = 1) -> Rows:
    """The same as `in_rows`, the rows of an item in the order of the view too."""
    width = math.prod(view.extents[view.rank - columns :])
    name = arranged(builder, view.name, view.places.reshape(-1, width))
    return Rows.in_order(name, view.extents, view.items, view.before)


def like(builder: Builder, view: Rows, other: Rows) -> str:
    """The numbers of a view where those of `other`, which covers its value, have theirs."""
    item, _ = rows_of_item(builder.types[other.name].shape[0])
    places = np.empty(other.size, np.int64)
    places[other.places.reshape(-1)] = view.places.reshape(-1)
    return arranged(builder, view.name, places.reshape(item, -1))
