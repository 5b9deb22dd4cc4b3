"""Views move numbers as numpy moves them, wherever the items stand."""

from __future__ import annotations

import numpy as np
import pytest

from cimtool.loading.onnx.views import Rows

ITEMS = 7
"""A prime that is no extent of an item's."""


def whole(view: Rows, values: np.ndarray) -> np.ndarray:
    """The numbers [..., of all items, ...] that a view has of values [items, numbers]."""
    after = view.extents[view.items] // view.before
    shape = view.extents
    apart = view.places.reshape(*shape[: view.items], view.before, after, *shape[view.items + 1 :])
    taken = values[:, apart]
    moved = np.moveaxis(taken, 0, view.items + 1)
    return moved.reshape(view.sizes(ITEMS))


@pytest.mark.parametrize("seed", range(30))
def test_moves_are_those_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    view, values = Rows.in_order("x", (1, 24)), rng.normal(size=(ITEMS, 24))
    wanted = values
    for _ in range(40):
        match rng.integers(6):
            case 0:
                order = [int(i) for i in rng.permutation(view.rank)]
                view, wanted = view.reordered(order), wanted.transpose(order)
            case 1:
                sizes = [2, 3, 4, ITEMS]
                joined = int(rng.integers(3))
                rng.shuffle(sizes)
                sizes[joined : joined + 2] = [sizes[joined] * sizes[joined + 1]]
                found = view.reshaped(sizes, ITEMS)
                if found is not None and view.size == 24:
                    view, wanted = found, wanted.reshape(sizes)
            case 2 if view.rank < 6:
                axis = int(rng.integers(view.rank + 1))
                view, wanted = view.expanded(axis), np.expand_dims(wanted, axis)
            case 3:
                ones = [i for i, n in enumerate(wanted.shape) if n == 1]
                if ones:
                    view, wanted = view.squeezed(ones[0]), wanted.squeeze(ones[0])
            case 4:
                axis = int(rng.integers(view.rank))
                if axis != view.items:
                    places = rng.permutation(wanted.shape[axis])
                    view, wanted = view.taken(axis, places), np.take(wanted, places, axis)
            case 5:
                axis = int(rng.integers(view.rank))
                order = view.last(axis)
                assert view.reordered(order).back(order).alike(view)
        np.testing.assert_array_equal(whole(view, values), wanted)
    assert view.covers(24)


def test_a_reshape_that_mixes_items_is_none() -> None:
    view = Rows.in_order("x", (4, 1, 6), 1)
    assert view.reshaped([ITEMS, 24], ITEMS) is None
    assert view.reshaped([4, ITEMS, 5], ITEMS) is None
    joined = view.reshaped([4 * ITEMS, 6], ITEMS)
    assert joined is not None
    assert (joined.text, joined.before) == ("[4n, 6]", 4)
