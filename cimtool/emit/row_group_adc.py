"""The local function of a row group with converters: sums, conversion, shift-and-add."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnx import FunctionProto

from cimtool.emit.functions import cast, column_sums, function
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
    return function(form.name, form.doc, _lines(form))


def _lines(form: Conversion) -> Iterator[str]:
    yield from column_sums(form.inputs, form.weights, form.wide)
    if form.leaking:
        yield from _leak(form)
    yield from _convert(form) if form.rounding else _look_up(form)
    if form.cycles > 1:
        yield "sums = Reshape (sums, by_cycle)"
        yield "sums = MatMul (cycle_factors, sums)"
    yield "sums = Reshape (sums, by_row)"
    if form.unit:
        yield "sums, unit = Split <axis = -1> (sums, widths)"
    if form.scaled:
        yield "sums = Mul (sums, slice_factors)"
    if form.slices > 1:
        slices = [f"slice{k}" for k in range(form.slices)]
        yield f"{', '.join(slices)} = Split <axis = -1, num_outputs = {form.slices}> (sums)"
        yield "sums = Add (slice0, slice1)"
        yield from (f"sums = Add (sums, {part})" for part in slices[2:])
    if form.unit:
        yield "offset = Mul (unit, unit_factors)"
        yield "sums = Add (sums, offset)"


def _leak(form: Conversion) -> Iterator[str]:
    """What erased cells conduct: the column of ones sums the digits of all rows."""
    yield "cells, ones = Split <axis = -1> (sums, widths)"
    yield "stored = Mul (cells, digit)"
    yield "leaked = Mul (ones, leak)"
    yield "sums = Add (stored, leaked)"
    if form.idle:
        yield "sums = Add (sums, idle)"


def _convert(form: Conversion) -> Iterator[str]:
    if form.rounding == "half-even":
        yield "code_bit = BitwiseAnd (sums, odd)"
        yield from _at_most(form, "code_bit", "one")
        yield "sums = Add (sums, code_bit)"
    if form.rounding != "floor":
        yield "sums = Add (sums, half)"
    yield "sums = BitwiseAnd (sums, mask)"
    yield from _at_most(form, "sums", "highest")
    if form.signed:
        yield from _at_least(form, "sums", "lowest")


def _look_up(form: Conversion) -> Iterator[str]:
    """A Gather of codes by the sum in 1/16 of a step, from the table's lowest entry on."""
    yield from _at_most(form, "sums", "highest")
    yield from _at_least(form, "sums", "lowest")
    yield "entry = Sub (sums, lowest)"
    yield "entry = Mul (entry, rise)"
    yield cast("entry", "UINT64" if form.wide else "UINT32")
    yield 'entry = BitShift <direction = "RIGHT"> (entry, fall)'
    yield cast("entry", "INT64" if form.wide else "INT32")
    yield "sums = Gather (table, entry)"


def _at_most(form: Conversion, value: str, limit: str) -> Iterator[str]:
    """`min(value, limit)`; wide ones by Less and Where (why: `cimtool/emit/integers.py`)."""
    if not form.wide:
        yield f"{value} = Min ({value}, {limit})"
    else:
        yield f"below = Less ({value}, {limit})"
        yield f"{value} = Where (below, {value}, {limit})"


def _at_least(form: Conversion, value: str, limit: str) -> Iterator[str]:
    """`max(value, limit)`, as `_at_most`."""
    if not form.wide:
        yield f"{value} = Max ({value}, {limit})"
    else:
        yield f"above = Less ({limit}, {value})"
        yield f"{value} = Where (above, {value}, {limit})"
