"""Faults of a macro that the bench must find, each at a named tap.

`faulty` writes a fault into a source as a choice at run time, so that one build serves them all:
an expression becomes `(tb_macro.fault == n ? wrong : right)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MacroFacts = Mapping[str, int]
"""The parameters of a macro, and what of its layers decides which faults can show."""

COLUMN, MACRO, OUTPUT = "cim_column.sv", "cim_macro.sv", "cim_output.sv"


@dataclass(frozen=True)
class Fault:
    """An expression `right` of a source, which occurs in it once, and what replaces it.

    `shows` says of which macros it changes a number at all.
    """

    name: str
    tap: str
    file: str
    right: str
    wrong: str
    shows: Callable[[MacroFacts], bool] = lambda _: True


FAULTS = (
    Fault(
        "one flipped cell",
        "sums",
        MACRO,
        "write_data[j*CELLS*CELL_BITS +: OWN*CELL_BITS]",
        "write_data[j*CELLS*CELL_BITS +: OWN*CELL_BITS]"
        " ^ (OWN*CELL_BITS)'(j == 0 && write_row == 1)",
    ),
    Fault(
        "a word line does not drive", "digits", MACRO, "row_enable[r]", "row_enable[r] && r != 1"
    ),
    Fault(
        "cycles most significant first",
        "digits",
        MACRO,
        "5'(shift)",
        "cycle_shift[(cycles - 6'd1 - cycle)*5 +: 5]",
        lambda facts: facts["CYCLES"] > 1,
    ),
    Fault(
        "a cycle drives all bits above",
        "digits",
        MACRO,
        "count != '0",
        "1'b0",
        lambda facts: facts["CYCLES"] > 1,
    ),
    Fault(
        "a bit line misses a row",
        "sums",
        COLUMN,
        "cells[p*ROWS +: ROWS] & driven",
        "cells[p*ROWS +: ROWS] & driven & ~ROWS'(1)",
    ),
    Fault(
        "bits of a cell weigh alike",
        "sums",
        COLUMN,
        "(p % CELL_BITS + d + FRACTION_BITS)",
        "(d + FRACTION_BITS)",
        lambda facts: facts["HIGH_BITS"] > 0,
    ),
    Fault(
        "the converter rounds down",
        "codes",
        COLUMN,
        "ROUNDING != 2",
        "1'b0",
        lambda facts: facts["CODES_DOWN"] > 0,
    ),
    Fault(
        "half-even in place of half-up",
        "codes",
        COLUMN,
        "ROUNDING == 0",
        "1'b0",
        lambda facts: facts["CODES_EVEN"] > 0,
    ),
    Fault(
        "the converter is one code short",
        "codes",
        COLUMN,
        "WIDE'(most)",
        "WIDE'(most) - WIDE'(1)",
        lambda facts: facts["CODES_TOP"] > 0,
    ),
    Fault(
        "the converter has a bit more",
        "codes",
        COLUMN,
        "WIDE'(most)",
        "WIDE'(most) + WIDE'(most) - WIDE'(least) + WIDE'(1)",
        lambda facts: facts["CODES_BEYOND"] > 0,
    ),
    Fault(
        "the sign bit counts positive",
        "shift_add",
        MACRO,
        "counts_negative ? -total : total",
        "total",
        lambda facts: facts["NEGATIVE"] > 0,
    ),
    Fault(
        "complements are not taken back",
        "shift_add",
        MACRO,
        "flipped[lane_of(w, k)]",
        "1'b0",
        lambda facts: facts["FLIPS"] > 0,
    ),
    Fault(
        "slices lie a bit apart",
        "shift_add",
        MACRO,
        "slice_shift[k*6 +: 6]",
        "6'(k)",
        lambda facts: facts["APART"] > 0,
    ),
    Fault(
        "the offset of weights stays",
        "shift_add",
        MACRO,
        "weight_offset * row_sum",
        "ACC_BITS'(0)",
        lambda facts: facts["OFFSET"] > 0,
    ),
    Fault(
        "an accumulator of 18 bits",
        "shift_add",
        MACRO,
        "acc[w*ACC_BITS +: ACC_BITS] + added",
        "ACC_BITS'($signed(18'(acc[w*ACC_BITS +: ACC_BITS] + added)))",
        lambda facts: facts["WIDE"] > 0,
    ),
    Fault(
        "the bias is left out",
        "layer_sum",
        OUTPUT,
        "whole + bias",
        "whole",
        lambda facts: facts["BIAS"] > 0,
    ),
    Fault(
        "requantisation rounds down",
        "requantised",
        OUTPUT,
        "scaled + half",
        "scaled",
        lambda facts: facts["DOWN"] > 0,
    ),
    Fault(
        "requantisation does not clip",
        "requantised",
        OUTPUT,
        "rounded > 64'(hi)",
        "1'b0",
        lambda facts: facts["CLIPS"] > 0,
    ),
    Fault(
        "requantisation rounds half to even",
        "requantised",
        OUTPUT,
        "scaled + half",
        "scaled + half - 64'($signed({1'b0, ~scaled[shift]}))",
        lambda facts: facts["TIES"] > 0,
    ),
    Fault(
        "a multiplier of 25 bits",
        "requantised",
        OUTPUT,
        "$signed({33'd0, multiplier})",
        "$signed({33'd0, multiplier[30:6], 6'd0})",
        lambda facts: facts["LOW_BITS"] > 0,
    ),
)


def faulty(file: str, source: str, faults: Sequence[Fault] = FAULTS) -> str:
    """The source of a file with its faults in it, each behind its number in `faults`, from 1.

    Raises ValueError where an expression does not occur once.
    """
    numbered = [(n, one) for n, one in enumerate(faults, 1) if one.file == file]
    for right in dict.fromkeys(one.right for _, one in numbered):
        if source.count(right) != 1:
            raise ValueError(f"{file}: {right!r} occurs {source.count(right)} times; expected 1")
        chosen = f"({right})"
        for n, one in numbered:
            if one.right == right:
                chosen = f"(tb_macro.fault == {n} ? {one.wrong} : {chosen})"
        source = source.replace(right, chosen)
    return source
