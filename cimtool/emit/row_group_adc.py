"""The local function of a row group with converters: sums, conversion, shift-and-add."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import FunctionProto, TensorProto

from cimtool.emit.functions import Body, column_sums
from cimtool.ir.format import Rounding


@dataclass(frozen=True)
class Conversion:
    """What a converted row group consists of: decides the nodes of its function.

    `inputs`, `weights`: byte planes; `rounding` is None where a measured table converts; `signed`:
    codes may be negative; `scaled`: slices have factors (or complements a sign); `leaking`: every
    cell conducts, `idle`: rows without weights too; `unit`: the last column is the unit column;
    `wide`: sums need int64.
    """

    inputs: int
    weights: int
    slices: int
    cycles: int
    rounding: Rounding | None
    signed: bool
    scaled: bool
    leaking: bool
    idle: bool
    unit: bool
    wide: bool

    @property
    def name(self) -> str:
        """The function's name; every field shows."""
        parts = [f"RowGroupAdc_{self.slices}slices_{self.cycles}cycles"]
        parts.append((self.rounding or "table").replace("-", "_"))
        flags = ("signed", "scaled", "leaking", "idle", "unit", "wide")
        parts += [flag for flag in flags if getattr(self, flag)]
        if (self.inputs, self.weights) != (1, 1):
            parts.append(f"{self.inputs}x{self.weights}")
        return "_".join(parts)

    @property
    def doc(self) -> str:
        """What the function does, in words."""
        codes = "signed" if self.signed else "unsigned"
        ones = " and one of ones" if self.leaking or self.unit else ""
        how = (
            f"({self.rounding}, {codes} codes) to code << step by adding half a step, masking the "
            "bits below the step and clipping"
            if self.rounding
            else "to a code by a measured table"
        )
        text = (
            f"One row group of a layer: x [{self.cycles} cycles, n, K] digits cut to the group's "
            f"rows, w [rows, {self.slices} slices * N{ones}] cells; each column sum is converted "
            f"{how}; then cycles and slices are shifted and added."
        )
        if self.leaking:
            text += " Every cell conducts leak more than its digit, which counts digit."
        if self.unit:
            text += " The column of ones, converted too, is the sum of inputs that the rest needs."
        return text


def row_group_adc(form: Conversion) -> FunctionProto:
    """One row group with converters: column sums, conversion, shift-and-add over cycles, slices.

    A conversion to step 2^e leaves `code << e`: round by adding the half and masking the low e
    bits (floor in two's complement), then clip to the shifted limits. A measured table is a Gather.
    """
    body = Body(form.name, form.doc)
    value = column_sums(body, form.inputs, form.weights, form.wide)
    if form.leaking:
        value = _leak(body, form, value)
    value = _convert(body, form, value) if form.rounding else _look_up(body, form, value)
    if form.cycles > 1:
        value = body.add("cycles", "Reshape", value, body.input("by_cycle"))
        value = body.add("cycle_sum", "MatMul", body.input("cycle_factors"), value)
    value = body.add("rows", "Reshape", value, body.input("by_row"))
    unit = ""
    if form.unit:
        value, unit = body.split_last("weights", "unit", value, body.input("widths"))
    if form.scaled:
        value = body.add("scaled", "Mul", value, body.input("slice_factors"))
    if form.slices > 1:
        value = body.total("slice_sum", body.split("slice", value, form.slices))
    if form.unit:
        offset = body.add("offset", "Mul", unit, body.input("unit_factors"))
        value = body.add("without_offset", "Add", value, offset)
    return body.function(value)


def _leak(body: Body, form: Conversion, sums: str) -> str:
    """Append what erased cells conduct: the column of ones sums the digits of all rows."""
    cells, ones = body.split_last("cells", "ones", sums, body.input("widths"))
    stored = body.add("stored", "Mul", cells, body.input("digit"))
    leaked = body.add("leaked", "Mul", ones, body.input("leak"))
    value = body.add("conducted", "Add", stored, leaked)
    return body.add("with_idle", "Add", value, body.input("idle")) if form.idle else value


def _convert(body: Body, form: Conversion, sums: str) -> str:
    value = sums
    if form.rounding == "half-even":
        low_bit = body.add("code_bit", "BitwiseAnd", value, body.input("odd"))
        odd = _smaller(body, form, "is_odd", low_bit, body.input("one"))
        value = body.add("to_even", "Add", value, odd)
    if form.rounding != "floor":
        value = body.add("half_added", "Add", value, body.input("half"))
    value = body.add("stepped", "BitwiseAnd", value, body.input("mask"))
    value = _smaller(body, form, "converted", value, body.input("highest"))
    if form.signed:
        value = _larger(body, form, "limited", value, body.input("lowest"))
    return value


def _look_up(body: Body, form: Conversion, sums: str) -> str:
    """Append a Gather of codes by the sum in 1/16 of a step, from the table's lowest entry on."""
    value = _smaller(body, form, "converted", sums, body.input("highest"))
    value = _larger(body, form, "limited", value, body.input("lowest"))
    value = body.add("lifted", "Sub", value, body.input("lowest"))
    value = body.add("finer", "Mul", value, body.input("rise"))
    unsigned, signed = (
        (TensorProto.UINT64, TensorProto.INT64)
        if form.wide
        else (TensorProto.UINT32, TensorProto.INT32)
    )
    value = body.cast("unsigned", value, unsigned)
    value = body.add("stepped", "BitShift", value, body.input("fall"), direction="RIGHT")
    return body.add("codes", "Gather", body.input("table"), body.cast("entry", value, signed))


def _smaller(body: Body, form: Conversion, name: str, value: str, limit: str) -> str:
    """`min(value, limit)`; wide ones by Less and Where (why: `cimtool/emit/integers.py`)."""
    if not form.wide:
        return body.add(name, "Min", value, limit)
    below = body.add(f"{name}_below", "Less", value, limit)
    return body.add(name, "Where", below, value, limit)


def _larger(body: Body, form: Conversion, name: str, value: str, limit: str) -> str:
    """`max(value, limit)`, as `_smaller`."""
    if not form.wide:
        return body.add(name, "Max", value, limit)
    above = body.add(f"{name}_above", "Less", limit, value)
    return body.add(name, "Where", above, value, limit)
