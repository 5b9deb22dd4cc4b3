"""Rules by which norms of rows become operations, however an exporter wrote them.

`ReduceMean`, `Sub`, `Pow`, `ReduceMean`, `Add`, `Sqrt`, `Div` are a layer norm: what is computed of
a whole row is followed as a `Norms` until a value is divided by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.ir.arithmetic import Add, Axis, Clip, Sum, plus, scalar
from cimtool.ir.largest import largest
from cimtool.ir.source import (
    Abs,
    Gate,
    L2Normalize,
    LayerNorm,
    Power,
    RmsNorm,
    Softmax,
    Sorted,
    Sqrt,
)
from cimtool.loading.onnx.constants import FREE_SOFTMAX
from cimtool.loading.onnx.masks import of_rows, parted
from cimtool.loading.onnx.translation import (
    CentredRows,
    Masked,
    Norms,
    RowMeans,
    Squares,
    Translated,
    Translation,
    as_rows,
)
from cimtool.loading.onnx.views import Rows

LARGEST_EPSILON = 1e-6
"""A lower limit of row norms up to here only guards against a division by zero."""

UNPADDED = (b"NOTSET", b"VALID")
"""Values of `auto_pad` with which a pool adds no places."""

NormRule = Callable[[Translation], Translated]


def layer_normalization(t: Translation) -> Translated:
    """Rows to mean 0 and variance 1, then a gain and an offset a channel."""
    view = t.view()
    first = t.place(int(t.node.attributes.get("axis", -1)), view)
    if view.items_axis >= first:
        t.fail(f"axis is {first} of {view.text}; expected the last one, or one behind the items")
    x = t.in_rows(view, len(view.axes) - first).name
    width, eps = t.width(x), t.number("epsilon", 1e-5, least=0.0)
    given = t.weights(1), t.weights(2) if t.input(2) else np.zeros(1)
    whole = (a.reshape(-1) if a.shape == view.extents[first:] else a for a in given)
    gamma, beta = (t.channels(array, width) for array in whole)
    return t.add(LayerNorm(gamma, beta, eps), x)


def rms_normalization(t: Translation) -> Translated:
    """Rows to mean square 1, then a gain a channel."""
    x = t.flat_rows().name
    t.require_last_axis()
    gamma = t.channels(t.weights(1), t.width(x))
    return t.add(RmsNorm(gamma, t.number("epsilon", 1e-5, least=0.0)), x)


def instance_normalization(t: Translation) -> Translated:
    """A layer norm of each channel's numbers, with a gain and an offset a channel."""
    return _normalised(t, t.view(), t.weights(1), t.weights(2))


