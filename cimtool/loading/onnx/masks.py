"""Rules of constant masks of attention: what a softmax leaves out of each of its rows.

Exporters add -inf, or a number so low that its power is 0, or choose one. Both are followed as a
`Masked` past what scales and moves the numbers, until a softmax reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.ir.arithmetic import scalar
from cimtool.ir.source import NO_WEIGHT, counted_places
from cimtool.loading.layout import arranged
from cimtool.loading.onnx.translation import (
    LARGEST_NUMBER,
    Masked,
    Translated,
    Translation,
)
from cimtool.loading.onnx.views import Rows, widened

LOWEST_OFFSET = -1e6
"""Of a number from which more than this is taken, 16 bits hold nothing."""

AnyRule = Callable[[Translation], "Translated | tuple[Translated, ...]"]

MaskRule = Callable[[Translation, AnyRule], "Translated | tuple[Translated, ...] | None"]


def _with_input(t: Translation, index: int, value: Translated) -> Translation:
    """The same node with another value of an input."""
    own = {name: t.values[name] for name in t.node.inputs if name in t.values}
    return replace(t, values={**own, t.input(index): value})


def _numbers(t: Translation, index: int) -> FloatArray | None:
    """The constant that an input is, -inf where it is beyond float32; None of other inputs."""
    value = t.value(index)
    if isinstance(value, Masked):
        parts = [t.builder.numbers(view) for view in (value.of, value.mask)]
        array = None if parts[0] is None or parts[1] is None else parts[0] + parts[1]
    elif isinstance(value, Rows):
        array = t.builder.numbers(value)
    else:
        array = t.constant(index) if isinstance(value, np.ndarray) else None
    if array is None or np.isnan(array).any() or (array > LARGEST_NUMBER).any():
        return None
    return np.where(array < -LARGEST_NUMBER, -np.inf, array)


def _masked(t: Translation, view: Rows, numbers: FloatArray) -> Masked:
    """A view to which numbers over its axes are added as its mask."""
    return Masked(view, t.builder.same(t.called("mask"), numbers, view.axes))


def _mask_over(t: Translation, value: Translated, view: Rows) -> FloatArray:
    """The mask of a value, spread to the extents of a view that it became; 0 of an unmasked one."""
    if not isinstance(value, Masked):
        return np.zeros(view.extents)
    numbers = t.builder.numbers(widened(value.mask, view.extents))
    assert numbers is not None
    return numbers


def added(t: Translation, rule: AnyRule, sign: float = 1.0) -> Translated | None:
    """A constant added to numbers where it masks some, or anything to masked numbers."""
    for index in (0, 1) if sign > 0 else (0,):
        value, signed = t.value(index), sign if index == 0 else 1.0
        if not isinstance(value, Rows | Masked):
            continue
        constant = _numbers(t, 1 - index)
        if constant is not None and (isinstance(value, Masked) or _masks(signed * constant)):
            of = value.of if isinstance(value, Masked) else value
            view = t.grown(of, constant)
            numbers = signed * t.over(constant, view) + _mask_over(t, value, view)
            return _masked(t, view, numbers)
        if isinstance(value, Masked):
            made = rule(_with_input(t, index, value.of))
            assert isinstance(made, Rows)
            return _masked(t, made, _mask_over(t, value, made))
    return None


def _masks(numbers: FloatArray) -> bool:
    return bool((numbers <= NO_WEIGHT).any())


def scaled(t: Translation, rule: AnyRule) -> Translated | None:
    """Masked numbers times constants above 0, or divided by them."""
    index = next((i for i in (0, 1) if isinstance(t.value(i), Masked)), None)
    if index is None:
        return None
    value, constant = t.value(index), _numbers(t, 1 - index)
    assert isinstance(value, Masked)
    divides = t.node.kind == "Div"
    if constant is None or not (constant > 0).all() or (divides and index == 1):
        t.fail("scales numbers with a mask of attention; expected to by constants above 0")
    made = rule(_with_input(t, index, value.of))
    assert isinstance(made, Rows)
    factor = t.over(constant, made)
    return _masked(t, made, _mask_over(t, value, made) * (1 / factor if divides else factor))


def chosen(t: Translation, rule: AnyRule) -> Translated | None:
    """A value, or another constant in some places that are the same for all items."""
    condition = _numbers(t, 0)
    if condition is None:
        return None
    index = next((i for i in (1, 2) if _numbers(t, i) is None), 1)
    value, other = t.value(index), _numbers(t, 3 - index)
    of = value.of if isinstance(value, Masked) else t.view(index)
    if other is None and condition.size == 1:  # as torch.lerp of one weight asks for its half
        a, b = t.view(1), t.view(2)
        alike = (a.extents, a.items_place) == (b.extents, b.items_place)
        if alike and condition.ndim <= len(a.axes):
            return a if condition.item() else b
    if other is None:
        t.fail(f"chooses between {t.input(1)} and {t.input(2)}; expected a constant as one of both")
    view = t.grown(of, condition, other)
    kept = (t.over(condition, view) != 0) == (index == 1)
    fill = np.where(kept, 0.0, t.over(other, view))
    mask = np.where(kept, _mask_over(t, value, view), np.where(fill <= NO_WEIGHT, fill, 0.0))
    if (filled := ~kept & (mask == 0)).any():
        view = t.affine(view, 1.0 - filled, np.where(filled, fill, 0.0))
    return _masked(t, view, mask) if mask.any() else view


def moved(t: Translation, rule: AnyRule) -> Translated | tuple[Translated, ...] | None:
    """Masked numbers in other places, and their mask alike."""
    value = t.value(0)
    if not isinstance(value, Masked):
        return None
    of, mask = (rule(_with_input(t, 0, part)) for part in (value.of, value.mask))
    if isinstance(of, Rows) and isinstance(mask, Rows):
        return Masked(of, mask)
    assert isinstance(of, tuple)
    assert isinstance(mask, tuple)
    return tuple(Masked(*pair) for pair in zip(of, mask, strict=True))  # type: ignore[arg-type]


def as_it_is(t: Translation, rule: AnyRule) -> None:
    """Nothing, of an operator whose own rule takes masked numbers."""


def raised(t: Translation, rule: AnyRule) -> Translated | None:
    """The larger of masked numbers and a constant that masks as well."""
    if len(t.node.inputs) != 2:
        return None
    index = next((i for i in (0, 1) if isinstance(t.value(i), Masked)), None)
    if index is None:
        return None
    value, least = t.value(index), _numbers(t, 1 - index)
    assert isinstance(value, Masked)
    if least is None or least.max() > NO_WEIGHT:
        t.fail("limits numbers with a mask of attention; expected a softmax of them")
    mask = _mask_over(t, value, value.of)
    return _masked(t, value.of, np.where(mask <= NO_WEIGHT, np.maximum(mask, least.max()), mask))


def largest_counted(t: Translation, rule: AnyRule) -> Translated | tuple[Translated, ...] | None:
    """The largest of the numbers along an axis that a mask leaves some weight."""
    value = t.value(0)
    if not isinstance(value, Masked):
        return None
    axes = t.axes()
    if len(axes) != 1:
        t.fail(f"reduces axes {axes} of numbers with a mask of attention; expected one of them")
    axis = t.place(axes[0], value.of)
    view, mask = parted(t, value, axis)
    order = [i for i in range(len(view.axes)) if i != axis] + [axis]
    rows = t.in_order(view.reordered(order))
    counted = mask.transpose(order).reshape(-1, t.width(rows.name)) == 0
    name = arranged(t.builder, rows.name, counted_places(counted))
    own = replace(rows, name=name).reordered([order.index(i) for i in range(len(order))])
    return rule(_with_input(t, 0, own))


def summed(t: Translation, value: Masked) -> Rows:
    """Numbers with those added that would mask them, where no softmax reads them."""
    numbers = t.builder.numbers(value.mask)
    assert numbers is not None
    if numbers.min() < LOWEST_OFFSET:
        t.fail(
            f"reads a mask of attention with {numbers.min():g}; expected a softmax of masked "
            "numbers alone"
        )
    return t.affine(value.of, scalar(1.0), numbers)


def parted(t: Translation, value: Masked, axis: int) -> tuple[Rows, FloatArray]:
    """Numbers that a softmax along an axis reads, and what masks them: 0 where one counts.

    Added numbers that leave another some weight belong to the former.
    """
    numbers = t.builder.numbers(value.mask)
    assert numbers is not None
    low = numbers <= NO_WEIGHT
    if low.all(axis=axis).any():
        t.fail(
            "has a row in which a mask leaves no number, which has no softmax; expected one that "
            "counts in each"
        )
    bias, view = np.where(low, 0.0, numbers), value.of
    if bias.any():
        view = t.affine(view, scalar(1.0), bias)
    return view, np.where(low, numbers, 0.0)


def of_rows(t: Translation, rows: Rows, mask: FloatArray) -> Array:
    """A mask over the axes of a view as that of the program's rows [rows of an item or 1, d]."""
    held = np.empty(rows.size)
    held[rows.positions()] = mask.reshape(-1)
    table = held.reshape(-1, t.width(rows.name))
    return table[:1] if (table == table[0]).all() else table


MASKS: dict[str, MaskRule] = {
    **dict.fromkeys(("Cast", "Identity", "Softmax"), as_it_is),
    **dict.fromkeys(
        ("Dropout", "Expand", "Flatten", "Gather", "Reshape", "Shape", "Slice", "Split"), moved
    ),
    **dict.fromkeys(("Squeeze", "Transpose", "Unsqueeze"), moved),
    "Add": added,
    "Div": scaled,
    "Max": raised,
    "Mul": scaled,
    "ReduceMax": largest_counted,
    "Sub": partial(added, sign=-1.0),
    "Where": chosen,
}
"""The operators that masked numbers pass, and the rule of each; None where there is no mask."""
