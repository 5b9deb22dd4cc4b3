"""A crossbar layer as ONNX nodes: one call of a local function for each row group.

Only uint8 x uint8 products (zero points 0 and 128) appear: they are exact on every CPU.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from onnx import FunctionProto

from cimtool.base.arrays import IntArray
from cimtool.base.errors import CimError
from cimtool.emit.functions import row_group_mvm
from cimtool.emit.integers import INT32, byte_cuts, byte_planes, emit_requant, zero_point
from cimtool.emit.row_group_adc import row_group_adc
from cimtool.emit.writer import GraphWriter
from cimtool.hardware.converters import Law, StaircaseLaw, threshold_shifts
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import mvm_bounds
from cimtool.ir.types import Type, integer

BYTE_ROWS = 1 << 15
"""Rows whose byte products add up in int32, whatever the bytes."""

InputPlane = tuple[str, str, int]
"""uint8 value, its zero point, and the shift with which it counts."""
WeightPlane = tuple[IntArray, int]
"""uint8 matrix as it is stored, and its zero point; each counts a byte more than the one before."""


def emit_mvm(writer: GraphWriter, op: CrossbarMvm, x_type: Type, x: str) -> str:
    """Append `crossbar.mvm(x) + bias`: a call a row group, then the digital sum, int64 [n, N].

    Raises CimError where a row group has more rows than byte products add up in 32 bits.
    """
    tallest = max(group.stop - group.start for group in op.stored.groups)
    if tallest > BYTE_ROWS:
        raise CimError(
            f"array rows: a row group of {tallest} rows cannot be emitted as integer ONNX; "
            f"expected at most {BYTE_ROWS} rows"
        )
    if op.exact or op.crossbar.law is None:
        return _exact(writer, op, x_type, x)
    return _converted(writer, op, op.crossbar.law, x)


def _exact(writer: GraphWriter, op: CrossbarMvm, x_type: Type, x: str) -> str:
    """Lossless converters: slices and cycles merge into one integer product a row group."""
    lo, hi = mvm_bounds(op.weight, np.zeros_like(op.bias), x_type)
    wide = bool(max(hi.max(), -lo.min()) > INT32.max)
    inputs, weights = byte_planes(writer, x_type, x), constant_planes(op.weight)
    function = row_group_mvm(len(inputs), len(weights), wide)
    values = _product_values(writer, inputs, weights, wide)
    total = _row_groups(writer, function, values, weights, op.stored.groups)
    return _with_bias(writer, total if wide else writer.cast(total, "INT64"), op.bias)


def _converted(writer: GraphWriter, op: CrossbarMvm, law: Law, x: str) -> str:
    """Converters that round or clip: every slice and cycle of every row group as it is."""
    crossbar, stored = op.crossbar, op.stored
    wide = _reach(op, law) > INT32.max
    kind = "INT64" if wide else "INT32"
    inputs = _input_digits(writer, crossbar, x)
    columns = [cells.digits for cells in stored.slices]
    if crossbar.column_leak or crossbar.unit_column:
        columns.append(stored.unit_cells.digits)
    weights = constant_planes(np.hstack(columns).astype(np.int64))
    values = _product_values(writer, inputs, weights, wide)
    values |= _converter_values(writer, op, law, kind) | _shape_values(writer, op, kind)
    counts = [column.factors << _level_shift(law, column.step) for column in op.columns]
    factors = np.hstack(counts[: crossbar.slices])
    idle = (crossbar.column_leak * stored.cells.idle_rows)[:, None] * crossbar.zero_digits
    present = {
        "signed": crossbar.signed_sums,
        "raised": law.lo > 0,
        "lossless": "converted" in values,
        "scaled": (factors != 1).any(),
        "leaking": crossbar.column_leak > 0,
        "idle": idle.any(),
        "unit": crossbar.unit_column,
        "wide": wide,
    }
    flags = {name for name, has in present.items() if has}
    function = row_group_adc(crossbar, (len(inputs), len(weights)), flags)
    by_group = {
        "slice_factors": factors,
        "idle": idle[:, :, None, None],
        "unit_factors": counts[-1],
    }
    taken = [name for name in by_group if name in function.input]
    of_groups = [
        {name: writer.constant(by_group[name][r], kind) for name in taken}
        for r in range(len(stored.groups))
    ]
    total = _row_groups(writer, function, values, weights, stored.groups, of_groups)
    return _digital(writer, op, total if wide else writer.cast(total, "INT64"), x)


def _digital(writer: GraphWriter, op: CrossbarMvm, total: str, x: str) -> str:
    """Append what the digital side adds to converted sums, int64: sums of inputs, and the bias.

    Sums of inputs correct complements and offset weights (unless the unit column does), and take
    off what erased cells leaked; a sum in binary places is then rounded half up.
    """
    crossbar, stored = op.crossbar, op.stored
    counts = np.sum([s.signs << s.shift for s in stored.slices], axis=0)
    leaked = factors = -crossbar.column_leak * counts.astype(np.int64)
    if not crossbar.unit_column:
        factors = leaked + (stored.cells.row_sum_factors << crossbar.fraction_bits)
    heights = np.array([group.stop - group.start for group in stored.groups], np.int64)
    ones = heights @ factors + stored.cells.idle_rows @ leaked
    constant = ones * crossbar.inputs.lift
    bias = op.bias - stored.correction
    total = _with_row_sums(writer, total, x, factors, stored.groups)
    if not crossbar.fraction_bits:
        return _with_bias(writer, total, bias + constant)
    one, shift = np.array(1), np.array(crossbar.fraction_bits)
    return _with_bias(writer, emit_requant(writer, total, one, shift, constant), bias)


def _row_groups(
    writer: GraphWriter,
    function: FunctionProto,
    values: dict[str, str],
    weights: list[WeightPlane],
    groups: tuple[slice, ...],
    own: list[dict[str, str]] | None = None,
) -> str:
    """Append one call a row group and the sum of all; `own` holds values of one group alone."""
    total = ""
    for index, group in enumerate(groups):
        values["first"] = writer.constant(np.array([group.start]))
        values["end"] = writer.constant(np.array([group.stop]))
        for j, (matrix, _) in enumerate(weights):
            values[f"w{j}"] = writer.constant(matrix[group], "UINT8")
        known = values | (own[index] if own else {})
        product = writer.call(
            function,
            *(known[i] for i in function.input),
            label=f"rows{index}/mvm",
            rows=f"{group.start}:{group.stop}",
        )
        total = writer.node("Add", total, product) if total else product
    return total


def _with_bias(writer: GraphWriter, total: str, bias: IntArray) -> str:
    return writer.node("Add", total, writer.constant(bias)) if bias.any() else total


def _product_values(
    writer: GraphWriter, inputs: list[InputPlane], weights: list[WeightPlane], wide: bool
) -> dict[str, str]:
    """Arguments of a row group's function for its integer products, but for rows and cells."""
    values = {"axis": writer.constant(np.array([-1]))}
    for i, (plane, zero_name, _) in enumerate(inputs):
        values |= {f"x{i}": plane, f"x{i}_zero": zero_name}
    for j, (_, zero) in enumerate(weights):
        values[f"w{j}_zero"] = zero_point(writer, zero)
    for k in range(1, len(inputs) + len(weights) - 1):
        byte = np.int64(1) << np.int64(8 * k)
        values[f"byte{k}"] = writer.constant(byte, "INT64" if wide else "INT32")
    return values


