"""Translation of one ONNX node into operations: its input values, and its errors.

Rules turn nodes into operations; they register themselves here by the operator's name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NoReturn, TypeAlias

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import Add, Mvm
from cimtool.ir.heads import VARIANCE
from cimtool.ir.op import Op
from cimtool.loading.layout import LARGEST_ITEM, arranged
from cimtool.loading.onnx.builder import LARGEST_NUMBER, FileBuilder, Rows
from cimtool.loading.onnx.constants import COUNTED, ConstantFolder, Counted
from cimtool.loading.onnx.graph import OnnxGraph, OnnxNode

MOST_ITEM_NUMBERS, MOST_ITEM_PRODUCTS = 1 << 24, 1 << 32
"""Numbers that an item may have in all values together, and multiply-adds that compute them."""

MOST_AXES = 24
"""Axes of a value at most; numpy allows 64, and products and norms add a few."""

MOST_ITEM_PLACES = 1 << 27
"""Numbers that an item may have in all values of a file; views of the same numbers count too."""

OPEN_ITEMS = (
    ", and an open number of items: x.shape[0], not len(x), in a module exported with dynamic_axes "
    "or dynamic_shapes"
)
"""The end of a sentence on a file that may have been made for a fixed number of items."""

INTEGERS = re.compile("bool|u?int[248]$")
"""Booleans, and integer types of a quantized model's codes, whose scale is not known."""


class Unread:
    """A value that only some rules read; `text` and `expected` are for the errors of others."""

    text: ClassVar[str] = "a constant"
    expected: ClassVar[str] = "rows of numbers"
    rules: ClassVar[Mapping[str, Rule]] = {}
    """Rules of operators whose first input is such a value."""


class KeptConstant:
    """A constant that a rule keeps in a special form, with the layer that it makes."""

    rules: ClassVar[Mapping[str, Rule]] = {}
    """Rules of operators whose first input is such a constant."""
    real: FloatArray
    """The real numbers that it stands for."""

    def layer(self, t: Translation, weight: FloatArray, bias: FloatArray, axis: int) -> Mvm:
        """The layer of these weights [K, N]; `axis` is the constant's axis of outputs."""
        raise NotImplementedError


Translated: TypeAlias = Rows | Array | Counted | KeptConstant | Unread
"""The form of an ONNX value here: a view of a program's value, a constant, or Unread."""


