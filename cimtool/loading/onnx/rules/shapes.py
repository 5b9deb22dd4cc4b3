"""Rules of operators that only move numbers, or that repeat constants for each item.

Each makes another view of a value; numbers move if the next operation needs them in rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.ir.arithmetic import Add, scalar
from cimtool.loading.layout import arranged
from cimtool.loading.onnx.builder import Rows
from cimtool.loading.onnx.constants import Counted, range_of
from cimtool.loading.onnx.translation import OPEN_ITEMS, Translated, Translation, rule


@rule("Flatten")
def flatten(t: Translation) -> Translated:
    """The axes before `axis` joined to one, and the axes from it on joined to another."""
    view = t.view()
    axis = t.place(t.node.attributes.get("axis", 1))
    found = t.reshaped(view, [math.prod(view.sizes(t.graph.items)[:axis]), -1])
    if axis <= view.items or found is None:
        t.fail(f"makes rows of numbers that {view.text} has for an item; expected axis 1")
    return found


@rule("Reshape")
def reshape(t: Translation) -> Translated:
    """The same numbers in axes of other sizes."""
    view = t.view()
    own, shape = view.sizes(t.graph.items), t.sizes(1)
    if not t.node.attributes.get("allowzero", 0):
        shape = [own[i] if size == 0 and i < len(own) else size for i, size in enumerate(shape)]
    found = t.reshaped(view, shape)
    if found is None:
        said = [-1 if size == t.graph.items else size for size in shape]
        if t.graph.rows is None and shape and shape[0] > 0 and shape[0] % t.graph.items:
            t.fail(f"to {said} fixes the items of {view.text}; expected axes of these{OPEN_ITEMS}")
        t.fail(f"to {said} changes the rows; expected [-1, {view.size}] or axes of these")
    return found


@rule("Unsqueeze")
def unsqueeze(t: Translation) -> Translated:
    """New axes of extent 1."""
    view, axes = t.view(), t.axes()
    t.require_axes(rank := view.rank + len(axes))
    places = {axis % rank for axis in axes if -rank <= axis < rank}
    if len(places) < len(axes):
        t.fail(f"its axes are {axes} of {rank}; expected each once")
    for place in sorted(places):
        view = view.expanded(place)
    return view


@rule("Squeeze")
def squeeze(t: Translation) -> Translated:
    """The value without axes of extent 1."""
    view, axes = t.view(), t.axes()
    ones = [i for i, size in enumerate(view.extents) if i != view.items and size == 1]
    places = {t.place(axis, view) for axis in axes} or set(ones)
    if not places.issubset(ones):
        t.fail(f"takes out axes {sorted(places)} of {view.text}; expected extents of 1")
    for place in sorted(places, reverse=True):
        view = view.squeezed(place)
    return view


@rule("Transpose")
def transpose(t: Translation) -> Translated:
    """Axes in another order."""
    view = t.view()
    backwards = range(view.rank - 1, -1, -1)
    order = [int(axis) for axis in t.node.attributes.get("perm", backwards)]
    if sorted(order) != sorted(backwards):
        t.fail(f"perm is {order} of {view.text}; expected each of its axes once")
    return view.reordered(order)


@rule("Shape")
def shape(t: Translation) -> Translated:
    """The extents of a value."""
    start, end = t.node.attributes.get("start", 0), t.node.attributes.get("end")
    both = (t.view().sizes(count)[start:end] for count in t.graph.counts)
    return Counted.of(*(np.array(sizes, np.int64) for sizes in both))


@rule("Split")
def split(t: Translation) -> tuple[Translated, ...]:
    """Consecutive groups of numbers along an axis."""
    view, count = t.view(), len(t.node.outputs)
    axis = _axis_of_numbers(t, int(t.node.attributes.get("axis", 0)))
    width = view.extents[axis]
    sizes = t.integers(1) if t.input(1) else [*t.node.attributes.get("split", ())]
    if not sizes:
        share = -(-width // count)
        sizes = [share] * (count - 1) + [width - share * (count - 1)]
    ends = np.cumsum(np.array(sizes, np.int64))
    if len(sizes) != count or ends[-1] != width or min(sizes) < 1:
        t.fail(f"{width} numbers into {sizes}; expected a sum of {width}")
    starts = ends - np.array(sizes, np.int64)
    return tuple(view.taken(axis, np.arange(*one)) for one in zip(starts, ends, strict=True))


@rule("Slice")
def sliced(t: Translation) -> Translated:
    """Ranges of numbers along axes."""
    view, attributes = t.view(), t.node.attributes
    starts, ends, axes, steps = (
        t.integers(i) if t.input(i) else [*attributes.get(name, ())]
        for i, name in enumerate(("starts", "ends", "axes", "steps"), start=1)
    )
    axes = axes or [*range(len(starts))]
    if not len(starts) == len(ends) == len(axes) == len(steps or starts):
        t.fail("has other numbers of starts, ends, axes and steps; expected equal ones")
    for i, axis in enumerate(axes):
        step, place = steps[i] if steps else 1, t.place(axis)
        every = starts[i] == 0 and ends[i] >= np.iinfo(np.int32).max and step == 1
        if place == view.items and every:
            continue
        place = _axis_of_numbers(t, axis)
        if step == 0:
            t.fail("its step is 0; expected another whole number")
        size = view.extents[place]
        kept = np.arange(size)[range_of(starts[i], ends[i], step, size)]
        if not len(kept):
            t.fail("leaves no channel")
        view = view.taken(place, kept)
    return view


@rule("Gather")
def gather(t: Translation) -> Translated:
    """The numbers at given places along an axis; a single place drops the axis."""
    view = t.view()
    axis = _axis_of_numbers(t, int(t.node.attributes.get("axis", 0)))
    given, width = t.weights(1), view.extents[axis]
    places = np.array(t.integers(1), np.int64)
    if given.ndim > 1:
        t.fail(f"takes places of shape {list(given.shape)}; expected one, or a list of them")
    if not len(places) or places.min() < -width or places.max() >= width:
        t.fail(f"takes channels beyond the {width} that there are")
    t.require_numbers(view.size // width * len(places))
    found = view.taken(axis, places % width)
    return found if given.ndim else found.squeezed(axis)


def _axis_of_numbers(t: Translation, axis: int) -> int:
    """The place of an axis; CimError if it is the axis of the items."""
    view, place = t.view(), t.place(axis)
    if place == view.items:
        t.fail(f"is along axis {axis} of {view.text}; expected the channels")
    return place


@rule("Expand")
def expand(t: Translation) -> Translated:
    """A value with axes of extent 1 repeated, or a constant repeated for each item."""
    sizes = t.sizes(1)
    if t.is_rows(0):
        return _widened(t, t.view(), sizes)
    return _repeated(t, t.mask_numbers(0), sizes)


def _widened(t: Translation, view: Rows, sizes: Sequence[int]) -> Rows:
    """A value with axes of extent 1 repeated."""
    t.require_axes(len(sizes))
    while len(sizes) > view.rank:
        view = view.expanded(0)
    own = view.sizes(t.graph.items)
    wanted = [*own[: len(own) - len(sizes)], *sizes]
    if any(new not in (1, old) and old != 1 for new, old in zip(wanted, own, strict=True)):
        t.fail(f"spreads {view.text} to {_said(t, sizes)}; expected extents of 1 alone to grow")
    if wanted[view.items] not in (1, own[view.items]):
        t.fail(f"spreads the items of {view.text} to {_said(t, sizes)}")
    grown = [max(new, old) if old == 1 else 1 for new, old in zip(wanted, own, strict=True)]
    grown[view.items] = 1
    wide = view.widened(grown)
    t.require_numbers(wide.size)
    return wide


def _said(t: Translation, sizes: Sequence[int]) -> str:
    """Extents in words, with n for the items: `[n, 8]`, `[16n]`."""
    items, axis = t.graph.items, t.items_axis(sizes)
    said = [str(size) for size in sizes]
    if axis is not None and sizes[axis] % items == 0:
        count = sizes[axis] // items
        said[axis] = f"{count if count > 1 else ''}n"
    return f"[{', '.join(said)}]"


def _repeated(t: Translation, array: FloatArray, sizes: Sequence[int]) -> Rows:
    """A constant broadcast to these extents, which include the items."""
    rank = max(array.ndim, len(sizes))
    own = [*[1] * (rank - array.ndim), *array.shape]
    wanted = [max(pair) for pair in zip(own, [*[1] * (rank - len(sizes)), *sizes], strict=True)]
    axis = t.items_axis(wanted)
    if axis is None:
        t.fail(f"spreads a constant to {_said(t, sizes)}; expected the items among these")
    extents = [*wanted[:axis], wanted[axis] // t.graph.items, *wanted[axis + 1 :]]
    array = array.reshape(own)
    if own[axis] != 1 or any(a not in (1, b) for a, b in zip(own, extents, strict=True)):
        t.fail(f"spreads a constant of shape {own} to {_said(t, sizes)}; expected 1 for the items")
    t.require_numbers(math.prod(extents))
    return t.builder.repeated(t.called("constant"), np.broadcast_to(array, extents), axis)


@rule("ConstantOfShape")
def constant_of_shape(t: Translation) -> Translated:
    """One number everywhere, for each item."""
    from onnx import numpy_helper

    given = t.node.attributes.get("value")
    value = 0.0 if given is None else float(numpy_helper.to_array(given).item())
    sizes = t.sizes(0)
    return _repeated(t, np.full([1] * len(sizes), value), sizes)


@rule("Tile")
def tile(t: Translation) -> Translated:
    """A value repeated along axes, or a constant repeated for each item."""
    repeats = t.sizes(1)
    rank = t.view().rank if t.is_rows(0) else t.weights(0).ndim
    if len(repeats) != rank or min(repeats, default=1) < 1:
        t.fail(f"repeats {repeats} times; expected a number of at least 1 for each of {rank} axes")
    if t.is_rows(0):
        view = t.view()
        if repeats[view.items] != 1:
            t.fail(f"repeats the items of {view.text}; expected another axis")
        t.require_numbers(view.size * math.prod(repeats))
        return replace(view, places=np.tile(view.places, repeats))
    array = t.mask_numbers(0)
    once = t.items_axis(repeats)
    if once is None:
        t.fail(f"repeats a constant {repeats} times; expected the items among these")
    within = [n // t.graph.items if i == once else n for i, n in enumerate(repeats)]
    t.require_numbers(math.prod([array.size, *within]))
    return t.builder.repeated(t.called("constant"), np.tile(array, within), once)


@rule("Concat")
def concat(t: Translation) -> Translated:
    """Values and constants, one after another along an axis.

    Each value is moved to its places, with zeros elsewhere; the sum of all, plus the constants, is
    the result.
    """
    parts: list[Rows | FloatArray]
    parts = [t.view(i) if t.is_rows(i) else t.weights(i) for i in range(len(t.node.inputs))]
    first = next((part for part in parts if isinstance(part, Rows)), None)
    if first is None:
        t.fail("joins constants alone; expected a value among them")
    axis, rank = int(t.node.attributes["axis"]), first.rank
    if not -rank <= axis < rank or axis % rank == first.items:
        t.fail(f"joins {first.text} along axis {axis}; expected one of each item's numbers")
    axis %= rank
    parts = [p if isinstance(p, Rows) else t.of_items(p, first) for p in parts]
    shapes = [part.extents if isinstance(part, Rows) else part.shape for part in parts]
    rest = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    places = {(part.items, part.before) for part in parts if isinstance(part, Rows)}
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
            taken[where] = part.places
        else:
            offset[where] = numbers
    if not sources:
        return t.builder.same(t.called("constant"), offset, first)
    name = _joined(t, sources, offset.reshape(-1))
    return Rows.in_order(name, extents, first.items, first.before)


def _joined(t: Translation, sources: dict[str, IntArray], offset: FloatArray) -> str:
    """The value [n, numbers] with each source's numbers at their places, constants elsewhere."""
    names = [
        arranged(t.builder, name, np.maximum(places, 0).reshape(1, -1))
        for name, places in sources.items()
    ]
    masks = [(places >= 0).reshape(-1).astype(np.float64) for places in sources.values()]
    if len(masks) == 1 and masks[0].all():
        return names[0]
    return t.add(Add(tuple(masks), offset if offset.any() else scalar(0.0)), *names).name
