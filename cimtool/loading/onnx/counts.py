"""Constants that follow from how many items there are: extents of rows, and what is made of these.

A file is read with one number in the place of the items, for which a choice by it has one way; for
other numbers it may have the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cimtool.base.arrays import Array
from cimtool.loading.onnx.constants import ELEMENTWISE, ConstantFolder, constant_inputs
from cimtool.loading.onnx.spreads import COUNTED
from cimtool.loading.onnx.translation import Norms, Translation, as_rows
from cimtool.loading.onnx.views import ITEMS, Rows

MOVING = (
    *("Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile"),
    *("Transpose", "Unsqueeze"),
)
"""Operators that move the numbers of their first input; Concat moves those of all."""


class ItemCounts:
    """The places of such numbers in the constants of one file, by their names."""

    def __init__(self) -> None:
        self._places: dict[str, Array] = {}

    def rename(self, names: Mapping[str, str]) -> None:
        """Note that values are others of a branch, by their names."""
        known = {own: self._places[made] for own, made in names.items() if made in self._places}
        self._places.update(known)

    def require_no_choice(self, t: Translation) -> None:
        """Raise CimError for a node that chooses, or cuts an item, by the number of items.

        A range of the items themselves is for the rule to refuse.
        """
        if t.node.domain:
            return
        if t.node.kind in ("If", "Where") and self._are_in(t.input(0)):
            t.fail(
                "chooses by the number of items; expected the same arithmetic however many there "
                "are"
            )
        if t.node.kind == "Slice" and self._cuts_numbers(t):
            t.fail(
                "takes as many numbers of each item as the number of items says; expected the same "
                "range however many there are"
            )

    def follow(self, t: Translation, folder: ConstantFolder, made: Sequence[object]) -> None:
        """Note where what a node made holds such numbers.

        Raises CimError where they become real ones in a file for any number of items.
        """
        arrays = [one for one in made if isinstance(one, np.ndarray)]
        if len(arrays) < len(made):
            return
        for name, array, places in zip(
            t.node.outputs, arrays, self._places_of(t, folder), strict=False
        ):
            if not places.any():
                continue
            if array.dtype.kind == "f" and t.graph.rows is None:
                t.fail(COUNTED)
            self._places[name] = np.broadcast_to(places, array.shape)

    def _cuts_numbers(self, t: Translation) -> bool:
        """True where a start or an end along another axis than that of the items is counted."""
        value = as_rows(t.value(0))
        ends = [self._places[name] for name in t.node.inputs[1:3] if self._are_in(name)]
        if not isinstance(value, Rows) or not ends:
            return False
        counted = np.atleast_1d(np.logical_or.reduce(ends))
        said = t.constant(3)
        axes = range(len(counted)) if said is None else np.ravel(said)
        return any(
            one and t.place(int(axis)) != value.items_axis
            for one, axis in zip(counted, axes, strict=True)
        )

    def _are_in(self, name: str) -> bool:
        return name in self._places

    def _places_of(self, t: Translation, folder: ConstantFolder) -> tuple[Array, ...]:
        """The places of such numbers in what a node of constants makes, as far as they differ."""
        kind, names = t.node.kind, t.node.inputs
        if kind == "Shape" and not t.node.domain:
            return (_extents_of_items(t),)
        if kind == "Size" or not any(map(self._are_in, names)):
            return ()
        given = [self._places.get(name, np.array(False)) for name in names]
        if kind == "Concat" or (kind in MOVING and not any(map(self._are_in, names[1:]))):
            constants = constant_inputs(t.node, t.values)
            assert constants is not None
            moved = len(constants) if kind == "Concat" else 1
            places = [
                np.array(np.broadcast_to(own, constant.shape))
                for own, constant in zip(given[:moved], constants, strict=False)
            ]
            return folder.fold(t.node, [*places, *constants[moved:]], t.where)
        if kind in ELEMENTWISE or kind in ("Cast", "Div"):
            return (np.logical_or.reduce(np.broadcast_arrays(*given)) & ~_settled(t, given),)
        return (np.array(True),) * len(t.node.outputs)


def _extents_of_items(t: Translation) -> Array:
    """The places of the items among the extents of a value; none of a constant's."""
    value = as_rows(t.value(0))
    view = value.at if isinstance(value, Norms) else value
    axes = view.axes if isinstance(view, Rows) else ()
    start, end = t.node.attributes.get("start", 0), t.node.attributes.get("end")
    return np.array([ITEMS in axis for axis in axes][start:end], bool)


def _settled(t: Translation, given: Sequence[Array]) -> Array:
    """The places where whole extents are compared with numbers that no extent is equal to.

    As -1 is, which an exporter looks for in a shape.
    """
    if t.node.kind != "Equal":
        return np.array(False)
    pairs = [(np.asarray(t.value(i)), places) for i, places in enumerate(given)]
    extents = [
        places & (numbers > 0) & t.graph.places_of_items(numbers) for numbers, places in pairs
    ]
    none = [~places & (numbers < 1) for numbers, places in pairs]
    return np.asarray((extents[0] & none[1]) | (extents[1] & none[0]))
