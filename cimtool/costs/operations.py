"""Digital operations for each node of a program: multiply, add, shift and limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass

import numpy as np

from cimtool.base.arrays import Array
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Add, Axis, Clip, MatMul, Mul, Sum
from cimtool.ir.backends import COSTS
from cimtool.ir.integer import Dequantize, Quantize, Requant
from cimtool.ir.program import Graph, Node
from cimtool.ir.types import Type


@dataclass(frozen=True)
class Operations:
    """Counts of digital operations, each on one pair of integers."""

    multiplications: int = 0
    additions: int = 0
    shifts: int = 0
    limits: int = 0

    def __add__(self, other: Operations) -> Operations:
        return Operations(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def times(self, count: int) -> Operations:
        """As many, `count` times over."""
        return Operations(*(one * count for one in astuple(self)))

    @property
    def total(self) -> int:
        """All of them."""
        return sum(astuple(self))


def elements(known: Type, extents: Mapping[str, int]) -> int:
    """Numbers in a value, with named extents (`n` queries, `m` items) as given."""
    return math.prod(extents[e] if isinstance(e, str) else e for e in known.shape)


def digital(graph: Graph, node: Node, extents: Mapping[str, int]) -> Operations:
    """Digital operations of one node; of a crossbar product those behind shift-and-add.

    Raises TypeError for an operation that no compiled program holds.
    """
    found: Operations = COSTS.of(node.op)(
        node.op, [graph.types[name] for name in node.inputs], graph.types[node.name], extents
    )
    return found


@COSTS.rule(CrossbarMvm)
def _crossbar(
    op: CrossbarMvm, inputs: list[Type], out: Type, extents: Mapping[str, int]
) -> Operations:
    """The bias; and where cells hold offsets or complements, the inputs' sum in each output."""
    rows = elements(inputs[0], extents) // op.weight.shape[0]
    found = Operations(additions=op.weight.shape[1])
    factors = op.stored.cells.row_sum_factors
    factors = np.abs(factors[factors != 0])
    if factors.size:
        powers = int(np.count_nonzero(factors & (factors - 1) == 0))
        sums = 0 if op.crossbar.unit_column else op.weight.shape[0]
        found += Operations(factors.size - powers, sums + factors.size, powers)
    return found.times(rows)


@COSTS.rule(MatMul)
def _matmul(op: MatMul, inputs: list[Type], out: Type, extents: Mapping[str, int]) -> Operations:
    products = elements(out, extents) * int(inputs[0].shape[-1])
    return Operations(products, products)


@COSTS.rule(Add)
def _add(op: Add, inputs: list[Type], out: Type, extents: Mapping[str, int]) -> Operations:
    found = Operations(additions=len(inputs) - 1 + int(np.any(op.offset)))
    for factor in op.factors:
        found += _factor(factor)
    return found.times(elements(out, extents))


def _factor(factor: Array) -> Operations:
    """One factor: nothing for 1 and -1, a shift for powers of two, else a multiplication."""
    size = np.unique(np.abs(np.asarray(factor, np.int64)))
    if np.array_equal(size, [1]):
        return Operations()
    powers = bool(np.all(size > 0) and np.all(size & (size - 1) == 0))
    return Operations(shifts=1) if powers else Operations(multiplications=1)


@COSTS.rule(Sum)
def _sum(op: Sum, inputs: list[Type], out: Type, extents: Mapping[str, int]) -> Operations:
    return Operations(additions=elements(inputs[0], extents) - elements(out, extents))


def _each(one: Operations) -> Callable[..., Operations]:
    """So many operations for each number of the result."""
    return lambda op, inputs, out, extents: one.times(elements(out, extents))


COSTS.rule(Mul)(_each(Operations(multiplications=1)))
COSTS.rule(Requant)(_each(Operations(1, 1, 1, 1)))
COSTS.rule(Clip)(_each(Operations(limits=1)))
COSTS.rule(Quantize)(_each(Operations(additions=1, shifts=1, limits=1)))
COSTS.rule(Dequantize)(_each(Operations(shifts=1)))
COSTS.rule(Axis)(_each(Operations()))
