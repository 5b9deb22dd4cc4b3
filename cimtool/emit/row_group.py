"""A crossbar layer as ONNX nodes: one call of a local function for each row group.

Only uint8 x uint8 products (zero points 0 and 128) appear: they are exact on every CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import FunctionProto

from cimtool.base.arrays import IntArray
from cimtool.base.errors import CimError
from cimtool.emit.functions import row_group_mvm
from cimtool.emit.integers import INT32, byte_cuts, byte_planes, emit_requant, zero_point
from cimtool.emit.row_group_adc import row_group_adc
from cimtool.emit.writer import GraphWriter
from cimtool.hardware.converters import Law, StaircaseLaw, UniformLaw
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
    values |= _shape_values(writer, op, kind)
    division, of_cycles = _division(op, law), crossbar.reference_cycles > 1
    if division is None:
        values |= _masks(writer, op, law, kind)
        counts = [column.factors for column in op.columns]
    else:
        values |= _division_values(writer, op, law, division, kind)
        counts = [c.factors * s for c, s in zip(op.columns, division.steps, strict=True)]
    if of_cycles:  # codes are multiplied by their steps before cycles are added
        counts = [column.factors for column in op.columns[:: crossbar.reference_cycles]]
    factors = np.hstack(counts[: crossbar.slices])
    idle = (crossbar.column_leak * stored.cells.idle_rows)[:, None] * crossbar.zero_digits
    present = {
        "signed": division is None and crossbar.signed_sums,
        "raised": division is None and law.lo > 0,
        "set": division is not None and not division.tables,
        "levels": "start" in values,
        "lossless": "converted" in values,
        "cycles": of_cycles,
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
    if division is not None:
        by_group["least"] = _by_cycle(op, division.least)
    taken = [name for name in by_group if name in function.input]
    of_groups = [
        {name: writer.constant(by_group[name][r], kind) for name in taken}
        for r in range(len(stored.groups))
    ]
    total = _row_groups(writer, function, values, weights, stored.groups, of_groups)
    offsets = np.zeros(1, np.int64) if division is None else division.offsets(op)
    return _digital(writer, op, total if wide else writer.cast(total, "INT64"), x, offsets)


def _digital(writer: GraphWriter, op: CrossbarMvm, total: str, x: str, offsets: IntArray) -> str:
    """Append what the digital side adds to converted sums, int64: sums of inputs, and the bias.

    Sums of inputs correct complements and offset weights (unless the unit column does), and take
    off what erased cells leaked; `offsets` [N] is what converters took off. A sum in binary places
    is then rounded half up.
    """
    crossbar, stored = op.crossbar, op.stored
    counts = np.sum([s.signs << s.shift for s in stored.slices], axis=0)
    leak = crossbar.column_leak << crossbar.reference_bits
    leaked = factors = -leak * counts.astype(np.int64)
    if not crossbar.unit_column:
        factors = leaked + (stored.cells.row_sum_factors << crossbar.places)
    heights = np.array([group.stop - group.start for group in stored.groups], np.int64)
    ones = heights @ factors + stored.cells.idle_rows @ leaked
    constant = ones * crossbar.inputs.lift + offsets
    bias = op.bias - stored.correction
    total = _with_row_sums(writer, total, x, factors, stored.groups)
    if not crossbar.places:
        return _with_bias(writer, total, bias + constant)
    one, shift = np.array(1), np.array(crossbar.places)
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
    total, places = 0, op.crossbar.reference_bits
    for column in op.columns:
        factor = int(np.abs(column.factors).max())
        largest = max(int(np.abs(edge).max()) for edge in column.bounds) << places
        if column.references is not None:
            step, offset = column.references.step, int(np.abs(column.references.offset).max())
            own = column.references.law(law)
            largest += offset + step * (1 + max(map(abs, own.ends)))
            if isinstance(own, StaircaseLaw):
                first, entries = own.table
                largest = (largest << own.places) + step * max(len(entries), abs(first))
        drive = sum(1 << op.crossbar.cycles[c].shift for c in column.cycles)
        total += 2 * largest * factor * drive
    return total * len(op.stored.groups)


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


@dataclass(frozen=True)
class Division:
    """Conversions as quotients, (clip(2^rise p - least, 0, top)) // step, a value a column.

    Of each slice's columns, and the unit column: `steps`, `tops`, `least` [groups, N], and `zeros`
    [groups, N], what a quotient of zero stands for, in the places of the layer. The sums take on
    `rise` binary places. Where there are `tables`, one for all or one of each, a value is what
    they have at the quotient.
    """

    rise: int
    steps: list[int]
    tops: list[int]
    least: list[IntArray]
    zeros: list[IntArray]
    tables: list[IntArray]

    def offsets(self, op: CrossbarMvm) -> IntArray:
        """The sum of the zeros in each output [N], whatever the inputs."""
        parts = [
            (column.factors * zero).sum(axis=0) * op.crossbar.cycle_factors[column.cycles].sum()
            for column, zero in zip(op.columns, self.zeros, strict=True)
        ]
        return np.asarray(np.sum(parts, axis=0), np.int64)


def _division(op: CrossbarMvm, law: Law) -> Division | None:
    """The quotients of a layer's conversions; None where masks of bits do."""
    crossbar = op.crossbar
    laws = [one.law(law) for one in op.references if one is not None]
    tables = [own for own in laws if isinstance(own, StaircaseLaw)]
    if not tables and not crossbar.scope.set:
        return None
    places = crossbar.reference_bits
    fine = tables[0].places if tables else 0
    found = Division(places + fine, [], [], [], [], [])
    for column in op.columns:
        shape, one = column.bounds[0].shape, column.references
        step, own = (1, None) if one is None else (one.step, one.law(law))
        if tables:
            held = own if isinstance(own, StaircaseLaw) else tables[0]  # not read where lossless
            first, entries = held.table
            zero = np.zeros(shape, np.int64) if one is None else one.offset
            least, top = (zero << fine) + first * step, len(entries) * step - 1
            found.tables.append(entries)
        elif one is None:  # counted from the least sum, which no other sum is below
            least = zero = column.bounds[0] << places
            top = int((column.bounds[1] - column.bounds[0]).max()) << places
        else:
            assert isinstance(law, UniformLaw)
            zero = one.offset + law.lo * step
            least, top = zero - (step >> 1 if law.half else 0), (law.hi + 1 - law.lo) * step - 1
        found.steps.append(step)
        found.tops.append(top)
        found.least.append(np.broadcast_to(least, shape))
        found.zeros.append(np.broadcast_to(zero, shape))
    return found


