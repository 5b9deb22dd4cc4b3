"""A crossbar layer as ONNX nodes: one call of a local function for each row group.

Only uint8 x uint8 products (zero points 0 and 128) appear: they are exact on every CPU.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import FunctionProto

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import CimError
from cimtool.emit.functions import row_group_mvm
from cimtool.emit.integers import INT32, byte_planes, zero_point
from cimtool.emit.row_group_adc import Conversion, row_group_adc
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
WeightPlane = tuple[IntArray, int, int]
"""uint8 matrix as it is stored, its zero point, and the shift with which it counts."""


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
    idle = (crossbar.column_leak * stored.idle_rows)[:, None] * crossbar.zero_digits
    wide = _reach(op, law) > INT32.max
    kind = "INT64" if wide else "INT32"
    inputs = _input_digits(writer, crossbar, x)
    columns = [cells.digits for cells in stored.slices]
    if crossbar.column_leak or crossbar.unit_column:
        columns.append(stored.unit_cells.digits)
    weights = constant_planes(np.hstack(columns).astype(np.int64))
    factors = _slice_factors(op)
    form = Conversion(
        inputs=len(inputs),
        weights=len(weights),
        slices=len(stored.slices),
        cycles=len(crossbar.cycles),
        rounding=None if isinstance(law, StaircaseLaw) else law.rounding,
        signed=crossbar.signed_sums,
        scaled=bool((factors != 1).any()),
        leaking=crossbar.column_leak > 0,
        idle=bool(idle.any()),
        unit=crossbar.unit_column,
        wide=wide,
    )
    values = _product_values(writer, inputs, weights, wide)
    values |= _converter_values(writer, op, law, kind) | _shape_values(writer, op, kind)
    own: list[dict[str, str]] = [{} for _ in stored.groups]
    for r, constants in enumerate(own):
        if form.scaled:
            constants["slice_factors"] = writer.constant(factors[r], kind)
        if form.idle:
            constants["idle"] = writer.constant(idle[r].reshape(-1, 1, 1), kind)
        if form.unit:
            unit_factors = stored.row_sum_factors[r] << _level_shift(law, op.unit_step)
            constants["unit_factors"] = writer.constant(unit_factors, kind)
    total = _row_groups(writer, row_group_adc(form), values, weights, stored.groups, own)
    return _digital(writer, op, total if wide else writer.cast(total, "INT64"), x)


def _digital(writer: GraphWriter, op: CrossbarMvm, total: str, x: str) -> str:
    """Append what the digital side adds to converted sums, int64: sums of inputs, and the bias.

    Sums of inputs make good complements and offset weights (unless the unit column does), and take
    off what erased cells leaked; a sum in binary places is then rounded half up.
    """
    crossbar, stored = op.crossbar, op.stored
    counts = np.sum([s.signs << s.shift for s in stored.slices], axis=0)
    leaked = factors = -crossbar.column_leak * counts.astype(np.int64)
    if not crossbar.unit_column:
        factors = leaked + (stored.row_sum_factors << crossbar.fraction_bits)
    heights = np.array([group.stop - group.start for group in stored.groups], np.int64)
    ones = heights @ factors + stored.idle_rows @ leaked
    constant = ones * crossbar.inputs.lift
    bias = op.bias - stored.correction
    total = _with_row_sums(writer, total, x, factors, stored.groups)
    if crossbar.fraction_bits:
        return _with_bias(writer, _whole(writer, total, constant, crossbar.fraction_bits), bias)
    return _with_bias(writer, total, bias + constant)


def _whole(writer: GraphWriter, total: str, constant: IntArray, fraction: int) -> str:
    """Append `total + constant` rounded half up to whole numbers, int64."""
    one = np.int64(1)
    period = (one << 62) >> fraction
    return writer.call(
        "Requant",
        total,
        writer.constant(one),
        writer.constant((period << fraction) + (one << fraction - 1) + constant),
        writer.constant(np.uint64(fraction), "UINT64"),
        writer.constant(period),
    )


def _row_groups(
    writer: GraphWriter,
    function: FunctionProto,
    values: dict[str, str],
    weights: list[WeightPlane],
    groups: tuple[slice, ...],
    own: list[dict[str, str]] | None = None,
) -> str:
    """Append one call a row group and the sum of all; `own` holds values of one group alone."""
    name, total = writer.define(function), ""
    for index, group in enumerate(groups):
        values["first"] = writer.constant(np.array([group.start]))
        values["end"] = writer.constant(np.array([group.stop]))
        for j, (matrix, _, _) in enumerate(weights):
            values[f"w{j}"] = writer.constant(matrix[group], "UINT8")
        known = values | (own[index] if own else {})
        product = writer.call(
            name,
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
    """What a row group's function takes for its integer products, but for rows and cells."""
    values = {"axis": writer.constant(np.array([-1]))}
    for i, (plane, zero, _) in enumerate(inputs):
        values |= {f"x{i}": plane, f"x{i}_zero": zero}
    for j, (_, zero_value, _) in enumerate(weights):
        values[f"w{j}_zero"] = zero_point(writer, zero_value)
    for k in range(1, len(inputs) + len(weights) - 1):
        byte = np.int64(1) << np.int64(8 * k)
        values[f"byte{k}"] = writer.constant(byte, "INT64" if wide else "INT32")
    return values