def constant_planes(matrix: IntArray) -> list[WeightPlane]:
    """Cut a matrix of integers into uint8 planes; only the top one is signed (zero point 128)."""
    cuts = byte_cuts(int(matrix.min()), int(matrix.max()))
    return [((matrix >> shift) + zero & 255, zero) for shift, zero in cuts]


def _input_digits(writer: GraphWriter, crossbar: Crossbar, x: str) -> list[InputPlane]:
    """Append the digits that each converted sum is of, uint8 [cycles, n, K], once for the layer.

    Two's complement needs no case of its own: its digits are the low bits of any wider integer.
    """
    inputs, cycles = crossbar.inputs, crossbar.cycles
    if inputs.lift:
        x = writer.node("Add", x, writer.constant(np.int64(inputs.lift)))
    lo, hi = crossbar.digit_limits
    digits_type = integer(("cycles", "n", "K"), lo, hi, 1.0)
    if crossbar.shift_add == "analog":  # each input is one digit
        whole = writer.node("Unsqueeze", x, writer.constant(np.array([0])))
        return byte_planes(writer, digits_type, whole)
    sign = ""
    if inputs.sign_magnitude:
        one = np.int64(1)
        sign = writer.node("Clip", x, writer.constant(-one), writer.constant(one))
        x = writer.node("Mul", x, sign)
    shifts = np.array([cycle.shift for cycle in cycles]).reshape(-1, 1, 1)
    masks = np.array([cycle.mask for cycle in cycles]).reshape(-1, 1, 1)
    unsigned = writer.cast(writer.node("Unsqueeze", x, writer.constant(np.array([0]))), "UINT64")
    shifted = writer.node(
        "BitShift", unsigned, writer.constant(shifts, "UINT64"), direction="RIGHT"
    )
    digits = writer.node("BitwiseAnd", shifted, writer.constant(masks, "UINT64"))
    digits = writer.cast(digits, "INT64")
    if sign:
        digits = writer.node("Mul", digits, sign)
    return byte_planes(writer, digits_type, digits)


