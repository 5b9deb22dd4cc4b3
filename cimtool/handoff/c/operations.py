"""Operations in C: a rule for each operation of the compiled program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cimtool.base.errors import CimError
from cimtool.handoff.c.layer import emit_mvm
from cimtool.handoff.c.writer import CValue, FunctionWriter, products_fit
from cimtool.hardware.cell_distance import CellDistance
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Add, Arrange, Axis, BatchMatMul, Clip, MatMul, Mul, Sum
from cimtool.ir.backends import C_MODEL
from cimtool.ir.integer import Dequantize, Quantize, Requant
from cimtool.ir.op import Op
from cimtool.ir.types import Types


def append(writer: FunctionWriter, op: Op, types: Types, inputs: Sequence[CValue]) -> CValue:
    """Append one operation, whose value goes to the writer's place; return where it is."""
    value: CValue = C_MODEL.of(op)(writer, op, types, *inputs)
    return value


@C_MODEL.rule(CrossbarMvm)
def _crossbar_mvm(writer: FunctionWriter, op: CrossbarMvm, types: Types, x: CValue) -> CValue:
    return emit_mvm(writer, op, types[0], x)


@C_MODEL.rule(CellDistance)
def _cell_distance(writer: FunctionWriter, op: CellDistance, types: Types, x: CValue) -> CValue:
    raise CimError(
        "shortlist.search: the C model has no content-addressable memory; expected a gallery in "
        "the arrays of the target"
    )


@C_MODEL.rule(Arrange)
def _arrange(writer: FunctionWriter, op: Arrange, types: Types, x: CValue) -> CValue:
    if op.rows > 1 or len(op.places) > 1:
        raise writer.refuse("several rows of an item, as tokens and groups of channels are")
    places = writer.constant("places", op.places[0])
    return writer.each(f"{x.name}[{places}]" if x.count else x.name)


@C_MODEL.rule(BatchMatMul)
def _batch_matmul(
    writer: FunctionWriter, op: BatchMatMul, types: Types, a: CValue, b: CValue
) -> CValue:
    raise writer.refuse("a product of an item's own rows, as attention has it")


@C_MODEL.rule(MatMul)
def _matmul(writer: FunctionWriter, op: MatMul, types: Types, a: CValue, b: CValue) -> CValue:
    narrow = products_fit(types[0], types[1], op.infer(*types))
    first = f"(int32_t){a.element}" if narrow else a.wide
    return writer.total(f"{first} * {b.element}", a.count, narrow)


@C_MODEL.rule(Sum)
def _sum(writer: FunctionWriter, op: Sum, types: Types, x: CValue) -> CValue:
    return writer.total(x.wide, x.count, narrow=False)


@C_MODEL.rule(Mul)
def _mul(writer: FunctionWriter, op: Mul, types: Types, a: CValue, b: CValue) -> CValue:
    return writer.each(f"{a.wide} * {b.wide}")


@C_MODEL.rule(Add)
def _add(writer: FunctionWriter, op: Add, types: Types, *inputs: CValue) -> CValue:
    terms = []
    for index, (factor, x) in enumerate(zip(op.factors, inputs, strict=True)):
        by = writer.constant(f"factor{index}", factor)
        terms.append(f"(uint64_t){x.wide}" if by == "1" else f"(uint64_t)({x.wide}) * {_bits(by)}")
    if np.any(op.offset):
        terms.append(_bits(writer.constant("offset", op.offset)))
    return writer.each(f"cim_signed({' + '.join(terms)})")


def _bits(number: str) -> str:
    """A signed number as the 64 bits that stand for it: sums may wrap on the way."""
    return f"(uint64_t)(int64_t)({number})"


@C_MODEL.rule(Clip)
def _clip(writer: FunctionWriter, op: Clip, types: Types, x: CValue) -> CValue:
    (known,) = types
    lo, hi = (np.clip(bound, known.lo.min(), known.hi.max()) for bound in (op.lo, op.hi))
    ends = (writer.constant(name, end.astype(np.int64)) for name, end in (("lo", lo), ("hi", hi)))
    return writer.each(f"cim_clip({x.wide}, {', '.join(ends)})")


@C_MODEL.rule(Requant)
def _requant(writer: FunctionWriter, op: Requant, types: Types, x: CValue) -> CValue:
    parts = [
        writer.constant(name, np.asarray(getattr(op, name)))
        for name in ("multiplier", "shift", "lo", "hi")
    ]
    return writer.each(f"cim_requant({x.wide}, {', '.join(parts)})")


@C_MODEL.rule(Axis, Dequantize, Quantize)
def _identity(writer: FunctionWriter, op: Op, types: Types, x: CValue) -> CValue:
    """The same integers: pairs meet one at a time, and units are those of the caller."""
    return x
