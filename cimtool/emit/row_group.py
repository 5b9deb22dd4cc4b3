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
from cimtool.hardware.converted_layer import ConvertedLayer
from cimtool.hardware.converters import Law, StaircaseLaw, UniformLaw
from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import mvm_bounds
from cimtool.ir.types import Type, integer

BYTE_ROWS = 1 << 15
"""Rows whose byte products add up in int32 for any bytes."""

InputPlane = tuple[str, str, int]
"""uint8 value, its zero point, and the shift with which it counts."""
WeightPlane = tuple[IntArray, int]
"""uint8 matrix as it is stored, and its zero point; each counts a byte more than the one before."""


def emit_mvm(writer: GraphWriter, op: CrossbarMvm, x_type: Type, x: str) -> str:
    """Append `crossbar.mvm(x) + bias`: one call per row group, then the digital sum, int64 [n, N].

    Raises CimError if a row group has more rows than byte products add up in 32 bits.
    """
    tallest = max(group.stop - group.start for group in op.stored.groups)
    if tallest > BYTE_ROWS:
        raise CimError(
            f"array rows: a row group of {tallest} rows cannot be emitted as integer ONNX; "
            f"expected at most {BYTE_ROWS} rows"
        )
    law = op.crossbar.law
    if op.exact or law is None:
        return _exact(writer, op, x_type, x)
    return _converted(writer, op.layer, law, x)


def _exact(writer: GraphWriter, op: CrossbarMvm, x_type: Type, x: str) -> str:
    """Lossless converters: slices and cycles merge into one integer product a row group."""
    lo, hi = mvm_bounds(op.weight, np.zeros_like(op.bias), x_type)
    wide = bool(max(hi.max(), -lo.min()) > INT32.max)
    inputs, weights = byte_planes(writer, x_type, x), constant_planes(op.weight)
    function = row_group_mvm(len(inputs), len(weights), wide)
    values = _product_values(writer, inputs, weights, wide)
    total = _row_groups(writer, function, values, weights, op.stored.groups)
    return _with_bias(writer, total if wide else writer.cast(total, "INT64"), op.bias)


