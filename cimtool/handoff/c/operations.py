"""Operations in C: a rule for each operation of the compiled program.

A crossbar layer is one integer product if it is exact; else each row group, cycle and slice is
computed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.handoff.c.writer import (
    ConstantTables,
    CValue,
    FunctionWriter,
    literal,
)
from cimtool.hardware.cell_distance import CellDistance
from cimtool.hardware.converted_layer import ConvertedColumns, ConvertedLayer
from cimtool.hardware.converters import Law, StaircaseLaw
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
from cimtool.ir.backends import C_MODEL
from cimtool.ir.integer import Dequantize, Quantize, Requant
from cimtool.ir.op import Op
from cimtool.ir.types import Type, Types

INT8, INT16, INT32 = (np.iinfo(kind) for kind in (np.int8, np.int16, np.int32))

BLOCK = 64
"""Columns that the model computes at a time: CIM_BLOCK of cim.h."""

ROUNDINGS = {"half-up": "CIM_HALF_UP", "half-even": "CIM_HALF_EVEN", "floor": "CIM_FLOOR"}


def append(writer: FunctionWriter, op: Op, types: Types, inputs: Sequence[CValue]) -> CValue:
    """Append one operation, whose value goes to the writer's place; return the value."""
    value: CValue = C_MODEL.of(op)(writer, op, types, *inputs)
    return value


@C_MODEL.rule(CrossbarMvm)
def _crossbar_mvm(writer: FunctionWriter, op: CrossbarMvm, types: Types, x: CValue) -> CValue:
    """`crossbar.mvm(x) + bias`; CimError for inputs, cells or weights beyond 32 bits."""
    (known,) = types
    lo, hi = int(known.lo.min()), int(known.hi.max())
    if not _within(INT32, lo, hi):
        raise writer.refuse(f"its inputs reach {max(hi, -lo)}, beyond 32 bits")
    if op.exact:
        return _product(writer, op, known, x)
    wide = not _within(INT16, lo, hi)
    x = writer.widened(x, "int32_t" if wide else "int16_t")
    name = f"{writer.tables.prefix(writer.layer)}_layer"
    writer.definitions.append(layer_definition(writer.tables, writer.layer, op.layer, wide))
    value = writer.placed("int64_t")
    first, count = writer.start or "0", value.count or "1"
    writer.each_item(f"cim_mvm(weights, &{name}, {x.pointer}, {first}, {count}, {value.pointer});")
    return value


@C_MODEL.rule(CellDistance)
def _cell_distance(writer: FunctionWriter, op: CellDistance, types: Types, x: CValue) -> CValue:
    """`cim_search` of each item's words: the cells of an item, then those of the next."""
    cells = writer.pointer("cells", op.stored, "int8_t")
    top = "INT64_MAX" if op.top is None else literal(op.top)
    fixed = f"{op.stored.shape[1]}, {op.cells}, {op.distance_number}, {op.step}, {top}"
    row = f"(int64_t)({writer.start or '0'} + j) * {op.stored.shape[1]}"
    x = writer.widened(x, "int16_t")
    return writer.each(f"cim_search({cells} + {row}, {x.pointer}, {fixed})")


@C_MODEL.rule(Arrange)
def _arrange(writer: FunctionWriter, op: Arrange, types: Types, x: CValue) -> CValue:
    if op.rows > 1 or len(op.places) > 1:
        raise writer.refuse("several rows per item, such as tokens or groups of channels")
    places = writer.constant("places", op.places[0])
    return writer.each(f"{x.name}[{places}]" if x.count else x.name)


@C_MODEL.rule(BatchMatMul)
def _batch_matmul(
    writer: FunctionWriter, op: BatchMatMul, types: Types, a: CValue, b: CValue
) -> CValue:
    raise writer.refuse("a product of an item's own rows, as in attention")


@C_MODEL.rule(SumOfMaxima)
def _sum_of_maxima(writer: FunctionWriter, op: SumOfMaxima, types: Types, x: CValue) -> CValue:
    raise writer.refuse("a maximum over the tokens of an item")


