"""Rules of operators over whole rows: norms, softmax, sorting, sums and maxima."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.ir.arithmetic import Axis, Sum, plus
from cimtool.ir.program import largest
from cimtool.ir.source import (
    NO_WEIGHT,
    Abs,
    Gate,
    L2Normalize,
    LayerNorm,
    RmsNorm,
    Softmax,
    Sorted,
    Sqrt,
    counted_places,
)
from cimtool.loading.layout import arranged
from cimtool.loading.onnx.builder import LARGEST_NUMBER, Rows
from cimtool.loading.onnx.constants import FREE_SOFTMAX
from cimtool.loading.onnx.translation import Translated, Translation, rule

UNPADDED = (b"NOTSET", b"VALID")
"""Values of `auto_pad` with which a pool adds no places."""


@rule("LayerNormalization")
def layer_normalization(t: Translation) -> Translated:
    """Rows scaled to mean 0 and variance 1, then a gain and an offset per channel."""
    view = t.view()
    first = t.place(int(t.node.attributes.get("axis", -1)), view)
    if view.items >= first:
        t.fail(f"axis is {first} of {view.text}; expected the last one, or one behind the items")
    x = t.in_rows(view, view.rank - first).name
    width, eps = t.width(x), t.number("epsilon", 1e-5, least=0.0)
    given = t.weights(1), t.weights(2) if t.input(2) else np.zeros(1)
    whole = (a.reshape(-1) if a.shape == view.extents[first:] else a for a in given)
    gamma, beta = (t.channels(array, width) for array in whole)
    return t.add(LayerNorm(gamma, beta, eps), x)


@rule("RMSNormalization")
def rms_normalization(t: Translation) -> Translated:
    """Rows scaled to mean square 1, then a gain per channel."""
    x = t.in_rows(t.view()).name
    t.require_last_axis()
    gamma = t.channels(t.weights(1), t.width(x))
    return t.add(RmsNorm(gamma, t.number("epsilon", 1e-5, least=0.0)), x)


@rule("InstanceNormalization")
def instance_normalization(t: Translation) -> Translated:
    """A layer norm of each channel's numbers, with a gain and an offset per channel."""
    return _normalised(t, t.view(), t.weights(1), t.weights(2))


@rule("GroupNormalization")
def group_normalization(t: Translation) -> Translated:
    """A layer norm of each group of channels, then a gain and an offset per channel or group."""
    view, groups = t.view(), int(t.node.attributes["num_groups"])
    channels = view.extents[1] if view.rank > 1 else 0
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
    """A view with the axes that it had before."""
    found = t.reshaped(view, sizes)
    assert found is not None
    return found


def _normalised(t: Translation, view: Rows, gamma: FloatArray, beta: FloatArray) -> Rows:
    """Layer norms over all axes after the second, with constants along the second."""
    behind = view.rank - 2
    if behind < 1 or view.items != 0:
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


@rule("LpNormalization")
def lp_normalization(t: Translation) -> Translated:
    """Rows divided by their Euclidean norm."""
    if (p := t.node.attributes.get("p", 2)) != 2:
        t.fail(f"p is {p}; expected 2")
    t.require_last_axis()
    return t.add(L2Normalize(), t.in_rows(t.view()).name)


@rule("Softmax")
def softmax(t: Translation) -> Translated:
    """`exp(x)` divided by its sum along an axis.

    Before operator set 13, the sum is over all axes from `axis` on; only the last axis is
    supported.
    """
    view, older = t.view(), t.graph.opset < FREE_SOFTMAX
    axis = t.place(int(t.node.attributes.get("axis", 1 if older else -1)), view)
    if older and axis != view.rank - 1:
        t.fail(f"is along all axes from {axis} on of {view.text}; expected the last one")
    view, mask = _parted(t, view, axis)
    if view.extents[axis] == 1 and axis != view.items:
        return t.builder.same(t.called("one"), np.ones(view.extents), view)
    order = view.last(axis)
    rows = t.in_rows(view.reordered(order))
    op = Softmax()
    if mask is not None:
        held = np.empty(rows.size)
        held[rows.places.reshape(-1)] = mask.transpose(order).reshape(-1)
        table = held.reshape(-1, t.width(rows.name))
        op = Softmax(table[:1] if (table == table[0]).all() else table)
    return t.add(op, rows.name).back(order)


def _parted(t: Translation, view: Rows, axis: int) -> tuple[Rows, FloatArray | None]:
    """The numbers that a softmax along an axis reads, and their mask: 0 for numbers that count.

    Added constants that do not mask become part of the numbers. The mask is None without masks.
    """
    if view.name not in t.builder.masks:
        return view, None
    added = t.builder.masks[view.name].reshape(-1)[view.places]
    low = added <= NO_WEIGHT
    if low.all(axis=axis).any():
        t.fail(
            "has a row in which a mask leaves no number, which has no softmax; expected one that "
            "counts in each"
        )
    bias, view = np.where(low, 0.0, added), replace(view, name=t.builder.unmasked[view.name])
    if bias.any():
        view = t.affine(view, np.ones(()), bias)
    return view, np.where(low, np.where(added <= -LARGEST_NUMBER, -np.inf, added), 0.0)


