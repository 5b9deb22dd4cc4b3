"""Faults of an array and its periphery that the bench must find, each at a named tap.

Those of `BOUNDARY` lie between the bench and the array: any array shows them.

`faulty` writes each fault into a source as a choice at run time, so that one build has all faults:
an expression becomes `(tb_array.fault == n ? wrong : right)`; a CAM has `tb_cam` in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ADAPTER, ARRAY, COLUMN = "cim_adapter.sv", "cim_array.sv", "cim_column.sv"
BOUNDARY, MACRO, OUTPUT = "tb_boundary.svh", "cim_macro.sv", "cim_output.sv"
CAM, RANK, WRITER = "cim_cam.sv", "cim_rank.sv", "cim_writer.sv"

CODES_WRONG, COUNTS_WRONG, INPUTS_WRONG = (1, 5, 14), (3, 13), (1, 90)
"""A code, a population count and an input at which alone a part is wrong."""

NARROW_BITS = 18
"""Bits of the accumulator that is too narrow."""


@dataclass(frozen=True)
class Fault:
    """An expression `right`, which occurs once in a source, and its replacement `wrong`.

    It is found at `tap`, or at one of several, with `|` between them. The fault changes a number in
    layers that have the fact `shows` (`layer_facts`); all have ANY.
    """

    name: str
    tap: str
    file: str
    right: str
    wrong: str
    shows: str = "ANY"


_SHOWN = "{answering, shown}"

_BY_TAP: dict[tuple[str, str], tuple[tuple[str, str, str, str], ...]] = {
    ("sums", BOUNDARY): (
        (
            "a cell is written wrongly",
            "(write_data)",
            "write_data ^ LINE'(write_row == 1)",
            "ANY",
        ),
        ("two word lines are swapped", "(write_row)", "write_row ^ $clog2(ROWS)'(1)", "ANY"),
        ("a row is not driven", "(drive)", "drive & ~(DIGIT_BITS*ROWS)'(1)", "ANY"),
        (
            "two rows are swapped",
            "(drive)",
            "{drive[DIGIT_BITS*ROWS-1:2], drive[0], drive[1]}",
            "ANY",
        ),
    ),
    ("codes", BOUNDARY): (
        ("valid comes a clock before the codes", _SHOWN, "{answering, shown_before}", "ANY"),
        (
            "two lanes are swapped",
            _SHOWN,
            "{answering[CONVERTED-1:2], answering[0], answering[1], "
            "shown[CONVERTED*CODE_BITS-1:2*CODE_BITS], shown[CODE_BITS-1:0], "
            "shown[2*CODE_BITS-1:CODE_BITS]}",
            "ANY",
        ),
        (
            "the lowest bit of a code is stuck",
            _SHOWN,
            "{answering, shown & ~(CONVERTED*CODE_BITS)'(1)}",
            "ANY",
        ),
        (
            "two bits of a code are swapped",
            _SHOWN,
            "{answering, shown[CONVERTED*CODE_BITS-1:2], shown[0], shown[1]}",
            "ANY",
        ),
    ),
    ("sums|codes", BOUNDARY): (
        (
            "valid comes when the codes are gone",
            _SHOWN,
            "{answering_before, shown & {CONVERTED*CODE_BITS{answering != '0}}}",
            "ANY",
        ),
    ),
    ("codes|converter", BOUNDARY): tuple(
        (
            f"one converter is wrong at code {code}",
            _SHOWN,
            f"{{answering, shown ^ (CONVERTED*CODE_BITS)'(shown[CODE_BITS-1:0] == {code})}}",
            f"CODE_{code}",
        )
        for code in CODES_WRONG
    ),
    ("answers", BOUNDARY): (
        ("a lane never answers", _SHOWN, "{answering & ~CONVERTED'(1), shown}", "ANY"),
        ("lanes answer twice", _SHOWN, "{answering | answering_before, shown}", "ANY"),
    ),
    ("sums|converter", COLUMN): tuple(
        (
            f"a population count is wrong at {count}",
            "32'(conducting)",
            f"32'(conducting) + 32'(conducting == {count})",
            f"COUNT_{count}",
        )
        for count in COUNTS_WRONG
    ),
    ("codes|converter", COLUMN): tuple(
        (
            f"converters are wrong at code {code}",
            "CODE_BITS'(quotient)",
            f"CODE_BITS'(quotient) ^ CODE_BITS'(quotient == {code})",
            f"ANY_CODE_{code}",
        )
        for code in CODES_WRONG
    ),
    ("sums", ARRAY): (
        (
            "one flipped cell",
            "write_data[j*CELLS*CELL_BITS +: OWN*CELL_BITS]",
            (
                "write_data[j*CELLS*CELL_BITS +: OWN*CELL_BITS]"
                " ^ (OWN*CELL_BITS)'(j == 0 && write_row == 1)"
            ),
            "ANY",
        ),
    ),
    ("digits", MACRO): (
        ("a word line does not drive", "row_enable[r]", "row_enable[r] && r != 1", "ANY"),
        *(
            (
                f"an input of {number} in one row is read as {number ^ 1}",
                "held[r*INPUT_BITS +: INPUT_BITS]",
                "held[r*INPUT_BITS +: INPUT_BITS] ^ INPUT_BITS'(r == 3 && "
                f"held[r*INPUT_BITS +: INPUT_BITS] == {number})",
                f"INPUT_{number}",
            )
            for number in INPUTS_WRONG
        ),
        (
            "two bits of inputs are swapped",
            "held[r*INPUT_BITS +: INPUT_BITS]",
            "{held[r*INPUT_BITS + 2 +: INPUT_BITS - 2], held[r*INPUT_BITS], "
            "held[r*INPUT_BITS + 1]}",
            "ANY",
        ),
        (
            "cycles most significant first",
            "5'(shift)",
            "cycle_shift[(cycles - 6'd1 - asked)*5 +: 5]",
            "MANY_CYCLES",
        ),
        ("a cycle drives all higher bits too", "count != '0", "1'b0", "MANY_CYCLES"),
    ),
    ("sums", COLUMN): (
        (
            "a bit line misses a row",
            "cells[p*ROWS +: ROWS] & driven",
            "cells[p*ROWS +: ROWS] & driven & ~ROWS'(1)",
            "ANY",
        ),
        (
            "all bits of a cell have the same weight",
            "(p % CELL_BITS + d + FRACTION_BITS)",
            "(d + FRACTION_BITS)",
            "HIGH_BITS",
        ),
    ),
    ("codes", COLUMN): (
        ("the converter rounds down", "ROUNDING != 2", "1'b0", "CODES_DOWN"),
        ("half-even in place of half-up", "ROUNDING == 0", "1'b0", "CODES_EVEN"),
        ("the converter is one code short", "WIDE'(most)", "WIDE'(most) - WIDE'(1)", "CODES_TOP"),
        (
            "the converter has one bit too many",
            "WIDE'(most)",
            "WIDE'(most) + WIDE'(most) - WIDE'(least) + WIDE'(1)",
            "CODES_BEYOND",
        ),
    ),
    ("shift_add", MACRO): (
        (
            "the sign bit counts as positive",
            "counts_negative ? -total : total",
            "total",
            "NEGATIVE",
        ),
        ("complements are not undone", "flipped[lane_of(w, k)]", "1'b0", "FLIPS"),
        ("slices are not multiplied", "slice_factor[k*16 +: 16]", "16'd1", "MULTIPLIES"),
        ("slices are one bit apart", "slice_shift[k*6 +: 6]", "6'(k)", "APART"),
        (
            "the offset of weights is not subtracted",
            "weight_offset * row_sum",
            "ACC_BITS'(0)",
            "OFFSET",
        ),
        (
            "an accumulator of 18 bits",
            "acc[w*ACC_BITS +: ACC_BITS] + added",
            "ACC_BITS'($signed(18'(acc[w*ACC_BITS +: ACC_BITS] + added)))",
            "WIDE",
        ),
    ),
    ("layer_sum", OUTPUT): (("the bias is left out", "whole + bias", "whole", "BIAS"),),
    ("requantised", OUTPUT): (
        ("requantisation rounds down", "scaled + half", "scaled", "DOWN"),
        ("requantisation does not clip", "rounded > 64'(hi)", "1'b0", "CLIPS"),
        (
            "requantisation rounds half to even",
            "scaled + half",
            "scaled + half - 64'($signed({1'b0, ~scaled[shift]}))",
            "TIES",
        ),
        (
            "a multiplier of 25 bits",
            "$signed({33'd0, multiplier})",
            "$signed({33'd0, multiplier[30:6], 6'd0})",
            "LOW_BITS",
        ),
    ),
    ("write_verify", WRITER): (
        (
            "verify accepts a cell a pulse below its bounds",
            "read[c*32 +: 32] < lower[c*32 +: 32]",
            "read[c*32 +: 32] + 32'(tb_array.pulse) < lower[c*32 +: 32]",
            "WRITES",
        ),
        (
            "verify is skipped after a pulse",
            "(given < max_pulses)",
            "(given < 32'd1)",
            "WRITES",
        ),
        (
            "pulses go to the neighbouring cell",
            "{low}",
            "{low[CELLS-2:0], low[CELLS-1]}",
            "WRITES",
        ),
    ),
    ("cam_distances", CAM): (
        ("two words are swapped", "(write_word)", "write_word ^ WORD_BITS'(1)", "WORDS"),
        ("X is compared like a value", "cell_value == DONT_CARE", "1'b0", "X"),
        (
            "the first cell of words is not compared",
            "apart(word[c*CELL_LANE +: CELL_LANE], query[c*CELL_LANE +: CELL_LANE])",
            "(c == 0 ? LANE'(0) : "
            "apart(word[c*CELL_LANE +: CELL_LANE], query[c*CELL_LANE +: CELL_LANE]))",
            "FIRST_CELL",
        ),
        ("a cell's levels are not told apart", "levels != '0", "1'b0", "HAMMING"),
    ),
    ("cam_codes", CAM): (
        (
            "word converters round to nearest",
            "(sensed)",
            "(sensed + LANE'(STEP / 2))",
            "CAM_ROUNDS",
        ),
        ("word converters have no highest code", "quotient > LANE'(TOP)", "1'b0", "CAM_TOP"),
    ),
    ("cam_estimates", RANK): (
        ("the offset of an item is left out", "sum * factor + offset", "sum * factor", "LINE"),
    ),
    ("cam_shortlist", RANK): (
        (
            "an item that is listed later is lost behind a nearer one",
            "nearer[i-1] ? item_of[i-1] : item",
            "item",
            "CAM_MOVES",
        ),
        (
            "of equal estimates the higher item comes first",
            "estimate < held[i]",
            "estimate <= held[i]",
            "CAM_TIES",
        ),
    ),
}
"""Name, right and wrong expression and `shows` of each fault, by its tap and its file."""

FAULTS = tuple(
    Fault(name, tap, file, right, wrong, shows)
    for (tap, file), faults in _BY_TAP.items()
    for name, right, wrong, shows in faults
)


def faulty(file: str, source: str, faults: Sequence[Fault] = FAULTS) -> str:
    """The source of a file with its faults, each chosen by its number in `faults`, from 1.

    Raises ValueError if an expression does not occur exactly once.
    """
    bench = "tb_cam" if file in (CAM, RANK) else "tb_array"
    numbered = [(n, one) for n, one in enumerate(faults, 1) if one.file == file]
    for right in dict.fromkeys(one.right for _, one in numbered):
        if source.count(right) != 1:
            raise ValueError(f"{file}: {right!r} occurs {source.count(right)} times; expected 1")
        chosen = f"({right})"
        for n, one in numbered:
            if one.right == right:
                chosen = f"({bench}.fault == {n} ? {one.wrong} : {chosen})"
        source = source.replace(right, chosen)
    return source
