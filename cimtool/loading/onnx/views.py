"""Values of an ONNX file as views of an item's numbers, as NumPy's are of memory.

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


@dataclass(frozen=True)
class Atom:
    """Part of an axis: `size` numbers of an item, `stride` apart; ITEMS are the items themselves.

    An axis is a sequence of them, the last one the fastest: none where its extent is 1.
    """

    size: int
    stride: int


ITEMS = Atom(0, 0)

FileAxis = tuple[Atom, ...]


def extent(axis: FileAxis) -> int:
    """Numbers of an item along an axis."""
    return math.prod(atom.size for atom in axis if atom is not ITEMS)


def axis_of(size: int, stride: int) -> FileAxis:
    """The axis of so many numbers."""
    return (Atom(size, stride),) if size > 1 else ()


@dataclass(frozen=True)
class Rows:
    """Numbers that depend on the input: a view of a value of the program, from `start` on."""

    name: str
    axes: tuple[FileAxis, ...]
    start: int = 0

    @classmethod
    def plain(cls, name: str, width: int) -> Rows:
        """A value [n, width] as it is."""
        return cls(name, ((ITEMS,), axis_of(width, 1)))

    @property
    def items_axis(self) -> int:
        """The axis that the items are in."""
        return next(i for i, axis in enumerate(self.axes) if ITEMS in axis)

    @property
    def items_place(self) -> tuple[int, int]:
        """That axis, and the numbers of an item along it before the items."""
        axis = self.axes[self.items_axis]
        return self.items_axis, extent(axis[: axis.index(ITEMS)])

    @property
    def extents(self) -> tuple[int, ...]:
        """Numbers of an item along each axis."""
        return tuple(map(extent, self.axes))

    @property
    def size(self) -> int:
        """Numbers of an item in the view."""
        return math.prod(self.extents)

    @property
    def text(self) -> str:
        """Its axes in a few words: `[n, 8, 64]`, `[8, 4n, 16]`."""
        parts = []
        for axis in self.axes:
            count = extent(axis)
            parts.append(f"{count if count > 1 else ''}n" if ITEMS in axis else str(count))
        return f"[{', '.join(parts)}]"

    def sizes(self, items: int) -> list[int]:
        """Extents of the axes for so many items."""
        return [extent(axis) * (items if ITEMS in axis else 1) for axis in self.axes]

    def positions(self) -> IntArray:
        """The places of the view's numbers among an item's, [numbers], in the view's order."""
        return self.start + _places([atom for axis in self.axes for atom in axis])

    def covers(self, size: int) -> bool:
        """True where the view has each of an item's `size` numbers once."""
        reached = 1
        for atom in sorted((a for axis in self.axes for a in axis), key=lambda a: a.stride):
            if atom is not ITEMS:
                if atom.stride != reached:
                    return False
                reached *= atom.size
        return not self.start and reached == size

    def reordered(self, order: Sequence[int]) -> Rows:
        """The view with its axes in another order."""
        return replace(self, axes=tuple(self.axes[i] for i in order))

    def with_axis(self, index: int, *axes: FileAxis) -> Rows:
        """The view with other axes, or none, in the place of one."""
        return replace(self, axes=(*self.axes[:index], *axes, *self.axes[index + 1 :]))


def _places(atoms: Sequence[Atom]) -> IntArray:
    """Sums of all steps along some atoms, the last one the fastest."""
    places = np.zeros(1, np.int64)
    for atom in atoms:
        if atom is not ITEMS:
            places = (places[:, None] + np.arange(atom.size) * atom.stride).reshape(-1)
    return places


