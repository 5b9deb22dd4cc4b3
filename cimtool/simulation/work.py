"""The work of a graph in its readable form, by which little work is told from much."""

from __future__ import annotations

import math
from collections.abc import Mapping

from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import BatchMatMul, MatMul, Mvm
from cimtool.ir.program import Graph, Node
from cimtool.ir.types import rows_of_item

LITTLE = 100_000_000
"""Multiply-accumulates and numbers that readable operations compute in less than a second.

Compiling the kernels of a program takes some 10 seconds when they are first used on a machine.
"""


def readable_work(graph: Graph, items: Mapping[str, int]) -> int:
    """The multiply-accumulates and other numbers of a graph's values, computed readably.

    `items` are the numbers of items by symbol: `n`, and of pairs `m`.
    """
    return sum(
        math.prod(_count(extent, items) for extent in graph.types[node.name].shape)
        * _depth(graph, node)
        for node in graph.nodes
    )


def _count(extent: str | int, items: Mapping[str, int]) -> int:
    if isinstance(extent, int):
        return extent
    rows, symbol = rows_of_item(extent)
    return rows * items[symbol]


def _depth(graph: Graph, node: Node) -> int:
    """The terms of each number of a value."""
    op = node.op
    if isinstance(op, CrossbarMvm) and not op.exact:
        return len(op.weight) * op.crossbar.slices * len(op.crossbar.cycles)
    if isinstance(op, Mvm | CrossbarMvm):
        return len(op.weight)
    if isinstance(op, MatMul | BatchMatMul):
        return int(graph.types[node.inputs[0]].shape[-1])
    return 1