def _of_columns(writer: GraphWriter, op: CrossbarMvm, values: Iterable[int], stored: str) -> str:
    """A constant of one number, or one a column of [slices * N + unit], of each cycle or of all."""
    found = np.array(list(values), np.int64)
    if (found == found[0]).all():
        return writer.constant(found[0], stored)
    every = [
        np.full((1, column.cells.digits.shape[1]), v)
        for v, column in zip(found, op.columns, strict=True)
    ]
    return writer.constant(_by_cycle(op, every)[0], stored)


def _by_cycle(op: CrossbarMvm, values: Sequence[IntArray]) -> IntArray:
    """Values [groups, N] of each of the op's columns side by side, as they meet column sums.

    That is [groups, slices * N + unit], or [groups, cycles, 1, slices * N + unit].
    """
    cycles = op.crossbar.reference_cycles
    if cycles == 1:
        return np.hstack(values)
    return np.stack([np.hstack(values[c::cycles]) for c in range(cycles)], axis=1)[:, :, None]


def _division_values(
    writer: GraphWriter, op: CrossbarMvm, law: Law, division: Division, kind: str
) -> dict[str, str]:
    """Constants of conversions by division."""
    values = {
        "rise": writer.constant(np.int64(1) << division.rise, kind),
        "zero": writer.constant(np.int64(0), kind),
        "step": _of_columns(writer, op, division.steps, kind),
        "top": _of_columns(writer, op, division.tops, kind),
    }
    if division.tables:
        distinct = {table.tobytes(): table for table in division.tables}
        ends = np.cumsum([len(table) for table in distinct.values()]).tolist()
        starts = dict(zip(distinct, [0, *ends], strict=False))
        values["table"] = writer.constant(np.concatenate(list(distinct.values())), kind)
        if len(distinct) > 1:
            own = (starts[table.tobytes()] for table in division.tables)
            values["start"] = _of_columns(writer, op, own, kind)
        if None in op.references:
            converted = (one is not None for one in op.references)
            values["converted"] = _of_columns(writer, op, converted, "BOOL")
            places = np.int64(1) << op.crossbar.reference_bits
            values["finer"] = writer.constant(places, kind)
    elif isinstance(law, UniformLaw) and law.to_even:
        evens = (step % 2 == 0 for step in division.steps)
        values["evens"] = _of_columns(writer, op, evens, kind)
        values["one"] = writer.constant(np.int64(1), kind)
        values["lowest_code"] = writer.constant(np.int64(law.lo), kind)
    return values


def _masks(writer: GraphWriter, op: CrossbarMvm, law: Law, kind: str) -> dict[str, str]:
    """Constants of conversions from zero by powers of two."""
    assert not isinstance(law, StaircaseLaw)
    steps = [None if one is None else one.step for one in op.references]
    limits = np.iinfo(np.int64 if kind == "INT64" else np.int32)
    least, most = int(limits.min), int(limits.max)

    def of_columns(values: Iterable[int]) -> str:
        return _of_columns(writer, op, (min(max(v, least), most) for v in values), kind)

    even = int(law.to_even)
    return {
        "half": of_columns(0 if step in (None, 1) else (step >> 1) - even for step in steps),
        "odd": of_columns(step if step is not None and step > 1 else 0 for step in steps),
        "one": writer.constant(np.int64(1), kind),
        "mask": of_columns(-(step or 1) for step in steps),
        "lowest": of_columns(least if step is None else law.lo * step for step in steps),
        "highest": of_columns(most if step is None else law.hi * step for step in steps),
    }


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
