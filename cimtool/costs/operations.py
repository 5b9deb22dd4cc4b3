"""Digital operations of each node of a program, by kind: their number and width."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.hardware.cell_distance import CellDistance
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import (
    Add,
    Arrange,
    Axis,
    BatchMatMul,
    Clip,
    MatMul,
    Mul,
    Sum,
    SumOfMaxima,
)
from cimtool.ir.backends import COSTS
from cimtool.ir.integer import Dequantize, Quantize, Requant
from cimtool.ir.program import Graph, Node
from cimtool.ir.types import Type, rows_of_item

ARITHMETIC = ("multiplications", "additions", "shifts", "limits")
"""Kinds that every program has, in the order of tables."""

FLOAT_BITS = 32
"""Bits of a number that is not an integer."""


@dataclass(frozen=True)
class Tally:
    """Operations of one kind: their `count`, and their `size`, which the price is multiplied by.

    The size of an operation is its bits, the product of its operands' bits, or 1.
    """

    count: int = 0
    size: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.count + other.count, self.size + other.size)


@dataclass(frozen=True)
class Operations:
    """Digital operations by kind, as listed under `kinds` in prices.toml."""

    tallies: Mapping[str, Tally] = field(default_factory=dict)

    @classmethod
    def of(cls, kind: str, count: int, *bits: int) -> Operations:
        """`count` operations of a kind, each of these widths."""
        return cls({kind: Tally(count, count * math.prod(bits))} if count else {})

    @classmethod
    def sum(cls, many: Iterable[Operations]) -> Operations:
        """The sum of all operations."""
        total: dict[str, Tally] = {}
        for one in many:
            for kind, tally in one.tallies.items():
                total[kind] = total[kind] + tally if kind in total else tally
        return cls(total)

    def __add__(self, other: Operations) -> Operations:
        return self.sum((self, other))

    def _tally(self, kind: str) -> Tally:
        return self.tallies.get(kind, Tally())

    def times(self, count: int) -> Operations:
        """The operations times `count`."""
        scaled = {k: Tally(t.count * count, t.size * count) for k, t in self.tallies.items()}
        return Operations(scaled if count else {})

    def count(self, *kinds: str) -> int:
        """The number of operations of these kinds."""
        return sum(self._tally(kind).count for kind in kinds)

    @property
    def multiplications(self) -> int:
        """The number of multiplications of two integers."""
        return self.count("multiplications")

    @property
    def total(self) -> int:
        """The number of all operations."""
        return self.count(*self.tallies)

    def to_json(self) -> dict[str, int]:
        """Counts by kind, arithmetic first."""
        return {kind: self.count(kind) for kind in dict.fromkeys((*ARITHMETIC, *self.tallies))}


def digital_products(products: int, bits: int) -> Operations:
    """Products of `bits` in the digital unit, each added to a sum."""
    work = Operations.of("multiplications", products, bits, bits)
    return work + Operations.of("additions", products, 2 * bits)


def elements(known: Type, extents: Mapping[str, int]) -> int:
    """Numbers in a value, with named extents (`n` queries, `m` items) as given."""
    return math.prod(e if isinstance(e, int) else _rows(e, extents) for e in known.shape)


def _rows(extent: str, extents: Mapping[str, int]) -> int:
    rows, symbol = rows_of_item(extent)
    return rows * extents[symbol]


def width(known: Type) -> int:
    """Bits of a value's numbers."""
    return known.bits if known.is_integer else FLOAT_BITS


def digital(graph: Graph, node: Node, extents: Mapping[str, int]) -> Operations:
    """Digital operations of one node; for a crossbar product, the ones after shift-and-add.

    Raises TypeError for an operation that no compiled program holds.
    """
    found: Operations = COSTS.of(node.op)(
        node.op, [graph.types[name] for name in node.inputs], graph.types[node.name], extents
    )
    return found


