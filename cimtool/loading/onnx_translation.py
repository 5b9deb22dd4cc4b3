"""A node of an ONNX graph on its way into a program: the values of its inputs, and errors."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import CimError
from cimtool.ir.op import Op
from cimtool.ir.program import Builder
from cimtool.loading.onnx_graph import OnnxGraph, OnnxNode

INTEGERS = re.compile("bool|u?int[248]$")
"""Types of truths and of a quantized model's codes, whose scale is not known."""


@dataclass(frozen=True)
class Rows:
    """Numbers that depend on the input, [n, width]: the name of a value in the program.

    `shape` are the axes of the file's value behind the rows, empty where there is one.
    """

    name: str
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class RowMeans:
    """RowMeans [n, 1] of the rows of a value of the program."""

    of: str


@dataclass(frozen=True)
class CentredRows:
    """The rows of a value of the program less their means."""

    of: str


@dataclass(frozen=True)
class Squares:
    """Squares of the rows of a value of the program less their means."""

    of: str


@dataclass(frozen=True)
class Norms:
    """`(factor * sum of squares + added) ** power` [n, 1] of the rows of a value of the program.

    Of the rows less their means where they are `centred`. Norms where power is 0.5: good to divide
    the value by, once they are a `column`.
    """

    of: str
    centred: bool = False
    factor: float = 1.0
    added: float = 0.0
    power: float = 1.0
    column: bool = True


@dataclass(frozen=True)
class Compared:
    """A value of the program above a limit, or not: what a choice is made by."""

    of: str
    limit: float


Translated = Rows | RowMeans | CentredRows | Squares | Norms | Compared | Array
"""The form of an ONNX value in a program; an array is a constant."""

KINDS = {
    RowMeans: "row means",
    CentredRows: "rows less their means",
    Squares: "squares of rows less their means",
    Norms: "row norms",
    Compared: "a comparison",
}
"""Words for a value that is neither rows nor a constant."""


@dataclass(frozen=True)
class Translation:
    """One node of a graph that a builder takes over; `values` are those known before it.

    Methods that take the index of an input raise CimError, naming file and node, where the input
    is of another kind.
    """

    graph: OnnxGraph
    node: OnnxNode
    values: Mapping[str, Translated]
    builder: Builder

    def fail(self, complaint: str) -> NoReturn:
        """Raise CimError naming the file, the node and its kind."""
        raise CimError(f"{self.where}: {complaint}")

    @property
    def where(self) -> str:
        """The file, the node and its kind."""
        return f"{self.graph.file}: {self.node.label} ({self.node.kind})"

    def input(self, index: int) -> str:
        """The name of an input; empty where it is left out."""
        return self.node.inputs[index] if index < len(self.node.inputs) else ""

    def value(self, index: int) -> Translated:
        """The value of an input."""
        name = self.input(index)
        if name not in self.values:
            self.fail(f"its input {name or index + 1} is not there")
        return self.values[name]

    def is_rows(self, index: int) -> bool:
        """True where an input depends on the graph's input."""
        return isinstance(self.value(index), Rows)

    def rows(self, index: int = 0) -> str:
        """The program's name of an input that depends on the graph's input."""
        value = self.value(index)
        if not isinstance(value, Rows):
            kind = KINDS.get(type(value), "a constant")
            self.fail(f"its input {self.input(index)} is {kind}; expected rows of numbers")
        return value.name

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """The axes of an input that depends on the graph's input, behind the rows."""
        name, value = self.rows(index), self.value(index)
        own = value.shape if isinstance(value, Rows) else ()
        return own or (self.width(name),)

    def flat_rows(self, index: int = 0) -> str:
        """The name of an input whose last axis is the whole row."""
        name, shape = self.rows(index), self.shape(index)
        if shape[-1] != self.width(name):
            self.fail(f"is over the last axis of [n, {', '.join(map(str, shape))}]; expected rows")
        return name

    def constant(self, index: int) -> FloatArray | None:
        """A constant input in float64, None where it is left out."""
        name = self.input(index)
        if not name:
            return None
        value = self.value(index)
        if not isinstance(value, np.ndarray) or value.dtype.kind in "OSUc":
            self.fail(f"its input {name} is computed; expected a constant of numbers")
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

    def channels(self, array: FloatArray, width: int, shape: tuple[int, ...] = ()) -> FloatArray:
        """One number a channel, from any shape that spreads over rows [n, width] and no further.

        Over rows [n, *shape] where their axes are given.
        """
        known = (1, *(shape or (width,)))
        try:
            spread = np.broadcast_to(array, known)
        except ValueError:
            self.fail(
                f"a constant has shape {list(array.shape)}; expected [{width}] or one number, of "
                "at most two axes"
            )
        return np.array(spread.reshape(-1))

    def number(self, name: str, absent: float, least: float = -np.inf) -> float:
        """A number among the attributes; CimError where it is not finite or below `least`."""
        value = float(self.node.attributes.get(name, absent))
        if not (np.isfinite(value) and value >= least):
            expected = "finite number" if least == -np.inf else f"number of at least {least:g}"
            self.fail(f"{name} is {value}; expected a {expected}")
        return value

    def axes(self) -> list[int]:
        """Axes as the second input or (before operator set 13 or 18) an attribute."""
        given = self.constant(1)
        found = self.node.attributes.get("axes", ()) if given is None else given.reshape(-1)
        return [int(axis) for axis in found]

    def require(self, name: str, accepted: tuple[int, ...], expected: str) -> None:
        """Raise CimError unless an attribute is one of `accepted`, the first where it is absent."""
        value = self.node.attributes.get(name, accepted[0])
        if value not in accepted:
            self.fail(f"{name} is {value}; expected {expected}")

    def width(self, value: str) -> int:
        """Extent of the rows of a value of the program."""
        return int(self.builder.types[value].shape[1])

    def add(self, op: Op, *inputs: str, name: str = "") -> Rows:
        """Append an operation, named after the node's output, `name`, or the node.

        The value has the axes of the first of the node's inputs that is as wide.
        """
        made = self.builder.add(self._plain(name), op, *inputs)
        given = (self.values.get(one) for one in self.node.inputs)
        shapes = (one.shape for one in given if isinstance(one, Rows) and one.shape)
        width = self.width(made)
        return Rows(made, next((own for own in shapes if math.prod(own) == width), ()))

    def part(self, name: str, op: Op, *inputs: str) -> str:
        """Append an operation of several that the node becomes; returns its value's name."""
        return self.builder.add(f"{self._plain()}_{name}", op, *inputs)

    def _plain(self, name: str = "") -> str:
        """A name without a dot: those that passes derive from them hold one."""
        outputs = self.graph.outputs
        roles = [role for role, value in outputs.items() if value == self.node.outputs[0]]
        own = roles[0] if roles else name or self._label()
        return re.sub(r"[^A-Za-z0-9]+", "_", own).strip("_") or self.node.kind.lower()

    def _label(self) -> str:
        """The last part of the node's name that says more than its kind; else its output's name.

        `/net/net.2/Relu` is `net.2`.
        """
        node = self.node
        if not node.name:
            return node.outputs[0]
        parts = [part for part in node.name.split("/") if part not in ("", "MatMul", node.kind)]
        return parts[-1] if parts else node.kind.lower()
