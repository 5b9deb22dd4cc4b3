"""Rules of operators that move numbers and compute none; each is found by its name in `SHAPES`.

A program's values are rows [n, width]; a value of the file may have more axes, [n, *shape], which
is kept beside its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.ir.arithmetic import Add, Clip, Mvm
from cimtool.ir.op import Op
from cimtool.ir.quantized import QuantizedStore
from cimtool.ir.source import (
    Abs,
    BatchNorm,
    Elu,
    Erf,
    Exp,
    Gate,
    LeakyRelu,
    Log,
    Monotone,
    Reciprocal,
)
from cimtool.loading.onnx_translation import Norms, RowMeans, Rows, Translated, Translation

ShapeRule = Callable[[Translation], "Translated | tuple[Translated, ...]"]

BY_CHANNEL = (
    *(Abs, Add, BatchNorm, Clip, Elu, Erf, Exp, Gate, LeakyRelu, Log, Monotone, Reciprocal),
    QuantizedStore,
)
"""Operations each of whose channels depends on that channel of its inputs alone."""


def flatten(t: Translation) -> Translated:
    """Rows flat, as they are in the program."""
    t.require("axis", (1, -1), "1")
    return Rows(t.rows())


def reshape(t: Translation) -> Translated:
    """The same numbers of a row in other axes."""
    value = t.value(0)
    if isinstance(value, Norms | RowMeans):
        return value
    x = t.rows()
    width, own = t.width(x), (t.graph.rows or -1, *t.shape(0))
    shape = [int(size) for size in t.weights(1).reshape(-1)]
    if not t.node.attributes.get("allowzero", 0):
        shape = [own[i] if size == 0 and i < len(own) else size for i, size in enumerate(shape)]
    # -1 may stand for the rows and, beside them, for what is left of a row.
    rest = shape[1:]
    left = width // max(-math.prod(rest), 1)
    rest = [left if size == -1 else size for size in rest]
    if not rest or shape[0] not in (-1, own[0]) or min(rest) < 1 or math.prod(rest) != width:
        t.fail(f"to {shape} changes the rows; expected [-1, {width}] or axes of these")
    return Rows(x, tuple(rest))


def unsqueeze(t: Translation) -> Translated:
    """An axis of extent 1 more."""
    value, axes = t.value(0), t.axes()
    if isinstance(value, Norms):
        return replace(value, column=True)
    shape = list(t.shape(0))
    rank = len(shape) + 1 + len(axes)
    places = sorted(axis % rank for axis in axes)
    if 0 in places:
        t.fail("adds an axis before the rows; expected rows first")
    for place in places:
        shape.insert(place - 1, 1)
    return Rows(t.rows(), tuple(shape))


def squeeze(t: Translation) -> Translated:
    """An axis of extent 1 less."""
    shape, axes = t.shape(0), t.axes()
    rank = len(shape) + 1
    places = {axis % rank for axis in axes} or {i + 1 for i, size in enumerate(shape) if size == 1}
    if 0 in places or any(shape[place - 1] != 1 for place in places):
        extents = f"[n, {', '.join(map(str, shape))}]"
        t.fail(f"takes out axes {sorted(places)} of {extents}; expected extents of 1")
    return Rows(t.rows(), tuple(size for i, size in enumerate(shape) if i + 1 not in places))


def transpose(t: Translation) -> Translated:
    """Axes of a row in another order, where numbers stay in theirs."""
    shape = t.shape(0)
    perm = [int(axis) for axis in t.node.attributes.get("perm", range(len(shape), -1, -1))]
    moved = [axis - 1 for axis in perm[1:]]
    long = [axis for axis in moved if shape[axis] != 1]
    if perm[0] != 0 or long != sorted(long):
        t.fail("changes the order of numbers; is supported of constants, and of axes of extent 1")
    return Rows(t.rows(), tuple(shape[axis] for axis in moved))


def shape(t: Translation) -> Translated:
    """The extents of a value; -1 for the number of rows where the file takes any."""
    start, end = t.node.attributes.get("start", 0), t.node.attributes.get("end")
    known = (t.graph.rows or -1, *t.shape(0))
    return np.array(known[start:end], np.int64)


def split(t: Translation) -> tuple[Translated, ...]:
    """Channels of a row in groups."""
    x, axis = t.rows(), t.node.attributes.get("axis", 0)
    width, count = t.width(x), len(t.node.outputs)
    _require_last(t, int(axis))
    given = t.constant(1)
    sizes = t.node.attributes.get("split") if given is None else given.reshape(-1).tolist()
    if sizes is None:
        share = -(-width // count)
        sizes = [share] * (count - 1) + [width - share * (count - 1)]
    ends = np.cumsum(np.array(sizes, np.int64))
    if len(sizes) != count or ends[-1] != width or min(sizes) < 1:
        t.fail(f"{width} numbers into {[int(size) for size in sizes]}; expected a sum of {width}")
    starts = ends - np.array(sizes, np.int64)
    return tuple(
        Rows(selected(t, x, np.arange(*ends_of))) for ends_of in zip(starts, ends, strict=True)
    )


def sliced(t: Translation) -> Translated:
    """A range of a row's channels."""
    x = t.rows()
    attributes = t.node.attributes
    given = [t.constant(i) for i in (1, 2, 3, 4)]
    names = ("starts", "ends", "axes")
    starts, ends, axes, steps = (
        _numbers(attributes.get(name) if array is None else array)
        for name, array in zip((*names, "steps"), given, strict=True)
    )
    axes = axes or list(range(len(starts)))
    keep = np.arange(t.width(x))
    for i, axis in enumerate(axes):
        step = steps[i] if steps else 1
        if axis == 0 and starts[i] == 0 and ends[i] >= np.iinfo(np.int32).max and step == 1:
            continue  # all rows
        _require_last(t, axis)
        keep = keep[starts[i] : ends[i] : step]
    if not len(keep):
        t.fail("leaves no channel")
    return Rows(x) if len(keep) == t.width(x) else Rows(selected(t, x, keep))