def traffic(graph: Graph, node: Node, extents: Mapping[str, int]) -> Operations:
    """Moves of a node's numbers: into and out of the arrays, and to a register or the buffer.

    An encoder's value is written to the buffer and read once; a value of all pairs passes through
    a register. `Estimate.walk` counts the reads of a gallery's stored values.
    """
    out = graph.types[node.name]
    count, bits = elements(out, extents), width(out)
    if isinstance(node.op, Arrange | Axis | Dequantize):
        return Operations()
    if graph.name in ("text", "video"):
        found = Operations.of("sram", 2 * count, bits)
    else:
        found = Operations.of("registers", count, bits)
    if isinstance(node.op, CrossbarMvm):
        (sent,) = (graph.types[name] for name in node.inputs)
        found += Operations.of("wires", elements(sent, extents), width(sent))
        found += Operations.of("wires", count, bits)
    return found


@COSTS.rule(CrossbarMvm)
def _crossbar(
    op: CrossbarMvm, inputs: list[Type], out: Type, extents: Mapping[str, int]
) -> Operations:
    """The bias, the values of codes and, for cells with offsets or complements, the inputs' sum."""
    rows = elements(inputs[0], extents) // op.weight.shape[0]
    found = Operations.of("additions", op.weight.shape[1], width(out)) + _values_of_codes(op, out)
    factors = op.stored.cells.row_sum_factors
    factors = np.abs(factors[factors != 0])
    if factors.size:
        powers = int(np.count_nonzero(factors & (factors - 1) == 0))
        sums = 0 if op.crossbar.unit_column else op.weight.shape[0]
        bits = width(inputs[0]) + (op.weight.shape[0] - 1).bit_length()
        factor_bits = int(factors.max()).bit_length()
        found += Operations.of("multiplications", factors.size - powers, bits, factor_bits)
        found += Operations.of("additions", sums, bits)
        found += Operations.of("additions", factors.size, width(out))
        found += Operations.of("shifts", powers, width(out))
    return found.times(rows)


def _values_of_codes(op: CrossbarMvm, out: Type) -> Operations:
    """Operations that turn codes into values if references are set, for one row of inputs.

    Codes of one step are summed first, over the row groups of an output and over cycles that share
    the step. Each such sum then takes one multiplication and one addition, or none if the step is a
    power of two. With levels, each conversion reads a value from registers. Offsets are part of a
    column's bias.
    """
    groups, found = len(op.stored.groups), Operations()
    for column in op.layer.columns:
        law, many = column.law, column.cells.digits.shape[1]
        if law is None:
            continue
        lo, hi = law.ends
        if op.crossbar.scope.levels:
            bits = int(max(-lo, hi) * column.step.max()).bit_length() + 1
            found += Operations.of("registers", groups * len(column.cycles) * many, bits)
        else:
            bits = (max(-lo, hi) * groups * column.drive).bit_length() + 1
            step_bits = int(column.step.max()).bit_length()
            products = _products(column.step)
            found += Operations.of("multiplications", products, bits, step_bits)
            found += Operations.of("additions", products, width(out))
    return found


def _products(steps: IntArray) -> int:
    """The different steps [groups, N] of an output that are no powers of two, of all outputs."""
    rising = np.sort(steps, axis=0)
    repeated = np.zeros(rising.shape, np.bool_)
    repeated[1:] = rising[1:] == rising[:-1]
    return int(np.count_nonzero((rising & rising - 1 != 0) & ~repeated))


@COSTS.rule(MatMul, BatchMatMul)
def _matmul(
    op: MatMul | BatchMatMul, inputs: list[Type], out: Type, extents: Mapping[str, int]
) -> Operations:
    products = elements(out, extents) * int(inputs[0].shape[-1])
    one = Operations.of("multiplications", products, *map(width, inputs))
    return one + Operations.of("additions", products, width(out))