def _reach(op: CrossbarMvm, law: Law) -> int:
    """No integer on the way from column sums to the layer's sum is larger than this."""
    total = 0
    for column in op.columns:
        step, factor = column.step or 0, int(np.abs(column.factors).max())
        read = [op.crossbar.read(edge, column.step) for edge in column.bounds]
        largest, value = (max(int(np.abs(e).max()) for e in ends) for ends in (column.bounds, read))
        total += max(largest + (1 << step), value) * factor
        if isinstance(law, StaircaseLaw):
            entries = max(len(law.table[1]), *map(abs, law.ends))
            total += (entries << threshold_shifts(step)[1]) * factor
    drive = sum(1 << cycle.shift for cycle in op.crossbar.cycles)
    return total * drive * len(op.stored.groups)


def _shape_values(writer: GraphWriter, op: CrossbarMvm, kind: str) -> dict[str, str]:
    """Constants of shift-and-add, and of what cells conduct."""
    crossbar = op.crossbar
    width = crossbar.slices * op.weight.shape[1]
    factors = crossbar.cycle_factors[None]
    values = {
        "by_cycle": writer.constant(np.array([len(crossbar.cycles), -1])),
        "by_row": writer.constant(np.array([-1, width + crossbar.unit_column])),
        "cycle_factors": writer.constant(factors, kind),
    }
    if crossbar.unit_column or crossbar.column_leak:
        values["widths"] = writer.constant(np.array([width, 1]))
    if crossbar.column_leak:
        values["digit"] = writer.constant(np.int64(1) << crossbar.fraction_bits, kind)
        values["leak"] = writer.constant(np.int64(crossbar.column_leak), kind)
    return values


def _converter_values(writer: GraphWriter, op: CrossbarMvm, law: Law, kind: str) -> dict[str, str]:
    """Constants of the conversion, each one number or one a column of [slices * N + unit]."""
    steps = [column.step for column in op.columns]
    repeats = [column.cells.digits.shape[1] for column in op.columns]
    limits = np.iinfo(np.int64 if kind == "INT64" else np.int32)
    least, most = int(limits.min), int(limits.max)

    def of_columns(values: Iterable[int], stored: str = kind) -> str:
        clipped = np.array([min(max(value, least), most) for value in values], np.int64)
        if (clipped == clipped[0]).all():
            return writer.constant(clipped[0], stored)
        return writer.constant(np.repeat(clipped, repeats), stored)

    if isinstance(law, StaircaseLaw):
        first, table = law.table
        last = first + len(table) - 1
        shifts = [threshold_shifts(step or 0) for step in steps]
        values = {
            "table": writer.constant(table, kind),
            "lowest": of_columns(first >> rise << fall for rise, fall in shifts),
            "highest": of_columns(last >> rise << fall for rise, fall in shifts),
            "rise": of_columns(1 << rise for rise, _ in shifts),
            "fall": of_columns((fall for _, fall in shifts), f"U{kind}"),
        }
        if None in steps:
            values["converted"] = of_columns((step is not None for step in steps), "BOOL")
        return values
    even = int(law.to_even)
    return {
        "half": of_columns((1 << step - 1) - even if step else 0 for step in steps),
        "odd": of_columns(1 << step if step else 0 for step in steps),
        "one": writer.constant(np.int64(1), kind),
        "mask": of_columns(-(1 << (step or 0)) for step in steps),
        "lowest": of_columns(least if step is None else law.lo << step for step in steps),
        "highest": of_columns(most if step is None else law.hi << step for step in steps),
    }


def _level_shift(law: Law, step: int | None) -> int:
    """Bits that conversions leave for shift-and-add: tables give levels, formulas code << e."""
    return step or 0 if isinstance(law, StaircaseLaw) else 0


def _with_row_sums(
    writer: GraphWriter, total: str, x: str, factors: IntArray, groups: tuple[slice, ...]
) -> str:
    """Append sums of inputs, each counted `factors` [groups, N] times."""
    if not factors.any():
        return total
    if (factors == factors[0]).all():
        factors, groups = factors[:1], (slice(0, groups[-1].stop),)
    heights = [group.stop - group.start for group in groups]
    member = np.repeat(np.eye(len(groups), dtype=np.int64), heights, axis=0)
    sums = writer.node("MatMul", x, writer.constant(member))
    return writer.node("Add", total, writer.node("MatMul", sums, writer.constant(factors)))