def gather(t: Translation) -> Translated:
    """Channels of a row by their places."""
    x = t.rows()
    _require_last(t, int(t.node.attributes.get("axis", 0)))
    places, width = t.weights(1).reshape(-1).astype(np.int64), t.width(x)
    if not len(places) or places.min() < -width or places.max() >= width:
        t.fail(f"takes channels beyond the {width} that there are")
    return Rows(selected(t, x, places % width))


def _numbers(values: object) -> list[int]:
    return [] if values is None else [int(number) for number in np.ravel(np.asarray(values))]


def _require_last(t: Translation, axis: int) -> None:
    shape = t.shape(0)
    if axis not in (-1, len(shape)) or shape[-1] != math.prod(shape):
        t.fail(f"is along axis {axis} of [n, {', '.join(map(str, shape))}]; expected the channels")


def selected(t: Translation, value: str, keep: IntArray) -> str:
    """Some channels of a value: those of the layers that make it, and of what is between.

    Columns of a layer's weights are stored once, wherever its outputs go.
    """
    builder, needed, left = t.builder, set[str](), [value]
    while left:
        name = left.pop()
        node = builder.by_name.get(name)
        if node is None or not isinstance(node.op, (Mvm, *BY_CHANNEL)):
            made = "the input" if node is None else node.op.name
            t.fail(f"takes channels of {made}; expected those of a layer")
        if name not in needed and not isinstance(node.op, Mvm):
            left.extend(node.inputs)
        needed.add(name)
    parts: dict[str, str] = {}
    for name, node in list(builder.by_name.items()):
        if name in needed:
            inputs = (parts.get(one, one) for one in node.inputs)
            parts[name] = builder.add(f"{name}_{keep[0]}", _of_channels(node.op, keep), *inputs)
    return parts[value]


def _of_channels(op: Op, keep: IntArray) -> Op:
    """An operation with the constants of some channels."""
    if isinstance(op, Mvm):
        return op.columns(keep)

    def kept(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(kept(one) for one in value)
        return value[keep] if isinstance(value, np.ndarray) and value.ndim else value

    return type(op)(**{name: kept(value) for name, value in vars(op).items()})


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