def reshaped(rows: Rows, sizes: Sequence[int], items: int) -> Rows | None:
    """The view in other axes of these sizes, for so many `items`; None where numbers would move."""
    left, axes = _joined([atom for axis in rows.axes for atom in axis])[::-1], list[FileAxis]()
    for size in sizes:
        axis: list[Atom] = []
        if items == 1 and left and left[-1] is ITEMS:
            axis.append(left.pop())
        while size > 1 and left:
            atom = left.pop()
            whole = items if atom is ITEMS else atom.size
            if size % whole == 0:
                axis.append(atom)
                size //= whole
            elif atom is not ITEMS and atom.size % size == 0:
                inner = atom.size // size
                axis.append(Atom(size, atom.stride * inner))
                left.append(Atom(inner, atom.stride))
                size = 1
            else:
                return None
        if size != 1:
            return None
        axes.append(tuple(axis))
    if items == 1 and left == [ITEMS]:
        axes[-1] += (left.pop(),)
    return None if left else replace(rows, axes=tuple(axes))


def _joined(atoms: Sequence[Atom]) -> list[Atom]:
    """The atoms with those joined that are one run of numbers."""
    joined: list[Atom] = []
    for atom in atoms:
        before = joined[-1] if joined else ITEMS
        if ITEMS not in (before, atom) and before.stride == atom.size * atom.stride:
            joined[-1] = Atom(before.size * atom.size, atom.stride)
        else:
            joined.append(atom)
    return joined


def taken(rows: Rows, index: int, places: IntArray) -> Rows | None:
    """The view with some numbers along an axis; None where they are not evenly apart."""
    steps = _places(rows.axes[index])[places]
    apart = np.unique(np.diff(steps))
    if len(apart) > 1:
        return None
    axis = axis_of(len(steps), int(apart[0]) if len(apart) else 0)
    moved = replace(rows, start=rows.start + int(steps[0]))
    return moved.with_axis(index, axis)


def widened(rows: Rows, extents: Sequence[int]) -> Rows:
    """The view with axes of extent 1 repeated to other extents."""
    axes = [
        (*axis, Atom(count, 0)) if extent(axis) == 1 and count > 1 else axis
        for axis, count in zip(rows.axes, extents, strict=True)
    ]
    return replace(rows, axes=tuple(axes))


def item_size(builder: Builder, name: str) -> int:
    """Numbers of an item in a value of the program."""
    return rows_of_item(builder.types[name].shape[0])[0] * builder.extent(name)


def in_rows(builder: Builder, rows: Rows, columns: int = 1) -> Rows:
    """The same numbers as rows of the program: those along the last axes, `columns` of them.

    Numbers move where they are not.
    """
    inner = [atom for axis in rows.axes[len(rows.axes) - columns :] for atom in axis]
    width = math.prod(atom.size for atom in inner)
    in_place = width == builder.extent(rows.name) and _joined(inner) == [*axis_of(width, 1)]
    if in_place and rows.covers(item_size(builder, rows.name)):
        return rows
    return in_order(builder, rows, columns)


def in_order(builder: Builder, rows: Rows, columns: int = 1) -> Rows:
    """The same as `in_rows`, the rows of an item in the order of the view too."""
    width = math.prod(rows.extents[len(rows.axes) - columns :])
    places = rows.positions().reshape(-1, width)
    return Rows(arranged(builder, rows.name, places), contiguous(rows.axes))


def like(builder: Builder, rows: Rows, other: Rows) -> str:
    """The numbers of a view where those of `other`, which covers its value, have theirs."""
    item, _ = rows_of_item(builder.types[other.name].shape[0])
    places = np.empty(other.size, np.int64)
    places[other.positions()] = rows.positions()
    return arranged(builder, rows.name, places.reshape(item, -1))


def contiguous(axes: Sequence[FileAxis]) -> tuple[FileAxis, ...]:
    """The axes of numbers that lie in the order of the view."""
    stride, made = 1, list[FileAxis]()
    for axis in reversed(axes):
        atoms: list[Atom] = []
        for atom in reversed(axis):
            atoms.append(atom if atom is ITEMS else Atom(atom.size, stride))
            stride *= 1 if atom is ITEMS else atom.size
        made.append(tuple(reversed(atoms)))
    return tuple(reversed(made))