def _converted(writer: GraphWriter, layer: ConvertedLayer, law: Law, x: str) -> str:
    """Converters that round or clip: every slice and cycle of every row group as it is."""
    cells, crossbar, columns = layer.cells, layer.crossbar, layer.columns
    wide = _reach(layer) > INT32.max
    kind = "INT64" if wide else "INT32"
    inputs = _input_digits(writer, crossbar, x)
    # A leak is added in the graph: cells keep their bytes.
    held = [*cells.digits]
    if cells.leak or crossbar.unit_column:
        held.append(cells.unit.digits)
    weights = constant_planes(np.hstack(held).astype(np.int64))
    values = _product_values(writer, inputs, weights, wide)
    values |= _shape_values(writer, layer, kind)
    division, again = _division(layer), crossbar.reference_cycles
    counts = [column.factors for column in columns[::again]]
    if division is None:
        values |= _masks(writer, layer, law, kind)
    else:
        values |= _division_values(writer, layer, law, division, kind)
        if again == 1:  # else codes are multiplied by their steps before cycles are added
            counts = [own * step for own, step in zip(counts, division.steps, strict=True)]
    factors, idle = np.hstack(counts[: crossbar.slices]), cells.idle_sums
    present = {
        "signed": division is None and crossbar.signed_sums,
        "raised": division is None and law.lo > 0,
        "set": division is not None and not division.tables,
        "levels": "start" in values,
        "lossless": "converted" in values,
        "cycles": again > 1,
        "scaled": (factors != 1).any(),
        "leaking": cells.leak > 0,
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
        by_group["least"] = _by_cycle(layer, division.least)
        if crossbar.scope.gains:
            evens = [1 - step % 2 for step in division.steps]
            for name, of_columns in (("step", division.steps), ("top", division.tops)):
                by_group[name] = _by_cycle(layer, of_columns)
            by_group["evens"] = _by_cycle(layer, evens)
    taken = [name for name in by_group if name in function.input]
    of_groups = [
        {name: writer.constant(by_group[name][r], kind) for name in taken}
        for r in range(len(cells.groups))
    ]
    total = _row_groups(writer, function, values, weights, cells.groups, of_groups)
    offsets = np.zeros(1, np.int64) if division is None else division.offsets(layer)
    return _digital(writer, layer, total if wide else writer.cast(total, "INT64"), x, offsets)


def _digital(
    writer: GraphWriter, layer: ConvertedLayer, total: str, x: str, offsets: IntArray
) -> str:
    """Append what the digital side adds to converted sums, int64: sums of inputs, and the bias.

    `offsets` [N] are what converters took off. A sum in binary places is then rounded half up.
    """
    cells, places, factors = layer.cells, layer.cells.places, layer.row_factors
    lifted = cells.heights @ factors * layer.crossbar.inputs.lift
    constant = lifted + layer.start + offsets
    total = _with_row_sums(writer, total, x, factors, cells.groups)
    if not places:
        return _with_bias(writer, total, layer.bias + constant)
    one, shift = np.array(1), np.array(places)
    return _with_bias(writer, emit_requant(writer, total, one, shift, constant), layer.bias)


def _row_groups(
    writer: GraphWriter,
    function: FunctionProto,
    values: dict[str, str],
    weights: list[WeightPlane],
    groups: tuple[slice, ...],
    own: list[dict[str, str]] | None = None,
) -> str:
    """Append one call per row group and the sum of all; `own` holds the values of single groups."""
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
    """Append the digits of each converted sum, uint8 [cycles, n, K], once for the layer.

    Two's complement needs no separate case: its digits are the low bits of any wider integer.
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


def _reach(layer: ConvertedLayer) -> int:
    """No integer on the way from column sums to the layer's sum is larger than this."""
    total, places = 0, layer.crossbar.reference_bits
    for column in layer.columns:
        factor, largest = int(np.abs(column.factors).max()), column.reach << places
        if column.law is not None:
            step, law = int(column.step.max()), column.law
            largest += int(np.abs(column.offset).max()) + step * (1 + max(map(abs, law.ends)))
            if isinstance(law, StaircaseLaw):
                first, entries = law.table
                largest = (largest << law.places) + step * max(len(entries), abs(first))
        total += 2 * largest * factor * column.drive
    return total * len(layer.cells.groups)


def _shape_values(writer: GraphWriter, layer: ConvertedLayer, kind: str) -> dict[str, str]:
    """Constants of shift-and-add, and of what cells conduct."""
    crossbar = layer.crossbar
    width = crossbar.slices * len(layer.bias)
    factors = crossbar.cycle_factors[None]
    values = {
        "by_cycle": writer.constant(np.array([len(crossbar.cycles), -1])),
        "by_row": writer.constant(np.array([-1, width + crossbar.unit_column])),
        "cycle_factors": writer.constant(factors, kind),
    }
    if crossbar.unit_column or layer.cells.leak:
        values["widths"] = writer.constant(np.array([width, 1]))
    if layer.cells.leak:
        values["digit"] = writer.constant(np.int64(1) << layer.cells.fraction_bits, kind)
        values["leak"] = writer.constant(np.int64(layer.cells.leak), kind)
    return values


@dataclass(frozen=True)
class Division:
    """Conversions as quotients, (clip(2^rise p - least, 0, top)) // step, a value per column.

    There are `steps`, `tops` and `least` [groups, N] for the columns of each slice and for the unit
    column. `zeros` [groups, N] are the values of a quotient of zero, in the places of the layer.
    The sums take on `rise` binary places. If there are `tables`, one for all or one of each, a
    value is looked up at the quotient.
    """

    rise: int
    steps: list[IntArray]
    tops: list[IntArray]
    least: list[IntArray]
    zeros: list[IntArray]
    tables: list[IntArray]

    def offsets(self, layer: ConvertedLayer) -> IntArray:
        """The sum of the zeros in each output [N], for any inputs."""
        factors = layer.crossbar.cycle_factors
        parts = [
            (column.factors * zero).sum(axis=0) * factors[column.cycles].sum()
            for column, zero in zip(layer.columns, self.zeros, strict=True)
        ]
        return np.asarray(np.sum(parts, axis=0), np.int64)


def _division(layer: ConvertedLayer) -> Division | None:
    """The quotients of a layer's conversions; None if masks of bits do."""
    laws = [one.law for one in layer.columns]
    tables = [law for law in laws if isinstance(law, StaircaseLaw)]
    if not tables and not layer.crossbar.scope.set:
        return None
    places = layer.crossbar.reference_bits
    fine = tables[0].places if tables else 0
    found = Division(places + fine, [], [], [], [], [])
    for column in layer.columns:
        law, step, zero = column.law, np.maximum(column.step, 1), column.offset
        if tables:
            held = law if isinstance(law, StaircaseLaw) else tables[0]  # not read where lossless
            first, entries = held.table
            least, top = (zero << fine) + first * step, len(entries) * step - 1
            found.tables.append(entries)
        elif isinstance(law, UniformLaw):
            zero = zero + law.lo * step
            least, top = zero - (step >> 1 if law.half else 0), (law.hi + 1 - law.lo) * step - 1
        else:  # counted from the least sum, which no other sum is below
            least = zero = column.bounds[0] << places
            top = np.full_like(step, (column.bounds[1] - column.bounds[0]).max() << places)
        found.steps.append(step)
        found.tops.append(top)
        found.least.append(least)
        found.zeros.append(zero)
    return found


def _of_columns(
    writer: GraphWriter, layer: ConvertedLayer, values: Iterable[int], stored: str
) -> str:
    """A constant of one number, or one a column of [slices * N + unit], of each cycle or of all."""
    found = np.array(list(values), np.int64)
    if (found == found[0]).all():
        return writer.constant(found[0], stored)
    every = [
        np.full((1, column.cells.digits.shape[1]), v)
        for v, column in zip(found, layer.columns, strict=True)
    ]
    return writer.constant(_by_cycle(layer, every)[0], stored)


def _firsts(values: Sequence[IntArray]) -> list[int]:
    """The one number of the columns of each kind, which is the same in all of them."""
    return [int(of_columns[0, 0]) for of_columns in values]


def _by_cycle(layer: ConvertedLayer, values: Sequence[IntArray]) -> IntArray:
    """Values [groups, N] of each of the layer's columns side by side, as they meet column sums.

    That is [groups, slices * N + unit], or [groups, cycles, 1, slices * N + unit].
    """
    cycles = layer.crossbar.reference_cycles
    if cycles == 1:
        return np.hstack(values)
    return np.stack([np.hstack(values[c::cycles]) for c in range(cycles)], axis=1)[:, :, None]


def _division_values(
    writer: GraphWriter, layer: ConvertedLayer, law: Law, division: Division, kind: str
) -> dict[str, str]:
    """Constants of conversions by division, but for those of a row group."""
    values = {
        "rise": writer.constant(np.int64(1) << division.rise, kind),
        "zero": writer.constant(np.int64(0), kind),
    }
    gains = layer.crossbar.scope.gains
    if not gains:
        values["step"] = _of_columns(writer, layer, _firsts(division.steps), kind)
        values["top"] = _of_columns(writer, layer, _firsts(division.tops), kind)
    if division.tables:
        distinct = {table.tobytes(): table for table in division.tables}
        ends = np.cumsum([len(table) for table in distinct.values()]).tolist()
        starts = dict(zip(distinct, [0, *ends], strict=False))
        values["table"] = writer.constant(np.concatenate(list(distinct.values())), kind)
        if len(distinct) > 1:
            own = (starts[table.tobytes()] for table in division.tables)
            values["start"] = _of_columns(writer, layer, own, kind)
        converted = [one.law is not None for one in layer.columns]
        if not all(converted):
            values["converted"] = _of_columns(writer, layer, converted, "BOOL")
            places = np.int64(1) << layer.crossbar.reference_bits
            values["finer"] = writer.constant(places, kind)
    elif isinstance(law, UniformLaw) and law.to_even:
        if not gains:
            evens = (step % 2 == 0 for step in _firsts(division.steps))
            values["evens"] = _of_columns(writer, layer, evens, kind)
        values["one"] = writer.constant(np.int64(1), kind)
        values["lowest_code"] = writer.constant(np.int64(law.lo), kind)
    return values


def _masks(writer: GraphWriter, layer: ConvertedLayer, law: Law, kind: str) -> dict[str, str]:
    """Constants of conversions from zero by powers of two."""
    assert not isinstance(law, StaircaseLaw)
    steps = _firsts([one.step for one in layer.columns])  # 0: lossless
    limits = np.iinfo(np.int64 if kind == "INT64" else np.int32)
    least, most = int(limits.min), int(limits.max)

    def of_columns(values: Iterable[int]) -> str:
        return _of_columns(writer, layer, (min(max(v, least), most) for v in values), kind)

    even = int(law.to_even)
    return {
        "half": of_columns((step >> 1) - even if step > 1 else 0 for step in steps),
        "odd": of_columns(step if step > 1 else 0 for step in steps),
        "one": writer.constant(np.int64(1), kind),
        "mask": of_columns(-(step or 1) for step in steps),
        "lowest": of_columns(law.lo * step if step else least for step in steps),
        "highest": of_columns(law.hi * step if step else most for step in steps),
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