@C_MODEL.rule(MatMul)
def _matmul(writer: FunctionWriter, op: MatMul, types: Types, a: CValue, b: CValue) -> CValue:
    one, other, total = (int(known.magnitude) for known in (*types, op.infer(*types)))
    narrow = max(one * other, total) <= INT32.max
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
    """A signed number as its 64 bits, so that sums may wrap in between."""
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
    """The input unchanged: pairs are scored one at a time, and the caller knows the units."""
    return x


def _product(writer: FunctionWriter, op: CrossbarMvm, known: Type, x: CValue) -> CValue:
    weight = op.weight
    least, most = int(weight.min()), int(weight.max())
    reach = np.broadcast_to(np.maximum(-known.lo, known.hi), len(weight))
    # Sums are added up in any order, so each partial sum must fit.
    narrow = int((reach @ np.abs(weight)).max()) <= INT32.max and _within(
        INT16, int(known.lo.min()), int(known.hi.max())
    )
    if narrow and _within(INT16, least, most):
        bits, kind = (8 if _within(INT8, least, most) else 16), "int16_t"
    elif _within(INT32, least, most):
        bits, kind = 32, "int32_t"
    else:
        raise writer.refuse(f"its weights reach {max(most, -least)}, beyond 32 bits")
    x = writer.widened(x, kind)
    matrix = writer.pointer("weight", weight.T, f"int{bits}_t")
    bias = writer.pointer("bias", op.bias, "int64_t")
    value = writer.placed("int64_t")
    first, count = writer.start or "0", value.count or "1"
    items, place = ("end - at", "i - at") if writer.rows else ("1", "0")
    writer.lines += ["{", f"const {kind} *in[CIM_ITEMS];", "int64_t *out[CIM_ITEMS];"]
    writer.each_item(f"in[{place}] = {x.pointer};", f"out[{place}] = {value.pointer};")
    call = f"cim_product{bits}({matrix}, {bias}, {len(weight)}, {items}, in, {first}, {count}, out)"
    writer.lines += [f"{call};", "}"]
    return value


def layer_definition(
    tables: ConstantTables, layer: str, record: ConvertedLayer, wide_input: bool
) -> str:
    """The definition of a `cim_layer`; its arrays of a number a column or cell go into `tables`."""
    held, crossbar = record.cells, record.crossbar
    name, cells = tables.prefix(layer), np.stack(held.digits)
    # Narrow: cells fit 8 bits and sums of digits times cells fit 32, for any inputs.
    least, most = int(cells.min()), int(cells.max())
    reach = max(map(abs, crossbar.digit_limits)) * int(held.heights.max())
    wide = not _within(INT8, least, most) or reach * max(most, -least) > INT32.max
    flipped = np.stack([one.flipped for one in held.slices], axis=1)
    *_, last = record.columns
    laws: list[Law] = []
    converters = [
        _converter(tables, (layer, index), name, column, laws)
        for index, column in enumerate(record.columns)
    ]

    def placed(what: str, numbers: IntArray) -> str:
        """The place of 64-bit numbers; -1 if all are 0."""
        return tables.add(f"{layer}.{what}", numbers, "int64_t") if numbers.any() else "-1"

    fields = {
        "rows": cells.shape[1],
        "columns": cells.shape[2],
        "slices": len(cells),
        "groups": len(held.groups),
        "cycles": len(crossbar.cycles),
        "wide": int(wide),
        "wide_input": int(wide_input),
        "sign_magnitude": int(crossbar.inputs.sign_magnitude),
        "reference_cycles": crossbar.reference_cycles,
        "fraction_bits": held.fraction_bits,
        "reference_bits": crossbar.reference_bits,
        "lift": literal(crossbar.inputs.lift),
        "leak": literal(held.leak),
        "cells": tables.add(f"{layer}.cells", in_blocks(cells), "int32_t" if wide else "int8_t"),
        "flipped": tables.add(f"{layer}.flipped", flipped, "uint8_t") if flipped.any() else "-1",
        "unit_factors": placed("unit_factors", last.factors) if crossbar.unit_column else "-1",
        "row_factors": placed("row_factors", record.row_factors),
        "starts": placed("starts", record.starts),
        "bias": tables.add(f"{layer}.bias", record.bias, "int64_t"),
        "idle_sums": f"{name}_idle_sums" if held.idle_sums.any() else "0",
        "group": f"{name}_groups",
        "cycle": f"{name}_cycles",
        "slice": f"{name}_slices",
        "converter": f"{name}_converters",
    }
    arrays = [
        *(_law(f"{name}_law{index}", law) for index, law in enumerate(laws)),
        _array("cim_group", f"{name}_groups", [(g.start, g.stop) for g in held.groups]),
        _array(
            "cim_cycle",
            f"{name}_cycles",
            [(c.shift, c.bits or 0, c.sign) for c in crossbar.cycles],
        ),
        _array("cim_slice", f"{name}_slices", [(s.shift, s.sign * s.factor) for s in held.slices]),
        _array("cim_converter", f"{name}_converters", converters),
    ]
    if held.idle_sums.any():
        sums = ", ".join(map(literal, held.idle_sums.reshape(-1).tolist()))
        arrays.append(f"static const int64_t {name}_idle_sums[] = {{{sums}}};")
    initial = ",\n".join(f"    .{field} = {value}" for field, value in fields.items())
    return "\n".join([*arrays, f"static const cim_layer {name}_layer = {{\n{initial},\n}};\n"])


