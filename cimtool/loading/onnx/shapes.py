"""Rules of operators that move numbers and compute none; each is found by its name in `SHAPES`.

Each makes another view of a value; numbers move where the next operation needs them in rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.loading.onnx.constants import Counted, range_of
from cimtool.loading.onnx.translation import OPEN_ITEMS, Norms, RowMeans, Translated, Translation
from cimtool.loading.onnx.views import ITEMS, Rows, extent, taken

ShapeRule = Callable[[Translation], "Translated | tuple[Translated, ...]"]


def _placed(t: Translation) -> Rows:
    """The first input, or the places of norms."""
    value = t.value(0)
    return value.at if isinstance(value, Norms) else t.view()


def _moved(t: Translation, view: Rows) -> Translated:
    """The first input in other places."""
    value = t.value(0)
    if not isinstance(value, Norms):
        return view
    if view.name != value.at.name:
        t.fail(f"moves row norms {value.at.text}; expected each norm beside its own row")
    return replace(value, at=view)


def flatten(t: Translation) -> Translated:
    """The axes before one as one axis, and those from it on as another."""
    view = t.view()
    axis = t.place(t.node.attributes.get("axis", 1))
    if axis <= view.items_axis:
        t.fail(f"makes rows of numbers that {view.text} has for an item; expected axis 1")
    ends = view.axes[:axis], view.axes[axis:]
    joined = (tuple(atom for one in axes for atom in one) for axes in ends)
    return replace(view, axes=tuple(joined))


def reshape(t: Translation) -> Translated:
    """The same numbers in other axes."""
    value, view = t.value(0), _placed(t)
    own, shape = view.sizes(t.graph.items), t.sizes(1)
    if not t.node.attributes.get("allowzero", 0):
        shape = [own[i] if size == 0 and i < len(own) else size for i, size in enumerate(shape)]
    found = t.reshaped(view, shape)
    if found is None:
        said = [-1 if size == t.graph.items else size for size in shape]
        if t.graph.rows is None and shape and shape[0] > 0 and shape[0] % t.graph.items:
            t.fail(f"to {said} fixes the items of {view.text}; expected axes of these{OPEN_ITEMS}")
        t.fail(f"to {said} changes the rows; expected [-1, {view.size}] or axes of these")
    if isinstance(value, RowMeans) and found.name == view.name:
        return replace(value, means=found)
    return _moved(t, found)


def unsqueeze(t: Translation) -> Translated:
    """An axis of extent 1 more."""
    view, axes = _placed(t), t.axes()
    rank = len(view.axes) + len(axes)
    for place in sorted(axis % rank for axis in axes):
        view = replace(view, axes=(*view.axes[:place], (), *view.axes[place:]))
    return _moved(t, view)


def squeeze(t: Translation) -> Translated:
    """An axis of extent 1 less."""
    view, axes = _placed(t), t.axes()
    ones = [i for i, axis in enumerate(view.axes) if ITEMS not in axis and extent(axis) == 1]
    places = {t.place(axis, view) for axis in axes} or set(ones)
    if not places.issubset(ones):
        t.fail(f"takes out axes {sorted(places)} of {view.text}; expected extents of 1")
    return _moved(t, view.reordered([i for i in range(len(view.axes)) if i not in places]))


def transpose(t: Translation) -> Translated:
    """Axes in another order."""
    view = t.view()
    backwards = range(len(view.axes) - 1, -1, -1)
    order = [int(axis) for axis in t.node.attributes.get("perm", backwards)]
    if sorted(order) != sorted(backwards):
        t.fail(f"perm is {order} of {view.text}; expected each of its axes once")
    return view.reordered(order)


def shape(t: Translation) -> Translated:
    """The extents of a value."""
    start, end = t.node.attributes.get("start", 0), t.node.attributes.get("end")
    both = (_placed(t).sizes(count)[start:end] for count in t.graph.counts)
    return Counted.of(*(np.array(sizes, np.int64) for sizes in both))


def split(t: Translation) -> tuple[Translated, ...]:
    """Numbers along an axis in groups."""
    view, count = t.view(), len(t.node.outputs)
    axis = _axis_of_numbers(t, int(t.node.attributes.get("axis", 0)))
    width, given = extent(view.axes[axis]), t.constant(1)
    sizes = t.node.attributes.get("split") if given is None else given.reshape(-1).tolist()
    if sizes is None:
        share = -(-width // count)
        sizes = [share] * (count - 1) + [width - share * (count - 1)]
    ends = np.cumsum(np.array(sizes, np.int64))
    if len(sizes) != count or ends[-1] != width or min(sizes) < 1:
        t.fail(f"{width} numbers into {[int(size) for size in sizes]}; expected a sum of {width}")
    starts = ends - np.array(sizes, np.int64)
    return tuple(
        taken_along(t, view, axis, np.arange(*one)) for one in zip(starts, ends, strict=True)
    )


def sliced(t: Translation) -> Translated:
    """Ranges of numbers along axes."""
    view, attributes = t.view(), t.node.attributes
    given = [t.constant(i) for i in (1, 2, 3, 4)]
    starts, ends, axes, steps = (
        _numbers(attributes.get(name) if array is None else array)
        for name, array in zip(("starts", "ends", "axes", "steps"), given, strict=True)
    )
    for i, axis in enumerate(axes or range(len(starts))):
        step, place = steps[i] if steps else 1, t.place(axis)
        every = starts[i] == 0 and ends[i] >= np.iinfo(np.int32).max and step == 1
        if place == view.items_axis and every:
            continue
        place = _axis_of_numbers(t, axis)
        if step == 0:
            t.fail("its step is 0; expected another whole number")
        size = extent(view.axes[place])
        kept = np.arange(size)[range_of(starts[i], ends[i], step, size)]
        if not len(kept):
            t.fail("leaves no channel")
        view = taken_along(t, view, place, kept)
    return view


def gather(t: Translation) -> Translated:
    """Numbers along an axis by their places, or one, without the axis."""
    view = t.view()
    axis = _axis_of_numbers(t, int(t.node.attributes.get("axis", 0)))
    given, width = t.weights(1), extent(view.axes[axis])
    places = given.reshape(-1).astype(np.int64)
    if given.ndim > 1:
        t.fail(f"takes places of shape {list(given.shape)}; expected one, or a list of them")
    if not len(places) or places.min() < -width or places.max() >= width:
        t.fail(f"takes channels beyond the {width} that there are")
    found = taken_along(t, view, axis, places % width)
    return found if given.ndim else found.with_axis(axis)


def _numbers(values: object) -> list[int]:
    return [] if values is None else [int(number) for number in np.ravel(np.asarray(values))]


def _axis_of_numbers(t: Translation, axis: int) -> int:
    """The place of an axis that items are not in."""
    view, place = t.view(), t.place(axis)
    if place == view.items_axis:
        t.fail(f"is along axis {axis} of {view.text}; expected the channels")
    return place


def taken_along(t: Translation, view: Rows, axis: int, places: IntArray) -> Rows:
    """Numbers along an axis: a view where they are evenly apart, else moved to where they are."""
    t.require_bounded(view)
    found = taken(view, axis, places)
    if found is not None:
        return found
    last = [i for i in range(len(view.axes)) if i != axis] + [axis]
    rows = t.in_rows(view.reordered(last))
    moved = t.columns_taken(rows, places)
    return moved.reordered([last.index(i) for i in range(len(last))])


SHAPES: dict[str, ShapeRule] = {
    "Flatten": flatten,
    "Gather": gather,
    "Reshape": reshape,
    "Shape": shape,
    "Slice": sliced,
    "Split": split,
    "Squeeze": squeeze,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
}
"""The supported operators of shapes, and the rule of each."""