def constant_planes(matrix: IntArray) -> list[WeightPlane]:
    """Cut a matrix of integers into uint8 planes; only the top one is signed (zero point 128)."""
    planes, shift = [], 0
    while not (matrix.min() >= -128 and matrix.max() <= 127) and not (
        matrix.min() >= 0 and matrix.max() <= 255
    ):
        planes.append((matrix & 255, 0, shift))
        matrix, shift = matrix >> 8, shift + 8
    zero = 0 if matrix.min() >= 0 else 128
    planes.append((matrix + zero, zero, shift))
    return planes


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
    crossbar, stored = op.crossbar, op.stored
    factors = [1 << cells.shift for cells in stored.slices]
    columns = list(zip(stored.bounds, op.steps, factors, strict=True))
    if crossbar.unit_column:
        most = int(np.abs(stored.row_sum_factors).max())
        columns.append((stored.unit_bounds, op.unit_step, most))
    total = 0
    for bounds, step, factor in columns:
        largest = max(int(np.abs(edge).max()) for edge in bounds)
        total += (largest + (1 << (step or 0))) * factor
        if isinstance(law, StaircaseLaw):
            entries = max(len(law.table[1]), *map(abs, law.ends))
            total += (entries << _threshold_shifts(step)[1]) * factor
    drive = sum(1 << cycle.shift for cycle in crossbar.cycles)
    return total * drive * len(stored.groups)


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
    steps, width = op.steps, op.weight.shape[1]
    limits = np.iinfo(np.int64 if kind == "INT64" else np.int32)

    def of_columns(value_of: Callable[[int | None], int], stored: str = kind) -> str:
        values = [value_of(step) for step in steps]
        if op.crossbar.unit_column:
            values.append(value_of(op.unit_step))
        clipped = [min(max(value, int(limits.min)), int(limits.max)) for value in values]
        if len(set(clipped)) == 1:
            return writer.constant(np.array(clipped[0], np.int64), stored)
        repeats = np.array([width] * len(steps) + [1] * (len(values) - len(steps)))
        return writer.constant(np.repeat(np.array(clipped, np.int64), repeats), stored)

    if isinstance(law, StaircaseLaw):
        first, table = law.table
        last = first + len(table) - 1
        return {
            "table": writer.constant(table, kind),
            "lowest": of_columns(lambda step: _table_sum(first, step)),
            "highest": of_columns(lambda step: _table_sum(last, step)),
            "rise": of_columns(lambda step: 1 << _threshold_shifts(step)[0]),
            "fall": of_columns(lambda step: _threshold_shifts(step)[1], f"U{kind}"),
        }
    lo, hi, even = law.lo, law.hi, int(law.to_even)
    return {
        "half": of_columns(lambda step: (1 << step - 1) - even if step else 0),
        "odd": of_columns(lambda step: 1 << step if step else 0),
        "one": writer.constant(np.int64(1), kind),
        "mask": of_columns(lambda step: -(1 << (step or 0))),
        "lowest": of_columns(lambda step: int(limits.min) if step is None else lo << step),
        "highest": of_columns(lambda step: int(limits.max) if step is None else hi << step),
    }


def _table_sum(entry: int, step: int | None) -> int:
    rise, fall = _threshold_shifts(step)
    return entry >> rise << fall


def _threshold_shifts(step: int | None) -> tuple[int, int]:
    if step is None:
        raise TypeError("every conversion by thresholds has a step")
    return threshold_shifts(step)


def _level_shift(law: Law, step: int | None) -> int:
    """Bits that conversions leave for shift-and-add: tables give levels, formulas code << e."""
    return step or 0 if isinstance(law, StaircaseLaw) else 0


def _slice_factors(op: CrossbarMvm) -> IntArray:
    """What a converted sum counts [groups, slices * N]: negative where cells hold complements."""
    law = op.crossbar.law
    shifts = [0 if law is None else _level_shift(law, step) for step in op.steps]
    counts = zip(op.stored.slices, shifts, strict=True)
    return np.hstack([s.signs << s.shift + shift for s, shift in counts])


def _with_row_sums(
    writer: GraphWriter, total: str, x: str, factors: IntArray, groups: tuple[slice, ...]
) -> str:
    """Append sums of inputs, each counted `factors` [groups, N] times."""
    if not factors.any():
        return total
    if (factors == factors[0]).all():
        factors, groups = factors[:1], (slice(0, groups[-1].stop),)
    member: Array = np.zeros((groups[-1].stop, len(groups)), np.int64)
    for index, group in enumerate(groups):
        member[group, index] = 1
    sums = writer.node("MatMul", x, writer.constant(member))
    return writer.node("Add", total, writer.node("MatMul", sums, writer.constant(factors)))
