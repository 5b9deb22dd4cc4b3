"""What the values of an ONNX graph stand for while its nodes become operations of a program."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.ir.op import Op
from cimtool.ir.program import Builder
from cimtool.loading.onnx_graph import OnnxGraph, OnnxNode


@dataclass(frozen=True)
class Rows:
    """Numbers that depend on the input, [n, width]: the name of a value in the program."""

    name: str


@dataclass(frozen=True)
class Norms:
    """Euclidean norms [n, 1] of the rows of a value of the program: good to divide it by."""

    of: str


Value = Rows | Norms | Array
"""What an ONNX value stands for; an array is a constant."""


class Translation:
    """An ONNX graph on its way into a builder: what each of its values stands for."""

    def __init__(self, graph: OnnxGraph, builder: Builder, x: str):
        self.graph = graph
        self.builder = builder
        self.values: dict[str, Value] = {**graph.constants, graph.x: Rows(x)}

    def value(self, node: OnnxNode, index: int) -> Value:
        """What an input of a node stands for; CimError where there is none."""
        name = node.input(index)
        if name not in self.values:
            self.graph.fail(node, f"its input {name or index + 1} is not there")
        return self.values[name]

    def rows(self, node: OnnxNode, index: int = 0) -> str:
        """The program's name of an input that depends on the graph's input."""
        value = self.value(node, index)
        if not isinstance(value, Rows):
            what = "row norms" if isinstance(value, Norms) else "a constant"
            self.graph.fail(
                node, f"its input {node.input(index)} is {what}; expected rows of numbers"
            )
        return value.name

    def constant(self, node: OnnxNode, index: int) -> FloatArray | None:
        """A constant input in float64, None where it is left out; CimError for anything else."""
        name = node.input(index)
        if not name:
            return None
        value = self.value(node, index)
        if isinstance(value, Rows | Norms) or value.dtype.kind in "OSUc":
            self.graph.fail(node, f"its input {name} is computed; expected a constant of numbers")
        return value.astype(np.float64)

    def weights(self, node: OnnxNode, index: int) -> FloatArray:
        """A constant of finite numbers; CimError where it is left out or holds others."""
        array = self.constant(node, index)
        if array is None:
            self.graph.fail(node, f"its input {index + 1} is missing")
        if not np.isfinite(array).all():
            bad = array[~np.isfinite(array)].flat[0]
            self.graph.fail(node, f"{node.input(index)} holds {bad}; expected finite weights")
        return array

    def width(self, name: str) -> int:
        """Extent of the rows of a value of the program."""
        return int(self.builder.types[name].shape[1])

    def add(self, node: OnnxNode, op: Op, *inputs: str, name: str = "") -> Rows:
        """Append an operation, named after the node's output, `name`, or the node."""
        roles = [role for role, value in self.graph.outputs.items() if value == node.outputs[0]]
        own = roles[0] if roles else name or _label(node)
        return Rows(self.builder.add(plain(own) or node.kind.lower(), op, *inputs))


def _label(node: OnnxNode) -> str:
    """The last part of the node's name that says more than its kind: `/net/net.2/Relu`: `net.2`.

    A node without a name is called as its output is.
    """
    if not node.name:
        return node.outputs[0]
    parts = [part for part in node.name.split("/") if part not in ("", "MatMul", node.kind)]
    return parts[-1] if parts else node.kind.lower()


def plain(name: str) -> str:
    """A name of letters, digits and `_`: those that passes derive from it hold a dot."""
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
