"""The local function of a row group with converters: sums, conversion, shift-and-add."""

from __future__ import annotations

from collections.abc import Iterator, Set

from onnx import FunctionProto

from cimtool.emit.functions import function, row_group_product
from cimtool.hardware.converters import UniformLaw
from cimtool.hardware.crossbar import Crossbar

FLAGS = (
    "set", "levels", "signed", "raised", "lossless", "cycles", "scaled", "leaking", "idle", "unit",
    "wide",
)  # fmt: skip
"""Properties of a row group, in the order of its function's name.

`set`: references are set; `levels`: each slice has its own table; `signed` and `raised`, only if
neither is: sums may be negative, the lowest code is above zero; `lossless`: a table leaves some
columns as they are; `cycles`: each cycle has its own steps; `scaled`: slices have factors (or
complements a sign); `leaking`: every cell conducts; `idle`: rows without weights conduct too;
`unit`: the last column is the unit column; `wide`: sums need int64.
"""


def row_group_adc(crossbar: Crossbar, planes: tuple[int, int], flags: Set[str]) -> FunctionProto:
    """One row group with converters: column sums, conversion, shift-and-add over cycles, slices.

    `planes` are the numbers of byte planes of inputs and of cells, `flags` are of FLAGS. A
    conversion to step 2^e leaves `code << e`: round by adding the half and masking the low e bits
    (floor in two's complement), then clip to the shifted limits. If references are set, it leaves a
    quotient, the code above the lowest; a table is a Gather at a quotient.
    """
    slices, cycles = crossbar.slices, len(crossbar.cycles)
    law = crossbar.law if isinstance(crossbar.law, UniformLaw) else None
    law = None if crossbar.scope.levels else law
    parts = [f"RowGroupAdc_{slices}slices_{cycles}cycles"]
    parts.append((law.rounding if law else "table").replace("-", "_"))
    parts += [flag for flag in FLAGS if flag in flags]
    if planes != (1, 1):
        parts.append(f"{planes[0]}x{planes[1]}")
    ones = " and one of ones" if flags & {"leaking", "unit"} else ""
    how = "to a value by a table"
    if law and "set" in flags:
        how = f"({law.rounding}) to its code above the lowest: less an offset, clipped, by the step"
    elif law:
        how = (
            f"({law.rounding}, {'' if 'signed' in flags else 'un'}signed codes) to code << step by "
            "adding half a step, masking the bits below the step and clipping"
        )
    doc = (
        f"One row group of a layer: x [{cycles} cycles, n, K] digits cut to the group's rows, w "
        f"[rows, {slices} slices * N{ones}] cells; each column sum is converted {how}; then cycles "
        "and slices are shifted and added."
    )
    if "leaking" in flags:
        doc += " Every cell conducts leak more than its digit, which counts digit."
    if "unit" in flags:
        doc += " The column of ones, converted too, is the sum of inputs that the rest needs."
    return function("_".join(parts), doc, _lines(crossbar, planes, law, flags))


def _lines(
    crossbar: Crossbar, planes: tuple[int, int], law: UniformLaw | None, flags: Set[str]
) -> Iterator[str]:
    wide = "wide" in flags
    yield from row_group_product(*planes, wide)
    if "leaking" in flags:  # the column of ones sums the digits of all rows
        yield "cells, ones = Split <axis = -1> (sums, widths)"
        yield "stored = Mul (cells, digit)"
        yield "leaked = Mul (ones, leak)"
        yield "sums = Add (stored, leaked)"
    if "idle" in flags:
        yield "sums = Add (sums, idle)"
    if law is None:
        yield from _look_up(flags)
    elif "set" in flags:
        yield from _dividend(flags)
        yield from _tied_to_even(flags) if law.to_even else ["sums = Div (sums, step)"]
    else:
        yield from _convert(law, flags)
    if "cycles" in flags:
        yield "sums = Mul (sums, step)"
    if len(crossbar.cycles) > 1:
        yield "sums = Reshape (sums, by_cycle)"
        yield "sums = MatMul (cycle_factors, sums)"
    yield "sums = Reshape (sums, by_row)"
    if "unit" in flags:
        yield "sums, unit = Split <axis = -1> (sums, widths)"
    if "scaled" in flags:
        yield "sums = Mul (sums, slice_factors)"
    if crossbar.slices > 1:
        slices = [f"slice{k}" for k in range(crossbar.slices)]
        yield f"{', '.join(slices)} = Split <axis = -1, num_outputs = {len(slices)}> (sums)"
        yield "sums = Add (slice0, slice1)"
        yield from (f"sums = Add (sums, {part})" for part in slices[2:])
    if "unit" in flags:
        yield "offset = Mul (unit, unit_factors)"
        yield "sums = Add (sums, offset)"


def _convert(law: UniformLaw, flags: Set[str]) -> Iterator[str]:
    wide = "wide" in flags
    if law.to_even:
        yield "code_bit = BitwiseAnd (sums, odd)"
        yield from _limited(wide, "Min", "code_bit", "one")
        yield "sums = Add (sums, code_bit)"
    if law.half:
        yield "sums = Add (sums, half)"
    yield "sums = BitwiseAnd (sums, mask)"
    yield from _limited(wide, "Min", "sums", "highest")
    if flags & {"signed", "raised"}:
        yield from _limited(wide, "Max", "sums", "lowest")


def _dividend(flags: Set[str]) -> Iterator[str]:
    """The height of a sum above the least, in finer units; its quotient by the step is a code."""
    wide = "wide" in flags
    yield "sums = Mul (sums, rise)"
    yield "sums = Sub (sums, least)"
    yield from _limited(wide, "Max", "sums", "zero")
    yield from _limited(wide, "Min", "sums", "top")


def _tied_to_even(flags: Set[str]) -> Iterator[str]:
    """One code less if the quotient is exact (the sum is a tie) and the code odd."""
    wide = "wide" in flags
    yield "quotient = Div (sums, step)"
    yield "product = Mul (quotient, step)"
    yield "rest = Sub (sums, product)"
    yield from _limited(wide, "Min", "rest", "one")
    yield "tie = Sub (one, rest)"
    yield "code = Add (quotient, lowest_code)"
    yield "odd = BitwiseAnd (code, evens)"
    yield "back = Mul (tie, odd)"
    yield "sums = Sub (quotient, back)"
    yield from _limited(wide, "Max", "sums", "zero")


def _look_up(flags: Set[str]) -> Iterator[str]:
    """A Gather of levels by the sum in 1/16 of a step, from the table's lowest entry on."""
    if "lossless" in flags:
        yield "exact = Mul (sums, finer)"
    yield from _dividend(flags)
    yield "entry = Div (sums, step)"
    if "levels" in flags:
        yield "entry = Add (entry, start)"
    yield "sums = Gather (table, entry)"
    if "lossless" in flags:
        yield "sums = Where (converted, sums, exact)"


def _limited(wide: bool, op: str, value: str, limit: str) -> Iterator[str]:
    """`Min` or `Max` (`op`) of both; wide ones by Less, Where (why: `cimtool/emit/integers.py`)."""
    if not wide:
        yield f"{value} = {op} ({value}, {limit})"
    else:
        held, pair = ("below", (value, limit)) if op == "Min" else ("above", (limit, value))
        yield f"{held} = Less ({pair[0]}, {pair[1]})"
        yield f"{value} = Where ({held}, {value}, {limit})"