def in_blocks(cells: IntArray) -> IntArray:
    """Cells [slices, K, N] in the order of cim.h: block of columns by block, row by row.

    So a block's rows are contiguous in memory.
    """
    starts = range(BLOCK, cells.shape[2], BLOCK)
    blocks = np.split(cells, list(starts), axis=2)
    return np.hstack([block.reshape(len(cells), -1) for block in blocks])


def _converter(
    tables: ConstantTables,
    place: tuple[str, int],
    name: str,
    column: ConvertedColumns,
    laws: list[Law],
) -> tuple[object, ...]:
    """The fields of one converter; its law joins `laws` unless it is already there."""
    law, (layer, index) = column.law, place
    if law is None:
        return "0", 0, -1, -1, -1
    if law not in laws:
        laws.append(law)
    step, steps, offset = column.one_step, "-1", "-1"
    if step is None:  # 1 says that they convert
        step, steps = 1, tables.add(f"{layer}.step{index}", column.step, "int64_t")
    if column.offset.any():
        offset = tables.add(f"{layer}.offset{index}", column.offset, "int64_t")
    return f"&{name}_law{laws.index(law)}", literal(step), column.exponent, steps, offset


def _law(name: str, law: Law) -> str:
    if not isinstance(law, StaircaseLaw):
        fields = (ROUNDINGS[law.rounding], 0, law.lo, law.hi, 0, 0)
        return f"static const cim_law {name} = {{{', '.join(map(str, fields))}}};"
    tables = [
        f"static const int64_t {name}_{what}[] = {{{', '.join(map(str, numbers.tolist()))}}};"
        for what, numbers in (("thresholds", law.thresholds), ("levels", law.levels))
    ]
    return "\n".join(
        [
            *tables,
            f"static const cim_law {name} = {{CIM_STAIRCASE, {law.places}, {law.lo}, {law.hi}, "
            f"{name}_thresholds, {name}_levels}};",
        ]
    )


def _array(kind: str, name: str, entries: Sequence[tuple[object, ...]]) -> str:
    lines = ",\n".join(f"    {{{', '.join(map(str, entry))}}}" for entry in entries)
    return f"static const {kind} {name}[] = {{\n{lines}}};"


def _within(limits: np.iinfo, lo: int, hi: int) -> bool:
    return bool(limits.min <= lo and hi <= limits.max)
