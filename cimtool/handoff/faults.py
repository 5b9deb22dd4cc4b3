"""Faults of an array and its periphery that the bench must find, each at a named tap.

Those of `BOUNDARY` lie between the bench and the array: any array shows them.

`faulty` writes each fault into a source as a choice at run time, so that one build has all faults:
an expression becomes `(tb_array.fault == n ? wrong : right)`; a CAM has `tb_cam` in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from cimtool.handoff.coverage import swept
from cimtool.handoff.directed import (
    ConverterInput,
    PopulationCount,
    converter_inputs,
    population_counts,
)
from cimtool.handoff.layers import DrivenLayer
from cimtool.handoff.requantiser import mistakes
from cimtool.handoff.stimuli import input_limits
from cimtool.handoff.taps import Taps, column_places, taps
from cimtool.hardware.converters import UniformLaw
from cimtool.hardware.stored import cell_digits

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
        ("valid comes a clock before the codes", "{shown}", "shown_before", "ANY"),
        (
            "two lanes are swapped",
            "{shown}",
            "{shown[CONVERTED*CODE_BITS-1:2*CODE_BITS], shown[CODE_BITS-1:0], "
            "shown[2*CODE_BITS-1:CODE_BITS]}",
            "ANY",
        ),
        (
            "the lowest bit of a code is stuck",
            "{shown}",
            "shown & ~(CONVERTED*CODE_BITS)'(1)",
            "ANY",
        ),
        (
            "two bits of a code are swapped",
            "{shown}",
            "{shown[CONVERTED*CODE_BITS-1:2], shown[0], shown[1]}",
            "ANY",
        ),
    ),
    ("codes|converter", BOUNDARY): tuple(
        (
            f"one converter is wrong at code {code}",
            "{shown}",
            f"shown ^ (CONVERTED*CODE_BITS)'(shown[CODE_BITS-1:0] == {code})",
            f"CODE_{code}",
        )
        for code in CODES_WRONG
    ),
    ("answers", BOUNDARY): (
        ("a lane never answers", "{answering}", "answering & ~CONVERTED'(1)", "ANY"),
        (
            "lanes answer twice",
            "{answering}",
            "answering | answering_before",
            "ANY",
        ),
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
            f"CODE_{code}",
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


def layer_facts(layer: DrivenLayer) -> set[str]:
    """The facts that hold for a layer's stimuli and directed inputs, by their names in `FAULTS`.

    A fact is left out if it is in doubt; then the bench does not have to find its faults.
    """
    op, crossbar = layer.op, layer.op.crossbar
    driven, slices = crossbar.digits(layer.x), op.layer.cells.slices
    facts = {
        "ANY": True,
        "WRITES": layer.writes is not None,
        "MANY_CYCLES": len(crossbar.cycles) > 1,
        "NEGATIVE": any(
            c.sign < 0 and d.any() for c, d in zip(crossbar.cycles, driven, strict=True)
        ),
        "HIGH_BITS": bool((cell_digits(op.stored, slice(None)) > 1).any()),
        "FLIPS": any(one.flipped.any() for one in slices),
        "MULTIPLIES": any(one.factor != 1 for one in slices),
        "APART": any(one.shift != k for k, one in enumerate(slices)),
        "OFFSET": layer.image.offset > 0,
        "BIAS": bool(op.layer.bias.any()),
    }
    found = {name for name, holds in facts.items() if holds} | set(_number_facts(layer))
    for place, after in layer.requantisations.items():
        shown = mistakes(after, layer.directed[place])
        found |= {name for name, seen in shown.items() if seen.any()}
    if op.exact:
        x = layer.x + crossbar.inputs.lift
        groups = [x[:, group] @ op.weight[group] << crossbar.places for group in op.stored.groups]
    else:
        seen = taps(op, layer.x)
        groups = [seen.shift_add]
        found |= set(_code_facts(layer, seen))
    half = 1 << NARROW_BITS - 1
    if any((sums >= half).any() or (sums < -half).any() for sums in groups):
        found.add("WIDE")
    return found


def _number_facts(layer: DrivenLayer) -> Iterator[str]:
    """Yield the numbers at which a single fault of a converter, a count or an input shows."""
    counts = population_counts(layer)
    codes: list[set[int]] = [set() for _ in range(layer.op.crossbar.slices)]
    inputs: list[ConverterInput | PopulationCount] = [*converter_inputs(layer), *counts]
    for one in inputs:
        if one.slice < len(codes):
            codes[one.slice].add(one.code)
    yield from (f"CODE_{n}" for n in CODES_WRONG if all(n in reached for reached in codes))
    yield from (f"COUNT_{n}" for n in COUNTS_WRONG if any(one.rows == n for one in counts))
    lo, hi = input_limits(layer.graph, layer.node, layer.op)
    if layer.op.stored.groups[0].stop > 3:
        driven = set(swept(int(lo[3]), int(hi[3]), 3).tolist())
        yield from (f"INPUT_{n}" for n in INPUTS_WRONG if n in driven)


def _code_facts(layer: DrivenLayer, seen: Taps) -> Iterator[str]:
    """Yield the facts on converters that a code of the layer's stimuli shows.

    CODES_DOWN: a code was rounded up; CODES_EVEN: a code came from a tie; CODES_TOP: a code is the
    highest; CODES_BEYOND: a code was clipped to the highest.
    """
    crossbar, converted, law = layer.op.crossbar, layer.op.layer, layer.op.crossbar.law
    assert law is not None
    others: dict[str, UniformLaw] = {}
    if isinstance(law, UniformLaw) and not crossbar.scope.levels:
        others = {
            "CODES_DOWN": replace(law, rounding="floor"),
            "CODES_EVEN": replace(law, rounding="half-even"),
            "CODES_BEYOND": replace(law, hi=2 * law.hi - law.lo + 1),
        }
    for column, place in zip(converted.columns, column_places(converted), strict=True):
        if column.law is None:
            continue
        for c, r in product(column.cycles, range(len(converted.cells.groups))):
            codes = seen.codes[:, r, c, place]
            fine = seen.sums[:, r, c, place] << crossbar.reference_bits
            if (codes == law.hi).any():
                yield "CODES_TOP"
            for name, other in list(others.items()):
                if np.any(replace(column, law=other).codes(fine, r) != codes):
                    del others[name]
                    yield name
