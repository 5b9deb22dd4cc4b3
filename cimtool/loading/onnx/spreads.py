"""Rules by which constants come to items, and values into one: `Expand`, `Tile`, `Concat`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.ir.arithmetic import Add, scalar
from cimtool.loading.layout import arranged
from cimtool.loading.onnx.constants import ELEMENTWISE
from cimtool.loading.onnx.shapes import taken_along
from cimtool.loading.onnx.translation import OPEN_ITEMS, Norms, RowMeans, Translated, Translation
from cimtool.loading.onnx.views import ITEMS, Rows, axis_of, contiguous, extent, widened

SpreadRule = Callable[[Translation], Translated]

REAL_TYPES = (1, 11)
"""FLOAT and DOUBLE (TensorProto.DataType)."""

SHAPE_INPUTS = {"ConstantOfShape": 0, "Expand": 1, "Tile": 1}
"""The input of an operator that says extents, or how often a constant comes."""


def over_items(t: Translation) -> bool:
    """True where a node of constants makes one for each item; its integers are of shapes."""
    index, value = SHAPE_INPUTS.get(t.node.kind), t.node.attributes.get("value")
    if index is None or (value is not None and value.data_type not in REAL_TYPES):
        return False
    return _items_axis(t, t.sizes(index)) is not None


def _items_axis(t: Translation, sizes: Sequence[int]) -> int | None:
    """The axis whose size has the number of items in it; None where none is known to.

    A product of it is told where it stands for any number.
    """
    items = t.graph.items
    found = [
        axis
        for axis, size in enumerate(sizes)
        if items > 1 and (size == items or (t.graph.rows is None and size and size % items == 0))
    ]
    return next(iter(found), None)


def alike_for_items(t: Translation) -> list[Array] | None:
    """The inputs of a node of single numbers that is the same for all items, with 1 for these.

    None of other nodes, and where the items are in several places, or in an axis with others.
    """
    if t.node.domain or not (t.node.kind in ELEMENTWISE or t.node.kind == "Cast"):
        return None
    values = [t.value(index) for index in range(len(t.node.inputs))]
    views = [value for value in values if isinstance(value, Rows)]
    places = {
        view.items_axis - len(view.axes) if view.axes[view.items_axis] == (ITEMS,) else 0
        for view in views
    }
    if len(places) != 1 or 0 in places:
        return None
    arrays = list[Array]()
    for value in values:
        numbers = t.builder.numbers(value) if isinstance(value, Rows) else value
        if not isinstance(numbers, np.ndarray):
            return None
        arrays.append(numbers if isinstance(value, Rows) else t.of_items(numbers, views[0]))
    return [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]


def for_items(t: Translation, array: Array) -> Rows:
    """A value that is the same for all items, computed of such inputs."""
    views = (value for i in range(len(t.node.inputs)) if isinstance(value := t.value(i), Rows))
    first = next(views)
    axis = array.ndim + first.items_axis - len(first.axes)
    t.require_numbers(array.size)
    return t.builder.repeated(t.called("constant"), array.astype(np.float64), axis)


def expand(t: Translation) -> Translated:
    """Norms and means of rows over the rows that they meet; a constant over the items."""
    value = t.value(0)
    sizes = t.sizes(1)
    if isinstance(value, Norms):
        return replace(value, at=_widened(t, value.at, sizes))
    if isinstance(value, RowMeans):
        return replace(value, means=_widened(t, value.means, sizes))
    if t.is_rows(0):
        return _widened(t, t.view(), sizes)
    return _repeated(t, t.mask_numbers(0), sizes)


def _widened(t: Translation, view: Rows, sizes: Sequence[int]) -> Rows:
    """A value with axes of extent 1 repeated."""
    if len(sizes) > len(view.axes):
        axes = ((),) * (len(sizes) - len(view.axes))
        view = replace(view, axes=(*axes, *view.axes))
    own = view.sizes(t.graph.items)
    wanted = [*own[: len(own) - len(sizes)], *sizes]
    if any(new not in (1, old) and old != 1 for new, old in zip(wanted, own, strict=True)):
        t.fail(f"spreads {view.text} to {_said(t, sizes)}; expected extents of 1 alone to grow")
    if wanted[view.items_axis] not in (1, own[view.items_axis]):
        t.fail(f"spreads the items of {view.text} to {_said(t, sizes)}")
    grown = [max(new, old) if old == 1 else 1 for new, old in zip(wanted, own, strict=True)]
    t.require_bounded(wide := widened(view, grown))
    return wide


def _said(t: Translation, sizes: Sequence[int]) -> str:
    """Extents in words, with n for the items: `[n, 8]`, `[16n]`."""
    items, axis = t.graph.items, _items_axis(t, sizes)
    said = [str(size) for size in sizes]
    if axis is not None and sizes[axis] % items == 0:
        count = sizes[axis] // items
        said[axis] = f"{count if count > 1 else ''}n"
    return f"[{', '.join(said)}]"


def _repeated(t: Translation, array: FloatArray, sizes: Sequence[int]) -> Rows:
    """A constant in these extents, the items among them."""
    rank = max(array.ndim, len(sizes))
    own = [*[1] * (rank - array.ndim), *array.shape]
    wanted = [max(pair) for pair in zip(own, [*[1] * (rank - len(sizes)), *sizes], strict=True)]
    axis = _items_axis(t, wanted)
    if axis is None:
        t.fail(f"spreads a constant to {_said(t, sizes)}; expected the items among these")
    extents = [*wanted[:axis], wanted[axis] // t.graph.items, *wanted[axis + 1 :]]
    array = array.reshape(own)
    if own[axis] != 1 or any(a not in (1, b) for a, b in zip(own, extents, strict=True)):
        t.fail(f"spreads a constant of shape {own} to {_said(t, sizes)}; expected 1 for the items")
    t.require_numbers(math.prod(extents))
    return t.builder.repeated(t.called("constant"), np.broadcast_to(array, extents), axis)


def constant_of_shape(t: Translation) -> Translated:
    """One number everywhere, for each item."""
    from onnx import numpy_helper

    given = t.node.attributes.get("value")
    value = 0.0 if given is None else float(numpy_helper.to_array(given).item())
    sizes = t.sizes(0)
    return _repeated(t, np.full([1] * len(sizes), value), sizes)


def tile(t: Translation) -> Translated:
    """Numbers along axes several times, and a constant once for each item."""
    repeats = t.sizes(1)
    rank = len(t.view().axes) if t.is_rows(0) else t.weights(0).ndim
    if len(repeats) != rank or min(repeats, default=1) < 1:
        t.fail(f"repeats {repeats} times; expected a number of at least 1 for each of {rank} axes")
    if t.is_rows(0):
        view = t.view()
        for axis, count in enumerate(repeats):
            if count != 1:
                view = _tiled(t, view, axis, count)
        return view
    array = t.mask_numbers(0)
    once = _items_axis(t, repeats)
    if once is None:
        t.fail(f"repeats a constant {repeats} times; expected the items among these")
    within = [n // t.graph.items if i == once else n for i, n in enumerate(repeats)]
    t.require_numbers(math.prod([array.size, *within]))
    return t.builder.repeated(t.called("constant"), np.tile(array, within), once)


def _tiled(t: Translation, view: Rows, axis: int, count: int) -> Rows:
    if axis == view.items_axis:
        t.fail(f"repeats the items of {view.text}; expected another axis")
    own = extent(view.axes[axis])
    t.require_numbers(view.size * count)
    if own == 1:
        return widened(view, [count if i == axis else 1 for i in range(len(view.axes))])
    return taken_along(t, view, axis, np.tile(np.arange(own), count))


def concat(t: Translation) -> Translated:
    """Values and constants one after another along an axis.

    Each value is brought to its places among zeros; the sum of all has them and the constants.
    """
    parts: list[Rows | FloatArray]
    parts = [t.view(i) if t.is_rows(i) else t.weights(i) for i in range(len(t.node.inputs))]
    first = next((part for part in parts if isinstance(part, Rows)), None)
    if first is None:
        t.fail("joins constants alone; expected a value among them")
    axis, rank = _axis(t, first), len(first.axes)
    parts = [p if isinstance(p, Rows) else t.of_items(p, first) for p in parts]
    shapes = [part.extents if isinstance(part, Rows) else part.shape for part in parts]
    rest = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    places = {part.items_place for part in parts if isinstance(part, Rows)}
    if {len(shape) for shape in shapes} != {rank} or len(rest) > 1 or len(places) > 1:
        said = ", ".join(p.text if isinstance(p, Rows) else str(list(p.shape)) for p in parts)
        t.fail(f"joins {said} along axis {axis}; expected the same other axes{OPEN_ITEMS}")
    extents = [*first.extents]
    extents[axis] = sum(shape[axis] for shape in shapes)
    t.require_numbers(math.prod(extents))
    sources, offset = dict[str, IntArray](), np.zeros(extents)
    start = 0
    for part, shape in zip(parts, shapes, strict=True):
        where = (*(slice(None),) * axis, slice(start, start := start + shape[axis]))
        numbers = t.builder.numbers(part) if isinstance(part, Rows) else part
        if isinstance(part, Rows) and numbers is None:
            taken = sources.setdefault(part.name, np.full(extents, -1, np.int64))
            taken[where] = part.positions().reshape(shape)
        else:
            offset[where] = numbers
    axes = first.with_axis(axis, axis_of(extents[axis], 1)).axes
    if not sources:
        return t.builder.same(t.called("constant"), offset, axes)
    return Rows(_joined(t, sources, offset.reshape(-1)), contiguous(axes))


def _axis(t: Translation, view: Rows) -> int:
    """The place of the axis along which values are joined."""
    axis, rank = int(t.node.attributes["axis"]), len(view.axes)
    if not -rank <= axis < rank or axis % rank == view.items_axis:
        t.fail(f"joins {view.text} along axis {axis}; expected one of each item's numbers")
    return axis % rank


def _joined(t: Translation, sources: dict[str, IntArray], offset: FloatArray) -> str:
    """The value [n, numbers] that has those of each source at its places, constants elsewhere."""
    names = [
        arranged(t.builder, name, np.maximum(places, 0).reshape(1, -1))
        for name, places in sources.items()
    ]
    masks = [(places >= 0).reshape(-1).astype(np.float64) for places in sources.values()]
    if len(masks) == 1 and masks[0].all():
        return names[0]
    return t.add(Add(tuple(masks), offset if offset.any() else scalar(0.0)), *names).name


SPREADS: dict[str, SpreadRule] = {
    "Concat": concat,
    "ConstantOfShape": constant_of_shape,
    "Expand": expand,
    "Tile": tile,
}
"""The supported operators of these, and the rule of each."""
