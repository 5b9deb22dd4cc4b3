"""Rules of products: layers in crossbars, and sums over products of two values.

`Gemm`, `MatMul` and `Einsum` say in three ways which axes are summed over. A product with constants
is a layer; if blocks such as heads have different weights, it is one layer with weights of 0
between blocks. A product of two values runs in the digital unit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.ir.arithmetic import BatchMatMul, Mvm, scalar
from cimtool.loading.layout import LARGEST_ITEM
from cimtool.loading.onnx.builder import Rows
from cimtool.loading.onnx.translation import (
    OPEN_ITEMS,
    KeptConstant,
    Translated,
    Translation,
    rule,
)

LARGEST_WEIGHTS = 1 << 26
"""Weights that a layer of several blocks may have, including the zeros between blocks."""


@dataclass(frozen=True)
class Operand:
    """A value, or the numbers of a constant, with a label for each axis."""

    of: Rows | FloatArray
    labels: tuple[str, ...]

    @property
    def extents(self) -> dict[str, int]:
        """Numbers of an item along each axis."""
        sizes = self.of.extents if isinstance(self.of, Rows) else self.of.shape
        return dict(zip(self.labels, sizes, strict=True))

    def ordered(self, *groups: Sequence[str]) -> Rows:
        """The value with the axes of each group joined to one axis; other axes have extent 1."""
        assert isinstance(self.of, Rows)
        sizes, own = self.extents, self.labels[self.of.items]
        kept = [self.labels.index(label) for group in groups for label in group]
        ones = [i for i in range(self.of.rank) if i not in kept]  # of extent 1
        view = self.of.reordered([*kept, *ones])
        (at,) = (i for i, group in enumerate(groups) if own in group)
        ahead = math.prod(sizes[label] for label in groups[at][: groups[at].index(own)])
        shape = [math.prod(sizes[label] for label in group) for group in groups]
        return Rows(view.name, view.places.reshape(shape), at, ahead * view.before)


@rule("Gemm")
def gemm(t: Translation) -> Translated:
    """`alpha x W + beta b`; with transB, W is transposed."""
    attributes = t.node.attributes
    if attributes.get("transA", 0):
        t.fail("transA = 1 is not supported; expected rows of inputs first")
    alpha, beta = t.number("alpha", 1.0), t.number("beta", 1.0)
    weight = t.weights(1) * alpha
    bias = t.weights(2) * beta if t.input(2) else scalar(0.0)
    turned = bool(attributes.get("transB", 0))
    return layer(t, t.view(), weight.T if turned else weight, bias, 0 if turned else 1)


@rule("MatMul")
def matmul(t: Translation) -> Translated:
    """`x W`, or a product with batch axes, of two values or of a value and a constant."""
    if t.is_rows(0) and not t.is_rows(1) and np.ndim(t.weights(1)) == 2:
        return layer(t, t.view(), t.weights(1), scalar(0.0), 1)
    first, second = _operand(t, 0), _operand(t, 1)
    rank = max(len(first.labels), len(second.labels), 2)
    batch = [f"batch {axis}" for axis in range(rank - 2)]
    a = replace(first, labels=_last([*batch, "row", "inner"], len(first.labels)))
    ends = ["inner", "column"] if len(second.labels) > 1 else ["inner"]
    b = replace(second, labels=_last([*batch, *ends], len(second.labels)))
    rows = ["row"] if len(a.labels) > 1 else []
    return contracted(t, a, b, (*batch, *rows, *ends[1:]))


def _last(labels: Sequence[str], count: int) -> tuple[str, ...]:
    return tuple(labels[len(labels) - count :])


@rule("Einsum")
def einsum(t: Translation) -> Translated:
    """Sums of products of two inputs; letters name the axes."""
    text = t.node.attributes["equation"].decode("utf-8", "replace").replace(" ", "")
    terms, arrow, out = text.partition("->")
    letters = terms.split(",")
    operands = [_operand(t, i) for i in range(len(t.node.inputs))]
    if reason := _no_product(letters, arrow, out):
        t.fail(f'is "{text}", {reason}')
    if [len(part) for part in letters] != [len(one.labels) for one in operands]:
        axes = " and ".join(str(len(one.labels)) for one in operands)
        t.fail(f'is "{text}" of values of {axes} axes; expected a letter for each')
    a, b = (replace(one, labels=tuple(own)) for one, own in zip(operands, letters, strict=True))
    _require_items(t, a, b, out)
    return contracted(t, a, b, tuple(out))


def _no_product(terms: Sequence[str], arrow: str, out: str) -> str:
    """The reason why an equation is no product of two inputs; empty if it is one."""
    if len(terms) != 2:
        count = "of one input" if len(terms) == 1 else f"of {len(terms)} inputs"
        return (
            f"{count}; expected two (sums of one by a sum or mean, turns by permute, products of "
            "several one after another)"
        )
    if not arrow:
        return "without an arrow; expected one, and the axes of the result behind it"
    if not all(part.isalpha() for part in (*terms, out or "a")):
        return "with more than letters, commas and an arrow; expected a letter for each axis"
    for part in (*terms, out):
        if twice := [letter for letter in part if part.count(letter) > 1]:
            return f"with {twice[0]} twice in {part}; expected each letter once there"
    return ""


def _operand(t: Translation, index: int) -> Operand:
    """An input, labelled by the numbers of its axes."""
    value = t.value(index)
    if isinstance(value, np.ndarray | KeptConstant):
        if isinstance(value, KeptConstant):
            t.fail(f"{t.input(index)} is quantized; expected it as the second input, [in, out]")
        return Operand(array := t.weights(index), tuple(map(str, range(array.ndim))))
    view = t.view(index)
    return Operand(view, tuple(map(str, range(view.rank))))


def contracted(t: Translation, a: Operand, b: Operand, out: Sequence[str]) -> Rows:
    """The sums of products over the axes that both operands have and the result `out` lacks."""
    if not (isinstance(a.of, Rows) or isinstance(b.of, Rows)):
        t.fail(
            "has only constants as inputs, and this operator is not computed while a file is read; "
            "expected a value among its inputs, or the product as a constant"
        )
    a, b = (_known(t, one, other) for one, other in ((a, b), (b, a)))
    for label in (*a.labels, *b.labels, *out):
        held = (label in a.labels) + (label in b.labels)
        if not held:
            t.fail(f"has axis {label} in its result and in no input; expected axes of these")
        if held == 1 and label not in out:
            t.fail(
                f"sums {label} of one input alone; expected axes of the result or of both inputs "
                "(a sum or mean before it)"
            )
    summed = {label: size for label, size in a.extents.items() if label not in out}
    fitting = all(b.extents[label] == size for label, size in summed.items())
    said = f"multiplies {_text(a)} by {_text(b)}"
    a, b = _spread(a, b), _spread(b, a)
    sizes = a.extents | b.extents
    if not fitting or any(sizes[label] != size for label, size in a.extents.items()):
        fixed = not (isinstance(a.of, Rows) and isinstance(b.of, Rows))
        t.fail(
            f"{said}; expected [..., r, k] by [..., k, c] of each item{OPEN_ITEMS if fixed else ''}"
        )
    _require_items(t, a, b, out)
    if isinstance(a.of, Rows) and isinstance(b.of, Rows):
        return _by_values(t, a, b, out)
    return _by_weights(t, a, b, out) if isinstance(a.of, Rows) else _by_weights(t, b, a, out)


def _require_items(t: Translation, a: Operand, b: Operand, out: Sequence[str]) -> None:
    for label in (_items_label(a), _items_label(b)):
        if label is not None and label not in out:
            t.fail(
                f"sums {label}, which is over the items; expected it in the result, as each item "
                "is computed alone"
            )


def _text(operand: Operand) -> str:
    return operand.of.text if isinstance(operand.of, Rows) else str(list(operand.of.shape))


def _known(t: Translation, one: Operand, other: Operand) -> Operand:
    """The numbers of `one`, if only `one` is the same for all items; else `one` unchanged."""
    if not isinstance(one.of, Rows):
        return one
    numbers = t.builder.numbers(one.of)
    depends = isinstance(other.of, Rows) and t.builder.numbers(other.of) is None
    return one if numbers is None or not depends else replace(one, of=numbers)


def _spread(one: Operand, other: Operand) -> Operand:
    """An operand broadcast to the other; a constant loses the axes that it would broadcast."""
    sizes, items = other.extents, _items_label(other)
    if not isinstance(one.of, Rows):
        left = [
            label
            for label, size in one.extents.items()
            if size > 1 or (label != items and sizes.get(label, 1) == 1)
        ]
        shape = [one.extents[label] for label in left]
        return Operand(one.of.reshape(shape), tuple(left))
    if not isinstance(other.of, Rows):
        return one
    kept = (items, _items_label(one))
    wide = one.of.widened(
        [1 if la in kept else max(size, sizes.get(la, 1)) for la, size in one.extents.items()]
    )
    return replace(one, of=wide)


def _items_label(operand: Operand) -> str | None:
    return operand.labels[operand.of.items] if isinstance(operand.of, Rows) else None


def _by_values(t: Translation, a: Operand, b: Operand, out: Sequence[str]) -> Rows:
    """A product of matrices for each index of the axes shared by both operands and the result."""
    assert isinstance(a.of, Rows)
    assert isinstance(b.of, Rows)
    batch = [label for label in a.labels if label in b.labels and label in out]
    inner = [label for label in a.labels if label in b.labels and label not in out]
    rows, columns = ([x for x in one.labels if x not in (*batch, *inner)] for one in (a, b))
    items = _items_label(a)
    if items not in batch or items != _items_label(b) or a.of.before != b.of.before:
        t.fail(
            f"multiplies {_text(a)} by {_text(b)}; expected [..., r, k] by [..., k, c] of each item"
        )
    sizes = a.extents | b.extents
    made = math.prod(sizes[label] for label in (*batch, *rows, *columns))
    if made > LARGEST_ITEM:
        t.fail(f"makes {made:,} numbers of an item; expected at most {LARGEST_ITEM:,}")
    each = [(label,) for label in batch]
    left, right = (
        t.in_order(one.ordered(*each, own, inner)) for one, own in ((a, rows), (b, columns))
    )
    op = BatchMatMul(left.extents[-2], right.extents[-2])
    name = t.add(op, left.name, right.name).name
    product = replace(left.narrowed(op.columns), name=name)
    labels = (*batch, *rows, *columns)
    wanted = [sizes[x] * (t.graph.items if x == items else 1) for x in labels]
    found = product.reshaped(wanted, t.graph.items)
    assert found is not None
    return found.reordered([labels.index(label) for label in out])


def _by_weights(t: Translation, value: Operand, constant: Operand, out: Sequence[str]) -> Rows:
    """The product of a value and a constant as one layer, with a block of weights per index.

    The indices of blocks run over the axes shared by both operands and the result.
    """
    value, constant, groups = _items_apart(value, constant, out)
    assert isinstance(constant.of, np.ndarray)
    made = [label for group in groups for label in group]
    shared = [label for label in value.labels if label in constant.labels]
    blocks, inner = ([x for x in shared if (x in made) == kept] for kept in (True, False))
    alone = [label for label in value.labels if label not in constant.labels]
    free = [label for label in constant.labels if label not in value.labels]
    if _items_label(value) not in alone:
        t.fail(f"multiplies {_text(value)} by weights of each item; expected the same for all")
    sizes = constant.extents
    if (constant.of == 1).all() and all(sizes[label] == 1 for label in inner):
        assert isinstance(value.of, Rows)  # 1 times the value
        places = value.of.places.reshape(*value.of.extents, *[1] * len(free))
        wide = np.broadcast_to(places, (*value.of.extents, *(sizes[x] for x in free)))
        return Operand(replace(value.of, places=wide), (*value.labels, *free)).ordered(*groups)
    order = [constant.labels.index(label) for label in (*blocks, *inner, *free)]
    counts = [math.prod(sizes[label] for label in group) for group in (blocks, inner, free)]
    weights = _diagonal(t, constant.of.transpose(order).reshape(counts))
    rows = layer(t, value.ordered(*((x,) for x in alone), (*blocks, *inner)), weights)
    shape = (*rows.extents[:-1], *(sizes[label] for label in (*blocks, *free)))
    parted = replace(rows, places=rows.places.reshape(shape))
    return Operand(parted, (*alone, *blocks, *free)).ordered(*groups)


def _items_apart(
    value: Operand, constant: Operand, out: Sequence[str]
) -> tuple[Operand, Operand, list[tuple[str, ...]]]:
    """The operands with the items alone in an axis, and the axes that the result then joins."""
    items = _items_label(value)
    if items not in constant.labels:
        return value, constant, [(label,) for label in out]
    assert isinstance(value.of, Rows)
    assert isinstance(constant.of, np.ndarray)
    place, before = value.of.items, value.of.before
    sizes = (before, value.of.extents[place] // before)
    ends = (f"{items} before", f"{items} after")
    shape = value.of.extents
    places = value.of.places.reshape(*shape[:place], sizes[0], 1, sizes[1], *shape[place + 1 :])
    view = Rows(value.of.name, places, place + 1)
    labels = (*value.labels[:place], ends[0], items, ends[1], *value.labels[place + 1 :])
    i, shape = constant.labels.index(items), constant.of.shape
    numbers = constant.of.reshape(*shape[:i], *sizes, *shape[i + 1 :])
    names = (*constant.labels[:i], *ends, *constant.labels[i + 1 :])
    own: tuple[str, ...] = (ends[0], items, ends[1])
    groups = [own if label == items else (label,) for label in out]
    return Operand(view, labels), Operand(numbers, names), groups


def _diagonal(t: Translation, blocks: FloatArray) -> FloatArray:
    """Weights [B K, B C] from B blocks [B, K, C], with 0 between different blocks."""
    count, inner, free = blocks.shape
    if count * inner * count * free > LARGEST_WEIGHTS:
        t.fail(
            f"has {count} blocks of {inner} x {free} weights, a layer of {count * inner:,} x "
            f"{count * free:,}; expected at most {LARGEST_WEIGHTS:,} weights"
        )
    weights = np.zeros((count, inner, count, free))
    weights[np.arange(count), :, np.arange(count), :] = blocks
    return weights.reshape(count * inner, count * free)


def layer(
    t: Translation,
    view: Rows,
    weight: FloatArray,
    bias: FloatArray | None = None,
    axis: int | None = None,
) -> Rows:
    """A layer over the last axis of a view: the same weights [in, out] for each row.

    `axis` is the axis of outputs in the node's second input, which holds the weights; None if the
    weights were put in another order.
    """
    x = t.in_rows(view)
    width = t.width(x.name)
    if weight.ndim != 2 or weight.shape[0] != width or not weight.size:
        t.fail(f"its weights have shape {list(weight.shape)}; expected [{width}, any] (in, out)")
    t.require_storable("one of its weights", weight)
    given = np.zeros(1) if bias is None else bias
    t.require_storable("one of its biases", given)
    named = t.input(0 if axis is None and not t.is_rows(0) else 1)
    name = named.removesuffix(".weight") if named.endswith(".weight") else ""
    channels = t.channels(given, weight.shape[1])
    held = t.value(1)
    if axis is not None and isinstance(held, KeptConstant):
        op = held.layer(t, weight, channels, axis)
    else:
        op = Mvm(np.ascontiguousarray(weight), channels)
    made = t.add(op, x.name, name=name)
    return replace(x.narrowed(weight.shape[1]), name=made.name)


@rule("Conv")
def convolution(t: Translation) -> Translated:
    """A convolution of width 1, as a layer that is the same for each place."""
    view, weight = t.view(), t.weights(1)
    attributes, behind = t.node.attributes, view.rank - 2
    if (
        weight.ndim != view.rank
        or set(weight.shape[2:]) != {1}
        or {attributes.get("group", 1), *attributes.get("strides", ())} != {1}
    ):
        t.fail(
            f"has weights {list(weight.shape)} for inputs {view.text}; expected width 1, without "
            "groups or strides"
        )
    if any(attributes.get("pads", ())):
        t.fail("pads its inputs; expected width 1 without")
    bias = t.weights(2) if t.input(2) else scalar(0.0)
    channels_last = view.reordered([0, *range(2, 2 + behind), 1])
    made = layer(t, channels_last, weight.reshape(weight.shape[:2]).T, bias, 0)
    return made.reordered([0, 1 + behind, *range(1, 1 + behind)])