def group_normalization(t: Translation) -> Translated:
    """A layer norm of each group of channels, then a gain and an offset a channel, or a group."""
    view, groups = t.view(), int(t.node.attributes["num_groups"])
    channels = view.extents[1] if len(view.axes) > 1 else 0
    if groups < 1 or channels % groups:
        t.fail(f"has {groups} groups of {channels} channels; expected groups of equal size")
    gamma, beta = t.weights(1).reshape(-1), t.weights(2).reshape(-1)
    sizes = view.sizes(t.graph.items)
    parted = t.reshaped(view, [sizes[0], groups, channels // groups, *sizes[2:]])
    if parted is None:
        t.fail(f"has groups of the channels of {view.text}; expected items first")
    if gamma.size == groups:
        return _merged(t, _normalised(t, parted, gamma, beta), sizes)
    unit = _merged(t, _normalised(t, parted, np.ones(1), np.zeros(1)), sizes)
    return t.affine(unit, *(array.reshape(-1, *[1] * (len(sizes) - 2)) for array in (gamma, beta)))


def _merged(t: Translation, view: Rows, sizes: list[int]) -> Rows:
    """A view in axes that it had before."""
    found = t.reshaped(view, sizes)
    assert found is not None
    return found


def _normalised(t: Translation, view: Rows, gamma: FloatArray, beta: FloatArray) -> Rows:
    """Layer norms over all axes of a view behind the second, with constants along that one."""
    behind = len(view.axes) - 2
    if behind < 1 or view.items_axis != 0:
        t.fail(f"is over {view.text}; expected channels of several numbers, behind the items")
    if gamma.shape != beta.shape or gamma.shape not in ((1,), view.extents[1:2]):
        shapes = f"{list(gamma.shape)} and {list(beta.shape)}"
        t.fail(f"its constants have shapes {shapes}; expected [{view.extents[1]}]")
    rows = t.in_rows(view, behind)
    width, eps = t.width(rows.name), t.number("epsilon", 1e-5, least=0.0)
    same = np.ptp(gamma) == np.ptp(beta) == 0
    gain, offset = (gamma[0], beta[0]) if same else (1.0, 0.0)
    op = LayerNorm(np.full(width, gain), np.full(width, offset), eps)
    unit = t.add(op, rows.name)
    if same:
        return unit
    return t.affine(unit, *(array.reshape(-1, *[1] * behind) for array in (gamma, beta)))


def lp_normalization(t: Translation) -> Translated:
    """Rows divided by their Euclidean norm."""
    t.require("p", (2,), "2")
    t.require_last_axis()
    return t.add(L2Normalize(), t.flat_rows().name)


def softmax(t: Translation) -> Translated:
    """`exp(x)` over its sum along an axis.

    Before operator set 13 along all axes from one on, of which only the last is read.
    """
    value, older = t.value(0), t.graph.opset < FREE_SOFTMAX
    view = value.of if isinstance(value, Masked) else t.view()
    axis = t.place(int(t.node.attributes.get("axis", 1 if older else -1)), view)
    last, mask = len(view.axes) - 1, None
    if older and axis != last:
        t.fail(f"is along all axes from {axis} on of {view.text}; expected the last one")
    if isinstance(value, Masked):
        view, mask = parted(t, value, axis)
    if view.extents[axis] == 1 and axis != view.items_axis:
        return t.builder.same(t.called("one"), np.ones(view.extents), view.axes)
    order = [i for i in range(last + 1) if i != axis] + [axis]
    rows = t.in_rows(view.reordered(order))
    op = Softmax() if mask is None else Softmax(of_rows(t, rows, mask.transpose(order)))
    return t.add(op, rows.name).reordered([order.index(i) for i in range(last + 1)])


def top(t: Translation) -> Translated:
    """The largest numbers along an axis, or the smallest, in their order."""
    places = t.node.outputs[1] if len(t.node.outputs) > 1 else ""
    if places and any(places in one.inputs for one in t.graph.nodes):
        t.fail(f"gives the places {places} of numbers, by which others choose; expected its values")
    view = t.view()
    axis, last = t.place(int(t.node.attributes.get("axis", -1)), view), len(view.axes) - 1
    order = [i for i in range(last + 1) if i != axis] + [axis]
    rows, counts = t.in_rows(view.reordered(order)), t.weights(1)
    count, width = int(counts.flat[0]) if counts.size == 1 else 0, t.width(rows.name)
    if not 1 <= count <= width:
        t.fail(f"takes {counts.tolist()} of {width} numbers; expected a number from 1 to {width}")
    if count > 1 and not t.node.attributes.get("sorted", 1):
        t.fail(
            f"takes {count} numbers in no order (sorted = 0); expected sorted = 1 "
            "(torch: topk(..., sorted=True))"
        )
    kept = np.arange(width)[:: 1 if t.node.attributes.get("largest", 1) else -1][:count]
    made = t.columns_taken(t.add(Sorted(), rows.name), kept)
    return made.reordered([order.index(i) for i in range(last + 1)])


def _norms(t: Translation, view: Rows, centred: bool = False) -> Norms:
    """The sums of squares along the one axis of a view that the node reduces."""
    axes = t.axes()
    if len(axes) != 1 or t.place(axes[0], view) == view.items_axis:
        which = f"axes {axes}" if axes else "all axes"
        t.fail(f"takes norms over {which} of {view.text}; expected one axis of each item's numbers")
    axis = t.place(axes[0], view)
    rows = t.in_rows(_last(view, axis))
    places = list(t.narrowed(rows, 1).axes[:-1])
    if t.node.attributes.get("keepdims", 1):
        places.insert(axis, ())
    return Norms(rows, replace(rows, axes=tuple(places)), axis, centred)


def _last(view: Rows, axis: int) -> Rows:
    """The view with an axis behind all others."""
    return view.reordered([i for i in range(len(view.axes)) if i != axis] + [axis])


def _squared_norms(t: Translation) -> Norms | None:
    """The sums of squares along the last axis of what the node reduces; None for other values."""
    value = t.value(0)
    if isinstance(value, Squares):
        return _norms(t, value.of, centred=True)
    view = t.view()
    node = t.builder.by_name.get(view.name)
    squares = node is not None and isinstance(node.op, Gate) and node.inputs[0] == node.inputs[1]
    if node is None or not squares or [t.place(a) for a in t.axes()] != [len(view.axes) - 1]:
        return None
    return _norms(t, replace(view, name=node.inputs[0]))


def _reduced_rows(t: Translation, axes: Sequence[int] | None = None) -> Rows:
    """Rows of the program along the axes that the node reduces, which come last, as one."""
    view, given = t.view(), t.axes() if axes is None else axes
    places = {t.place(axis) for axis in given}
    if not places or view.items_axis in places:
        which = f"axes {list(given)}" if given else "all axes"
        t.fail(f"reduces {which} of {view.text}; expected some of each item's numbers")
    last = tuple(atom for place in sorted(places) for atom in view.axes[place])
    kept = [axis for place, axis in enumerate(view.axes) if place not in places]
    return t.in_rows(replace(view, axes=(*kept, last)))


def _reduced_view(t: Translation, rows: Rows, name: str, axes: Sequence[int] | None = None) -> Rows:
    """A value with one number for each of the rows, in the axes of what the node reduces."""
    places = sorted({t.place(axis) for axis in (t.axes() if axes is None else axes)})
    view = replace(t.narrowed(rows, 1), name=name)
    left = list(view.axes[:-1])
    if t.node.attributes.get("keepdims", 1):
        for place in places:
            left.insert(place, ())
    t.views[name] = replace(view, axes=tuple(left))
    return t.views[name]


def _sums(t: Translation, axes: Sequence[int] | None = None) -> tuple[Rows, Rows]:
    """Rows along the axes that the node reduces, the program's, and the sums, a view of a value."""
    rows = _reduced_rows(t, axes)
    return rows, _reduced_view(t, rows, _total(t, rows.name), axes)


def _total(t: Translation, name: str) -> str:
    """The sum [n, 1] of each row of a value of the program."""
    return t.builder.add(f"{name}_total", Axis(1), t.builder.add(f"{name}_sum", Sum(), name))


def reduce_max(t: Translation) -> Translated:
    """The largest number along axes, as of tokens."""
    rows = _reduced_rows(t)
    return _reduced_view(t, rows, largest(t.builder, t.called("largest"), rows.name))


def reduce_min(t: Translation) -> Translated:
    """The smallest number along axes: the negated largest of all negated."""
    rows = _reduced_rows(t)
    negated = t.part("negated", plus(-1), rows.name)
    found = largest(t.builder, t.called("largest"), negated)
    return _reduced_view(t, rows, t.part("smallest", plus(-1), found))


def reduce_l1(t: Translation) -> Translated:
    """Sums of magnitudes along axes."""
    rows = _reduced_rows(t)
    return _reduced_view(t, rows, _total(t, t.part("magnitudes", Abs(), rows.name)))


def pooled(t: Translation, largest_of_all: bool) -> Translated:
    """The mean, or the largest, over all axes behind the channels."""
    view, behind = t.view(), range(2, len(t.view().axes))
    size, kernel = [view.extents[i] for i in behind], t.node.attributes.get("kernel_shape")
    if kernel is not None and (list(kernel) != size or any(t.node.attributes.get("pads", ()))):
        t.fail(
            f"is of windows {list(kernel)} of {view.text}, or pads these; expected one window over "
            "all places"
        )
    _require_unpadded(t, size)
    if not size or view.items_axis != 0 or len(t.node.outputs) > 1:
        t.fail(f"is over {view.text}; expected items, channels and places")
    if largest_of_all:
        rows = _reduced_rows(t, behind)
        name = largest(t.builder, t.called("largest"), rows.name)
        return _reduced_view(t, rows, name, behind)
    rows, sums = _sums(t, behind)
    return t.add(plus(1 / t.width(rows.name)), sums.name)


def _require_unpadded(t: Translation, size: Sequence[int]) -> None:
    """Raise CimError for a pool whose `auto_pad` makes more windows than one over all places."""
    padding = t.node.attributes.get("auto_pad", UNPADDED[0])
    steps = t.node.attributes.get("strides", [1] * len(size))
    several = len(steps) != len(size) or any(step < n for step, n in zip(steps, size, strict=True))
    if padding not in UNPADDED and several:
        t.fail(
            f"auto_pad is {padding.decode('utf-8', 'replace')} with steps of {list(steps)}, which "
            "makes several windows; expected one window over all places (ReduceMean, ReduceMax)"
        )


def reduce_mean(t: Translation) -> Translated:
    """The mean of rows, of their squares, or along another axis, as of tokens."""
    norms = _squared_norms(t)
    if norms is not None:
        return replace(norms, factor=1 / t.width(norms.of.name))
    rows, sums = _sums(t)
    means = t.add(plus(1 / t.width(rows.name)), sums.name)
    behind = [t.place(axis) for axis in t.axes()] == [len(t.view().axes) - 1]
    return RowMeans(rows, means) if behind else means


def reduce_sum(t: Translation) -> Translated:
    """The sum of squares of rows, or sums along an axis."""
    norms = _squared_norms(t)
    return _sums(t)[1] if norms is None else norms


def reduce_sum_square(t: Translation) -> Norms:
    """The sum of squares of rows, of rows themselves, along any axis."""
    value = t.value(0)
    return _norms(t, value.of, True) if isinstance(value, CentredRows) else _norms(t, t.view())


def reduce_l2(t: Translation) -> Translated:
    """Norms of rows along any axis."""
    return replace(reduce_sum_square(t), power=0.5)


def square_root(t: Translation) -> Translated:
    """The norm from a sum of squares; the root of other values."""
    value = t.value(0)
    if not isinstance(value, Norms):
        return t.add(Sqrt(), t.rows())
    return raised(t, value, 0.5)


def limited(t: Translation, norms: Norms, lo: float, hi: float) -> Norms:
    """Norms, or sums of squares, from a lower limit on, which may only guard against zero."""
    if lo <= _guard(t, norms) and hi == np.inf:
        return norms
    if norms.power < 0 or norms.centred or norms.added or not (lo < np.inf and hi == np.inf):
        t.fail(
            f"limits row norms to [{lo:g}, {hi:g}]; expected a lower limit of norms, of at most "
            f"{LARGEST_EPSILON:g} where rows are centred or an epsilon is added"
        )
    return replace(norms, least=max(norms.least, lo ** (1 / norms.power)))


def _guard(t: Translation, norms: Norms) -> float:
    """The lower limit of norms, or of their squares, that only guards against zero.

    It is LARGEST_EPSILON of a row's norm or of its root mean square, whichever is larger.
    """
    if norms.power < 0:
        return 0.0
    share = max(norms.factor, min(norms.factor * t.width(norms.of.name), 1.0))
    return float((LARGEST_EPSILON**2 * share) ** norms.power)


def raised(t: Translation, norms: Norms, exponent: float) -> Norms:
    """Norms to a power."""
    if norms.power * exponent not in (0.5, -0.5):
        t.fail(f"the exponent of a norm is {exponent:g}; expected a root or its reciprocal")
    return replace(norms, power=norms.power * exponent)


def shifted(t: Translation, norms: Norms, offset: float) -> Norms:
    """Norms plus an epsilon."""
    if norms.power == 1.0 and offset >= 0 and not norms.least:
        return replace(norms, added=norms.added + offset)
    if abs(offset) > _guard(t, norms):
        t.fail(
            f"adds {offset:g} to row norms; expected it in their squares, or an epsilon of at most "
            f"{LARGEST_EPSILON:g}"
        )
    return norms


def scaled(norms: Norms, factor: float) -> Norms:
    """Norms times a number above 0."""
    squared = factor ** (1 / norms.power)
    scaled = {name: getattr(norms, name) * squared for name in ("factor", "added", "least")}
    return replace(norms, **scaled)


def is_number(norms: Norms, constant: FloatArray) -> bool:
    """True for a constant of one number, which gives norms no axis that they have not."""
    return constant.size == 1 and constant.ndim <= len(norms.at.axes)


def divided(t: Translation, value: Translated, norms: Norms) -> Rows:
    """A value over its own norms, given as they are or as reciprocals."""
    view, rank = as_rows(value), len(norms.of.axes)
    if not isinstance(view, Rows) or len(view.axes) != rank:
        t.fail("divides by the row norms of another value; expected its own")
    order = [i for i in range(rank) if i != norms.axis] + [norms.axis]
    last = view.reordered(order)
    multiple = _multiple(t, last, norms)
    own = (value.of, True) if isinstance(value, CentredRows) else (last, False)
    if multiple is None and (t.in_rows(own[0]), own[1]) != (norms.of, norms.centred):
        t.fail("divides by the row norms of another value; expected its own")
    if abs(norms.power) != 0.5:
        t.fail("divides by sums of squares; expected their root")
    if not t.beside(norms.at, norms.of, norms.axis):
        places = norms.at.text
        t.fail(f"divides {view.text} by row norms {places}; expected each norm beside its own row")
    unit = _unit(t, norms)
    made = unit if multiple is None else t.add(multiple, unit.name)
    return made.reordered([order.index(i) for i in range(rank)])


def _unit(t: Translation, norms: Norms) -> Rows:
    """The rows that norms are of, divided by these."""
    x = t.in_rows(norms.of).name
    width = t.width(x)
    gain = (norms.factor * width) ** -0.5
    eps = norms.added / norms.factor / width
    if norms.centred:
        return t.add(LayerNorm(np.full(width, gain), np.zeros(width), eps), x)
    if eps * width > LARGEST_EPSILON**2:
        return t.add(RmsNorm(np.full(width, gain), eps), x)
    unit = L2Normalize(float((norms.least / norms.factor) ** 0.5))
    if norms.factor == 1.0:
        return t.add(unit, x)
    return t.add(plus(norms.factor**-0.5), t.part("unit", unit, x))


def _multiple(t: Translation, value: Rows, norms: Norms) -> Add | None:
    """The product by constants that makes a value of what norms are of; None of other values."""
    node = t.builder.by_name.get(value.name)
    if node is None or not isinstance(node.op, Add) or len(node.inputs) > 1 or node.op.offset.any():
        return None
    bases = [norms.of]
    if norms.centred:
        known = (one for one in t.values.values() if isinstance(one, CentredRows))
        bases = [one.centred for one in known if one.of == norms.of]
    fits = any(node.inputs == (one.name,) and one == replace(value, name=one.name) for one in bases)
    return node.op if fits else None


NORM_READERS = frozenset(
    [
        "Add",
        "Cast",
        "Clip",
        "Div",
        "Dropout",
        "Expand",
        "Identity",
        "Max",
        "Min",
        "Mul",
        "Pow",
        "Reciprocal",
        "Reshape",
        "Shape",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Unsqueeze",
    ]
)
"""The operators whose rules take norms as divisors to be; others read their numbers."""


def past_norms(t: Translation) -> Translation:
    """A node that reads numbers in the place of row norms, unless its rule takes norms."""
    return t if not t.node.domain and t.node.kind in NORM_READERS else with_numbers_of_norms(t)


def with_numbers_of_norms(t: Translation) -> Translation:
    """A node that reads numbers in the place of row norms."""
    given = {name: t.values.get(name) for name in t.node.inputs}
    norms = {name: one for name, one in given.items() if isinstance(one, Norms)}
    if not norms:
        return t
    return replace(t, values={**t.values, **{k: _numbers(t, one) for k, one in norms.items()}})


def _numbers(t: Translation, norms: Norms) -> Rows:
    """Norms of rows, or sums of their squares, as numbers of their own."""
    known = (one for one in t.values.values() if isinstance(one, CentredRows))
    own = (one.centred for one in known if one.of == norms.of) if norms.centred else [norms.of]
    of = next(iter(own), None)
    if of is None:
        t.fail("reads norms of rows less their mean; expected the rows before")
    rows = t.in_rows(of)
    squares = t.part("squares", Gate(), rows.name, rows.name)
    name = _total(t, squares)
    name = t.builder.add(f"{squares}_scaled", plus(norms.factor, offset=norms.added), name)
    if norms.least:
        name = t.builder.add(f"{squares}_least", Clip(scalar(norms.least), scalar(np.inf)), name)
    if norms.power != 1.0:
        root = Sqrt() if norms.power == 0.5 else Power(norms.power)
        name = t.builder.add(f"{squares}_root", root, name)
    t.views[name] = replace(t.narrowed(rows, 1), name=name, axes=norms.at.axes)
    return t.views[name]


NORM_RULES: dict[str, NormRule] = {
    "AveragePool": partial(pooled, largest_of_all=False),
    "GlobalAveragePool": partial(pooled, largest_of_all=False),
    "GlobalMaxPool": partial(pooled, largest_of_all=True),
    "GroupNormalization": group_normalization,
    "InstanceNormalization": instance_normalization,
    "LayerNormalization": layer_normalization,
    "LpNormalization": lp_normalization,
    "RMSNormalization": rms_normalization,
    "MaxPool": partial(pooled, largest_of_all=True),
    "ReduceL1": reduce_l1,
    "ReduceL2": reduce_l2,
    "ReduceMax": reduce_max,
    "ReduceMean": reduce_mean,
    "ReduceMin": reduce_min,
    "ReduceSum": reduce_sum,
    "ReduceSumSquare": reduce_sum_square,
    "Softmax": softmax,
    "Sqrt": square_root,
    "TopK": top,
}
"""The supported operators of whole rows, and the rule of each."""