@COSTS.rule(Add)
def _add(op: Add, inputs: list[Type], out: Type, extents: Mapping[str, int]) -> Operations:
    many = len(inputs) - 1 + int(np.any(op.offset))
    found = Operations.of("additions", many, width(out))
    for factor, x in zip(op.factors, inputs, strict=True):
        found += _factor(factor, width(x), width(out))
    return found.times(elements(out, extents))


def _factor(factor: Array, bits: int, wide: int) -> Operations:
    """One factor: nothing for 1 and -1, a shift for powers of two, else a multiplication."""
    sizes = {abs(one) for one in np.asarray(factor, np.int64).ravel().tolist()}
    if sizes == {1}:
        return Operations()
    if all(one.bit_count() == 1 for one in sizes):
        return Operations.of("shifts", 1, wide)
    return Operations.of("multiplications", 1, bits, max(sizes).bit_length())


@COSTS.rule(Sum)
def _sum(op: Sum, inputs: list[Type], out: Type, extents: Mapping[str, int]) -> Operations:
    added = elements(inputs[0], extents) - elements(out, extents)
    return Operations.of("additions", added, width(out))


@COSTS.rule(SumOfMaxima)
def _sum_of_maxima(
    op: SumOfMaxima, inputs: list[Type], out: Type, extents: Mapping[str, int]
) -> Operations:
    """A comparison for each number of a row but the first, as a limit; the maxima are added."""
    pairs = elements(out, extents)
    compared = Operations.of("limits", pairs * op.rows * (op.columns - 1), width(inputs[0]))
    return compared + Operations.of("additions", pairs * (op.rows - 1), width(out))


@COSTS.rule(Mul)
def _mul(op: Mul, inputs: list[Type], out: Type, extents: Mapping[str, int]) -> Operations:
    return Operations.of("multiplications", elements(out, extents), *map(width, inputs))


@COSTS.rule(Requant)
def _requant(op: Requant, inputs: list[Type], out: Type, extents: Mapping[str, int]) -> Operations:
    count, bits = elements(out, extents), width(inputs[0])
    multiplier = int(np.max(np.abs(op.multiplier))).bit_length()
    found = Operations.of("multiplications", count, bits, multiplier)
    for kind in ("additions", "shifts"):
        found += Operations.of(kind, count, bits + multiplier)
    return found + Operations.of("limits", count, width(out))


@COSTS.rule(CellDistance)
def _cell_distance(
    op: CellDistance, inputs: list[Type], out: Type, extents: Mapping[str, int]
) -> Operations:
    """Digital additions of the codes of an item's words."""
    added = elements(out, extents) * (len(op.words) - 1)
    return Operations.of("additions", added, width(out))


CountRule = Callable[[object, list[Type], Type, Mapping[str, int]], Operations]


def _each(*kinds: str) -> CountRule:
    """One operation of each kind per number of the result, as wide as the widest value."""

    def rule(op: object, inputs: list[Type], out: Type, extents: Mapping[str, int]) -> Operations:
        found, bits = Operations(), max(map(width, (*inputs, out)))
        for kind in kinds:
            found += Operations.of(kind, elements(out, extents), bits)
        return found

    return rule


COSTS.rule(Clip)(_each("limits"))
COSTS.rule(Dequantize)(_each("shifts"))
COSTS.rule(Arrange, Axis)(_each())

SIGNIFICAND_BITS = 24
"""Bits of a float32's significand."""


@COSTS.rule(Quantize)
def _quantize(
    op: Quantize, inputs: list[Type], out: Type, extents: Mapping[str, int]
) -> Operations:
    """Rounding and limits; a multiplication in place of the division if a scale is not 2^k."""
    found = _each("additions", "shifts", "limits")(op, inputs, out, extents)
    if np.all(np.frexp(op.scale)[0] == 0.5):
        return found
    factors = (SIGNIFICAND_BITS,) * 2
    return found + Operations.of("multiplications", elements(out, extents), *factors)