@dataclass(frozen=True)
class Translation:
    """One node of a graph, to be added to a builder; `values` are known before it.

    Methods that take the index of an input raise CimError, which names file and node, if the input
    is of another kind.
    """

    graph: OnnxGraph
    node: OnnxNode
    values: Mapping[str, Translated]
    builder: FileBuilder
    folder: ConstantFolder
    views: dict[str, Rows] = field(default_factory=dict)
    """The views through which this node reads values of the program."""

    def fail(self, complaint: str) -> NoReturn:
        """Raise CimError naming the file, the node and its kind."""
        raise CimError(f"{self.where}: {complaint}")

    @property
    def where(self) -> str:
        """The file, the node and its kind."""
        return f"{self.graph.file}: {self.node.label} ({self.node.kind})"

    def input(self, index: int) -> str:
        """The name of an input; empty if it is left out."""
        return self.node.inputs[index] if index < len(self.node.inputs) else ""

    def value(self, index: int) -> Translated:
        """The value of an input."""
        name = self.input(index)
        if name in self.values:
            return self.values[name]
        node = self.graph.makers.get(name)
        if node is None or node.kind == "If" or name not in node.outputs[1:]:
            self.fail(f"its input {name or index + 1} is not there")
        self.fail(
            f"its input {name} is output {node.outputs.index(name) + 1} of {node.label} "
            f"({node.kind}), which is not computed; expected only its first output, or this one "
            "made by other operators"
        )

    def is_rows(self, index: int) -> bool:
        """True if an input depends on the graph's input."""
        return isinstance(self.value(index), Rows)

    def view(self, index: int = 0) -> Rows:
        """An input that depends on the graph's input."""
        value = self.value(index)
        if not isinstance(value, Rows):
            known = value if isinstance(value, Unread) else Unread
            self.fail(f"its input {self.input(index)} is {known.text}; expected {known.expected}")
        return value

    def numbers(self, index: int) -> FloatArray | None:
        """The numbers of a constant or of a value that is the same for all items; else None."""
        value = self.value(index)
        if isinstance(value, Rows):
            return self.builder.numbers(value)
        return None if isinstance(value, Unread) else self.mask_numbers(index)

    def whole(self, view: Rows) -> Rows:
        """The view if it has all numbers of its value, else a view of its numbers, in rows."""
        return self._seen(view) if self.builder.covered(view) else self.in_rows(view)

    def _seen(self, view: Rows) -> Rows:
        """The view, through which the node reads its value from now on."""
        self.views[view.name] = view
        return view

    def rows(self, index: int = 0) -> str:
        """The program's name of an input, for operations that take each number by itself."""
        return self.whole(self.view(index)).name

    def in_rows(self, view: Rows, columns: int = 1) -> Rows:
        """A view with its last `columns` axes as rows of the program."""
        if view.items >= view.rank - columns:
            self.fail(f"is over the items of {view.text}; expected an axis of each item's numbers")
        self.require_numbers(view.size)
        return self._seen(self.builder.in_rows(view, columns))

    def in_order(self, view: Rows) -> Rows:
        """As `in_rows`, with an item's rows in the order of the view."""
        self.require_numbers(view.size)
        return self._seen(self.builder.in_order(view))

    def require_numbers(self, count: int) -> None:
        """Raise CimError if an item has more than LARGEST_ITEM numbers."""
        if count > LARGEST_ITEM:
            self.fail(f"an item has {count:,} numbers; expected at most {LARGEST_ITEM:,}")

    def require_work(self, places: int) -> None:
        """Raise CimError if an item has too much to compute, or to move, up to this node.

        `places` are the numbers of the node's own values.
        """
        self.builder.item_places += places
        if self.builder.item_places > MOST_ITEM_PLACES:
            self.fail(
                f"up to here an item has {self.builder.item_places:,} numbers in all values of the "
                f"file; expected at most {MOST_ITEM_PLACES:,}"
            )
        numbers, products = self.builder.item_numbers, self.builder.item_products
        if numbers > MOST_ITEM_NUMBERS or products > MOST_ITEM_PRODUCTS:
            self.fail(
                f"up to here an item has {numbers:,} numbers in all values and {products:,} "
                f"multiply-adds; expected at most {MOST_ITEM_NUMBERS:,} and {MOST_ITEM_PRODUCTS:,}"
            )

    def constant(self, index: int) -> FloatArray | None:
        """A constant input in float64, None if it is left out."""
        name = self.input(index)
        if not name:
            return None
        value = self.value(index)
        if isinstance(value, KeptConstant):
            return value.real
        if isinstance(value, Counted):
            self.fail(COUNTED)
        if isinstance(value, np.ndarray) and value.dtype.kind in "OSUc":
            self.fail(f"its input {name} holds texts or complex numbers; expected real ones")
        if not isinstance(value, np.ndarray):
            self.fail(f"its input {name} is computed; expected a constant of numbers")
        with np.errstate(over="ignore", invalid="ignore"):  # callers refuse non-finite numbers
            return value.astype(np.float64)

    def weights(self, index: int) -> FloatArray:
        """A constant of finite real numbers that is not left out."""
        held = self.value(index)
        if isinstance(held, np.ndarray) and INTEGERS.match(held.dtype.name):
            self.fail(f"{self.input(index)} holds {held.dtype}; expected weights in floating point")
        array = self.constant(index)
        if array is None:
            self.fail(f"its input {index + 1} is missing")
        if not np.isfinite(array).all():
            bad = array[~np.isfinite(array)].flat[0]
            self.fail(f"{self.input(index)} holds {bad}; expected finite weights")
        return array

    def sizes(self, index: int) -> list[int]:
        """Extents or repeats, which may have the number of items as a factor."""
        value, (items, other) = self.value(index), self.graph.counts
        if isinstance(value, Counted):
            a, b = value.first, value.second
            factors = (a % items == 0) & (b % other == 0) & (a // items == b // other)
            if not ((a == b) | factors).all():
                self.fail(COUNTED)
            return [int(size) for size in a.reshape(-1)]
        return self.integers(index)

    def integers(self, index: int) -> list[int]:
        """A constant of whole numbers; empty if it is left out."""
        array = self.constant(index)
        if array is None:
            return []
        kind = self.value(index)
        if not isinstance(kind, np.ndarray) or kind.dtype.kind not in "iu":
            self.fail(f"{self.input(index)} holds real numbers; expected whole ones")
        return [int(number) for number in kind.reshape(-1)]

    def require_axes(self, count: int) -> None:
        """Raise CimError for more than MOST_AXES axes."""
        if count > MOST_AXES:
            self.fail(f"makes {count} axes; expected at most {MOST_AXES}")

    def items_axis(self, sizes: Sequence[int]) -> int | None:
        """The first axis whose extent contains the number of items; None if there is none."""
        rows, items = self.graph.rows, self.graph.items
        for axis, size in enumerate(sizes):
            if items > 1 and (size == items or (rows is None and size and size % items == 0)):
                return axis
        return None

    def mask_numbers(self, index: int) -> FloatArray:
        """A constant of real numbers, -inf or booleans, as in attention masks."""
        array = self.constant(index)
        if array is None or np.isnan(array).any() or (array == np.inf).any():
            return self.weights(index)
        return array

    def require_storable(self, what: str, array: FloatArray) -> None:
        """Raise CimError if float32, the type of the emitted float graph, cannot hold the array."""
        beyond = ~(np.abs(array) <= LARGEST_NUMBER)
        if beyond.any():
            self.fail(f"{what} comes to {array[beyond].flat[0]:.3g}, beyond float32")

    def channels(self, array: FloatArray, width: int) -> FloatArray:
        """One number per channel, from any shape that broadcasts to [1, width]."""
        try:
            spread = np.broadcast_to(array, (1, width))
        except ValueError:
            self._misshapen(array, width)
        return np.array(spread.reshape(-1))

    def _misshapen(self, array: FloatArray, width: int) -> NoReturn:
        self.fail(
            f"a constant has shape {list(array.shape)}; expected [{width}] or one number, of "
            "at most two axes"
        )

    def spread(self, view: Rows, *arrays: FloatArray) -> tuple[str, list[FloatArray]]:
        """The program's name of a view, and constants over its axes as one number per column.

        A single number stays a single number. If an item's rows need different constants, as tokens
        do, the value becomes one row per item.
        """
        view = self.whole(view)
        self.require_numbers(view.size)
        width, found = self.width(view.name), list[FloatArray]()
        for array in arrays:
            held = np.empty(view.size)
            held[view.places.reshape(-1)] = self.over(array, view).reshape(-1)
            single = self.of_items(array, view).size == 1
            found.append(array.reshape(-1)[:1].reshape(()) if single else held.reshape(-1, width))
        if all(array.ndim == 0 or not np.ptp(array, axis=0).any() for array in found):
            return view.name, [array[0] if array.ndim else array for array in found]
        name = arranged(self.builder, view.name, np.arange(view.size)[None])
        self.views[name] = replace(view, name=name)
        return name, [array.reshape(-1) if array.ndim else array for array in found]

    def over(self, array: FloatArray, view: Rows) -> FloatArray:
        """A constant over the axes of a view, spread to the view's extents."""
        own = self.of_items(array, view)
        try:
            if own is array and array.shape != view.extents:
                known = [1 if i == view.items else size for i, size in enumerate(view.extents)]
                own = np.broadcast_to(array, known)
            return np.broadcast_to(own, view.extents)
        except ValueError:
            self._misshapen(array, view.size)

    def of_items(self, array: FloatArray, view: Rows) -> FloatArray:
        """A constant over the axes of a view; equal rows for all items become one row.

        Exporters for a fixed number of items write such a row for each item.
        """
        axis, items, before = view.items, self.graph.rows, view.before
        if array.ndim != view.rank or items is None:
            return array
        after = view.extents[axis] // before
        if array.shape[axis] != before * items * after:
            return array
        ends = array.shape[:axis], array.shape[axis + 1 :]
        apart = array.reshape(*ends[0], before, items, after, *ends[1])
        first = apart.take([0], axis + 1)
        same = np.array_equal(np.broadcast_to(first, apart.shape), apart)
        return first.reshape(*ends[0], before * after, *ends[1]) if same else array

    def affine(self, view: Rows, factor: FloatArray, offset: FloatArray) -> Rows:
        """A view times a constant over its axes, plus another; axes of extent 1 are broadcast."""
        view = self.grown(view, factor, offset)
        offset = np.maximum(offset, -LARGEST_NUMBER)  # -inf has no bounds to add
        name, (factor, offset) = self.spread(view, factor, offset)
        return self.add(Add((factor,), offset), name)

    def grown(self, view: Rows, *arrays: FloatArray) -> Rows:
        """A view whose axes of extent 1 are broadcast to the extents of constants."""
        for array in (self.of_items(one, view) for one in arrays):
            if (missing := view.rank - array.ndim) >= 0:
                extents = [*[1] * missing, *array.shape]
                extents[view.items] = 1
                view = view.widened(extents)
        return view

    def aligned(self, doing: str, a: Rows, b: Rows) -> tuple[str, str]:
        """The program's names of two values, broadcast to each other, with equal places."""
        pairs = list(zip(a.extents, b.extents, strict=False))
        meeting = (a.rank, a.items, a.before) == (b.rank, b.items, b.before)
        at_items = pairs[a.items] if meeting else (0, 1)
        fitting = all(one == other or 1 in (one, other) for one, other in pairs)
        if not meeting or not fitting or at_items[0] != at_items[1]:
            if a.rank == b.rank == 2:
                self.fail(f"{doing} rows of {a.size} and of {b.size} numbers")
            self.fail(f"{doing} {a.text} and {b.text}; expected the same axes")
        a, b = (view.widened([max(pair) for pair in pairs]) for view in (a, b))
        self.require_numbers(a.size)
        types = self.builder.types
        covering = [v for v in (a, b) if self.builder.covered(v)]
        if len(covering) == 2 and a.alike(b) and types[a.name].shape == types[b.name].shape:
            self.views.update({a.name: a, b.name: b})
            return a.name, b.name
        place = covering[0] if covering else self.in_rows(a)
        first, second = (v.name if v is place else self.builder.like(v, place) for v in (a, b))
        self.views.update({name: replace(place, name=name) for name in (first, second)})
        return first, second

    def place(self, axis: int, view: Rows | None = None) -> int:
        """An axis of a view, or of the first input, counted from 0; CimError if there is none."""
        view = self.view() if view is None else view
        if not -view.rank <= axis < view.rank:
            self.fail(f"is along axis {axis} of {view.text}; expected one of these")
        return axis % view.rank

    def reshaped(self, view: Rows, sizes: Sequence[int]) -> Rows | None:
        """A view in other axes, of which one may be -1: the rest. None if the sizes do not fit."""
        items, sizes = self.graph.items, list(sizes)
        self.require_axes(len(sizes))
        if sizes.count(-1) == 1 and min(sizes) >= -1:
            rest = math.prod(size for size in sizes if size != -1)
            sizes[sizes.index(-1)] = items * view.size // max(rest, 1)
        if min(sizes, default=0) < 1 or math.prod(sizes) != items * view.size:
            return None
        return view.reshaped(sizes, items)

    def number(self, name: str, absent: float, least: float = -np.inf) -> float:
        """A number among the attributes; CimError if it is not finite or below `least`."""
        value = float(self.node.attributes.get(name, absent))
        if not (np.isfinite(value) and value >= least):
            expected = "finite number" if least == -np.inf else f"number of at least {least:g}"
            self.fail(f"{name} is {value}; expected a {expected}")
        return value

    def limits(self) -> tuple[float, float]:
        """The limits of a `Clip`, as inputs or (before operator set 11) attributes."""
        limits = []
        for index, name, absent in ((1, "min", -np.inf), (2, "max", np.inf)):
            given = self.constant(index)
            if given is not None and given.size != 1:
                self.fail(f"{name} has shape {list(given.shape)}; expected one number")
            said = self.node.attributes.get(name, absent) if given is None else given.item()
            limits.append(float(said))
        return limits[0], limits[1]

    def axes(self) -> list[int]:
        """Axes as the second input or (before operator set 13 or 18) an attribute."""
        return self.integers(1) if self.input(1) else [*self.node.attributes.get("axes", ())]

    def require_last_axis(self) -> None:
        """Raise CimError unless the attribute `axis` is the first input's last axis, or absent."""
        axis, view = int(self.node.attributes.get("axis", -1)), self.view()
        if axis not in (-1, view.rank - 1):
            self.fail(f"axis is {axis} of {view.text}; expected the last one")

    def width(self, value: str) -> int:
        """Extent of the rows of a value of the program."""
        return int(self.builder.types[value].shape[1])

    def add(self, op: Op, *inputs: str, name: str = "") -> Rows:
        """Append an operation, named after the node's output, `name`, or the node.

        The value has the axes of the first input that has the same number of rows and columns.
        """
        return self._made(self._plain(name), op, inputs)

    def part(self, name: str, op: Op, *inputs: str) -> str:
        """Append one of several operations for the node; returns its value's name."""
        return self._made(self.called(name), op, inputs).name

    def called(self, name: str) -> str:
        """The name of one of several operations for the node."""
        return f"{self._plain()}_{name}"

    def _made(self, name: str, op: Op, inputs: tuple[str, ...]) -> Rows:
        made, types = self.builder.add(name, op, *inputs), self.builder.types
        shape = types[made].shape
        known = (self.views[i] for i in inputs if i in self.views and types[i].shape == shape)
        view = next(known, Rows.in_order(made, (1, self.width(made))))
        return self._seen(replace(view, name=made))

    def _plain(self, name: str = "") -> str:
        """A name without a dot: names that passes derive have dots."""
        outputs = self.graph.outputs
        roles = [role for role, value in outputs.items() if value == self.node.outputs[0]]
        own = roles[0] if roles else name or self._label()
        plain = re.sub(r"[^A-Za-z0-9]+", "_", own).strip("_") or self.node.kind.lower()
        return f"{plain}_value" if plain == VARIANCE else plain

    def _label(self) -> str:
        """The last part of the node's name that says more than its kind; else its output's name.

        `/net/net.2/Relu` is `net.2`.
        """
        node = self.node
        if not node.name:
            return node.outputs[0]
        parts = [part for part in node.name.split("/") if part not in ("", "MatMul", node.kind)]
        return parts[-1] if parts else node.kind.lower()


Rule: TypeAlias = "Callable[[Translation], Translated | tuple[Translated, ...]]"

RULES: dict[str, Rule] = {}
"""The rules of ONNX's own operators (beside Constant and If)."""

DOMAINS: dict[str, dict[str, Rule]] = {"": RULES}
"""Rules by domain, then by operator."""


def rule(*kinds: str) -> Callable[[Rule], Rule]:
    """Register the rule of operators."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, function))
        return function

    return register
