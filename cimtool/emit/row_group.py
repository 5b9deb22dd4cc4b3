"""A crossbar layer as ONNX nodes: one call of a local function for each row group.

Only uint8 x uint8 products (zero points 0 and 128) appear: they are exact on every CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cimtool.arrays import Array, IntArray
from cimtool.emit.functions import Conversion, row_group_adc, row_group_mvm
from cimtool.emit.writer import GraphWriter
from cimtool.errors import CimError
from cimtool.hardware.crossbar import (
    Crossbar,
    Slice,
    column_bounds,
    correction,
    encode_weights,
    input_cycles,
)
from cimtool.ir.arithmetic import byte_planes, mvm_bounds, zero_point
from cimtool.ir.types import Type, integer

if TYPE_CHECKING:
    from onnx import FunctionProto

    from cimtool.hardware.mvm import CrossbarMvm

INT32 = np.iinfo(np.int32)
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
    tallest = max(group.stop - group.start for group in op.crossbar.groups(len(op.weight)))
    if tallest > BYTE_ROWS:
        raise CimError(
            f"array rows: a row group of {tallest} rows cannot be emitted as integer ONNX; "
            f"expected at most {BYTE_ROWS} rows"
        )
    if op.exact:
        return _exact(writer, op, x_type, x)
    return _converted(writer, op, x)


def _exact(writer: GraphWriter, op: CrossbarMvm, x_type: Type, x: str) -> str:
    """Lossless converters: slices and cycles merge into one integer product a row group."""
    lo, hi = mvm_bounds(op.weight, np.zeros_like(op.bias), x_type)
    wide = bool(max(hi.max(), -lo.min()) > INT32.max)
    inputs, weights = byte_planes(writer, x_type, x), constant_planes(op.weight)
    function = row_group_mvm(len(inputs), len(weights), wide)
    values = _product_values(writer, inputs, weights, wide)
    groups = op.crossbar.groups(len(op.weight))
    total = _row_groups(writer, function, values, weights, groups)
    return _with_bias(writer, total if wide else writer.cast(total, "INT64"), op.bias)


def _converted(writer: GraphWriter, op: CrossbarMvm, x: str) -> str:
    """Converters that round or clip: every slice and cycle of every row group as it is."""
    crossbar, cycles = op.crossbar, input_cycles(op.crossbar)
    slices = encode_weights(op.weight, crossbar)
    groups = crossbar.groups(len(op.weight))
    wide = _reach(op, slices) > INT32.max
    inputs = _input_digits(writer, crossbar, x)
    weights = constant_planes(np.hstack([cells.digits for cells in slices]))
    factors = _slice_factors(slices)
    form = Conversion(
        inputs=len(inputs),
        weights=len(weights),
        slices=len(slices),
        cycles=len(cycles),
        rounding=crossbar.rounding,
        signed=crossbar.signed_sums,
        scaled=bool((factors != 1).any()),
        wide=wide,
    )
    kind = "INT64" if wide else "INT32"
    values = _product_values(writer, inputs, weights, wide) | _converter_values(writer, op, kind)
    values["by_cycle"] = writer.constant(np.array([len(cycles), -1]))
    values["by_row"] = writer.constant(np.array([-1, factors.shape[1]]))
    values["cycle_factors"] = writer.constant(
        np.array([[sign << shift for shift, _, sign in cycles]]), kind
    )
    own = (
        [{"slice_factors": writer.constant(row, kind)} for row in factors] if form.scaled else None
    )
    total = _row_groups(writer, row_group_adc(form), values, weights, groups, own)
    total = total if wide else writer.cast(total, "INT64")
    factors_of_sums = _row_sum_factors(slices, crossbar)
    bias = op.bias - correction(op.weight, crossbar)
    if crossbar.input_encoding == "offset":
        heights = np.array([group.stop - group.start for group in groups], np.int64)
        bias = bias + (heights << crossbar.input_bits - 1) @ factors_of_sums
    total = _with_row_sums(writer, total, x, factors_of_sums, groups)
    return _with_bias(writer, total, bias)


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
    """Append the digits that each cycle drives, uint8 [cycles, n, K], once for the layer.

    Two's complement needs no case of its own: its digits are the low bits of any wider integer.
    """
    cycles = input_cycles(crossbar)
    shifts = np.array([shift for shift, _, _ in cycles]).reshape(-1, 1, 1)
    masks = np.array([(1 << bits) - 1 for _, bits, _ in cycles]).reshape(-1, 1, 1)
    sign = ""
    if crossbar.input_encoding == "bipolar":
        one = np.int64(1)
        sign = writer.node("Clip", x, writer.constant(-one), writer.constant(one))
        x = writer.node("Mul", x, sign)
    elif crossbar.input_encoding == "offset":
        x = writer.node("Add", x, writer.constant(np.int64(1) << crossbar.input_bits - 1))
    unsigned = writer.cast(writer.node("Unsqueeze", x, writer.constant(np.array([0]))), "UINT64")
    shifted = writer.node(
        "BitShift", unsigned, writer.constant(shifts, "UINT64"), direction="RIGHT"
    )
    digits = writer.node("BitwiseAnd", shifted, writer.constant(masks, "UINT64"))
    digits = writer.cast(digits, "INT64")
    lo, hi = 0, int(masks.max())
    if sign:
        digits, lo = writer.node("Mul", digits, sign), -hi
    return byte_planes(writer, integer(("cycles", "n", "K"), lo, hi, 1.0), digits)


def _reach(op: CrossbarMvm, slices: tuple[Slice, ...]) -> int:
    """No integer on the way from column sums to the layer's sum is larger than this."""
    drive = sum(1 << shift for shift, _, _ in input_cycles(op.crossbar))
    groups = len(op.crossbar.groups(len(op.weight)))
    total = 0
    for cells, step in zip(slices, op.steps, strict=True):
        largest = max(int(np.abs(edge).max()) for edge in column_bounds(cells, op.crossbar))
        total += largest + (1 << (step or 0)) << cells.shift
    return total * drive * groups