@rule("TopK")
def top(t: Translation) -> Translated:
    """The largest, or the smallest, numbers along an axis, sorted."""
    places = t.node.outputs[1] if len(t.node.outputs) > 1 else ""
    if places and any(places in one.inputs for one in t.graph.nodes):
        t.fail(f"gives the places {places} of numbers, which others choose by; expected its values")
    view = t.view()
    order = view.last(t.place(int(t.node.attributes.get("axis", -1)), view))
    rows, counts = t.in_rows(view.reordered(order)), t.integers(1)
    count, width = counts[0] if len(counts) == 1 else 0, t.width(rows.name)
    if not 1 <= count <= width:
        t.fail(f"takes {counts} of {width} numbers; expected a number from 1 to {width}")
    if count > 1 and not t.node.attributes.get("sorted", 1):
        t.fail(
            f"takes {count} numbers in no order (sorted = 0); expected sorted = 1 "
            "(torch: topk(..., sorted=True))"
        )
    kept = np.arange(width)[:: 1 if t.node.attributes.get("largest", 1) else -1][:count]
    made = t.add(Sorted(), rows.name)
    numbers = np.arange(rows.size).reshape(-1, width)[:, kept]
    taken = replace(made.narrowed(count), name=arranged(t.builder, made.name, numbers))
    return taken.back(order)


@rule("ReduceL1", "ReduceL2", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare")
def reduction(t: Translation) -> Translated:
    """A sum, mean, norm or minimum along axes, for example over tokens."""
    return _reduced(t, t.node.kind, t.axes())


@rule("ReduceMax")
def reduce_max(t: Translation) -> Translated:
    """The maximum along axes, for example over tokens; masked numbers do not count."""
    axes = t.axes()
    if len(axes) == 1 and t.view().name in t.builder.masks:
        axis = t.place(axes[0])
        view, mask = _parted(t, t.view(), axis)
        assert mask is not None
        order = view.last(axis)
        rows = t.in_order(view.reordered(order))
        counted = mask.transpose(order).reshape(-1, t.width(rows.name)) == 0
        name = arranged(t.builder, rows.name, counted_places(counted))
        own = replace(rows, name=name).back(order)
        t = replace(t, values={**t.values, t.input(0): own})
    return _reduced(t, t.node.kind, axes)


@rule("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")
def pooled(t: Translation) -> Translated:
    """The mean, or the maximum, over all axes after the channels."""
    view, attributes = t.view(), t.node.attributes
    behind = range(2, view.rank)
    size, kernel = [view.extents[i] for i in behind], attributes.get("kernel_shape")
    if kernel is not None and (list(kernel) != size or any(attributes.get("pads", ()))):
        t.fail(
            f"is of windows {list(kernel)} of {view.text}, or pads these; expected one window over "
            "all places"
        )
    padding = attributes.get("auto_pad", UNPADDED[0])
    steps = list(attributes.get("strides", [1] * len(size)))
    several = len(steps) != len(size) or any(step < n for step, n in zip(steps, size, strict=True))
    if padding not in UNPADDED and several:
        t.fail(
            f"auto_pad is {padding.decode('utf-8', 'replace')} with steps of {steps}, which "
            "makes several windows; expected one window over all places (ReduceMean, ReduceMax)"
        )
    if not size or view.items != 0 or len(t.node.outputs) > 1:
        t.fail(f"is over {view.text}; expected items, channels and places")
    return _reduced(t, "ReduceMax" if "Max" in t.node.kind else "ReduceMean", behind)


def _reduced(t: Translation, kind: str, axes: Sequence[int]) -> Rows:
    """The reduction `kind` along axes, with the axes of the node's output."""
    view = t.view()
    places = sorted({t.place(axis) for axis in axes})
    if not places or view.items in places:
        which = f"axes {list(axes)}" if axes else "all axes"
        t.fail(f"reduces {which} of {view.text}; expected some of each item's numbers")
    kept = [axis for axis in range(view.rank) if axis not in places]
    last = view.reordered([*kept, *places])
    shape = (*last.extents[: len(kept)], -1)
    rows = t.in_rows(replace(last, places=last.places.reshape(shape)))
    x = rows.name
    match kind:
        case "ReduceL1":
            x = t.part("magnitudes", Abs(), x)
        case "ReduceL2" | "ReduceSumSquare":
            x = t.part("squares", Gate(), x, x)
        case "ReduceMin":
            x = t.part("negated", plus(-1), x)
    if kind in ("ReduceMax", "ReduceMin"):
        made = largest(t.builder, t.called("largest"), x)
        made = t.part("smallest", plus(-1), made) if kind == "ReduceMin" else made
    else:
        made = t.builder.add(f"{x}_total", Axis(1), t.builder.add(f"{x}_sum", Sum(), x))
    found = replace(rows.narrowed(1), name=made).squeezed(rows.rank - 1)
    for place in places if t.node.attributes.get("keepdims", 1) else ():
        found = found.expanded(place)
    t.views[made] = found
    if kind == "ReduceMean":
        return t.add(plus(1 / t.width(rows.name)), made)
    return t.add(Sqrt(), made) if kind == "ReduceL2" else found