def _converter_values(writer: GraphWriter, op: CrossbarMvm, kind: str) -> dict[str, str]:
    """Constants of the conversion, each one number or one a column of [slices * N]."""
    width = op.weight.shape[1]
    lo, hi = op.crossbar.adc_limits
    limits = np.iinfo(np.int64 if kind == "INT64" else np.int32)

    def of_slices(values: list[int]) -> str:
        clipped = [min(max(value, int(limits.min)), int(limits.max)) for value in values]
        if len(set(clipped)) == 1:
            return writer.constant(np.array(clipped[0], np.int64), kind)
        return writer.constant(np.repeat(np.array(clipped, np.int64), width), kind)

    even = int(op.crossbar.rounding == "half-even")
    steps = op.steps
    return {
        "half": of_slices([(1 << s - 1) - even if s else 0 for s in steps]),
        "odd": of_slices([1 << s if s else 0 for s in steps]),
        "one": writer.constant(np.int64(1), kind),
        "mask": of_slices([-(1 << (s or 0)) for s in steps]),
        "lowest": of_slices([int(limits.min) if s is None else lo << s for s in steps]),
        "highest": of_slices([int(limits.max) if s is None else hi << s for s in steps]),
    }


def _slice_factors(slices: tuple[Slice, ...]) -> IntArray:
    """What a converted sum counts [groups, slices * N]: negative where cells hold complements."""
    return np.hstack([np.where(s.flipped, -s.sign, s.sign) << s.shift for s in slices])


def _row_sum_factors(slices: tuple[Slice, ...], crossbar: Crossbar) -> IntArray:
    """How often the sum of a group's encoded inputs is added to each output [groups, N]."""
    complements = [s.flipped * (s.sign * crossbar.cell_maximum << s.shift) for s in slices]
    total = np.sum(complements, axis=0)
    if crossbar.encoding in ("offset", "offset-flip"):
        total = total - (1 << crossbar.weight_bits - 1)
    return np.asarray(total, np.int64)


def _with_row_sums(
    writer: GraphWriter, total: str, x: str, factors: IntArray, groups: tuple[slice, ...]
) -> str:
    """Append the digital corrections of complements and offset weights: sums of inputs."""
    if not factors.any():
        return total
    if (factors == factors[0]).all():
        factors, groups = factors[:1], (slice(0, groups[-1].stop),)
    member: Array = np.zeros((groups[-1].stop, len(groups)), np.int64)
    for index, group in enumerate(groups):
        member[group, index] = 1
    sums = writer.node("MatMul", x, writer.constant(member))
    return writer.node("Add", total, writer.node("MatMul", sums, writer.constant(factors)))
