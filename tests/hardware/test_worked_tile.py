"""The tile worked by hand, which docs/integer-contract.md includes: every number in its tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from crossbars import at_steps, changed, crossbar_of, mvm

from cimtool.base.arrays import IntArray
from cimtool.hardware.converters import Law, measured_thresholds
from cimtool.hardware.crossbar import Crossbar, leak_of
from cimtool.hardware.input_codes import Cycle
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.format import adc

PAGE = Path(__file__).resolve().parents[1] / "golden" / "worked_tile.md"
ENCODINGS = ("differential", "offset", "offset-flip", "centred", "twos-complement", "ternary")
STEP = 1

Table = list[list[str]]


def tables(text: str) -> list[Table]:
    """Every table of a Markdown text: rows of cells, the head first."""
    found: list[Table] = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        lines = [line.strip("|").split("|") for line in block.splitlines()]
        rows = [[cell.strip() for cell in line] for line in lines]
        found.append([rows[0], *rows[2:]])
    return found


def numbers(cell: str) -> list[int]:
    return [int(part) for part in cell.split(",")]


def section(name: str) -> list[Table]:
    """The tables under a heading of the worked tile."""
    tile = PAGE.read_text("utf-8").split("## One tile by hand", 1)[1]
    parts = re.split(r"^### `(.*)`$", tile, flags=re.MULTILINE)
    named = dict(zip(["", *parts[1::2]], parts[::2], strict=True))
    return tables(named[name])


@dataclass(frozen=True)
class Tile:
    """Shared by all encodings: W [4, 2], x [1, 4], the digits driven, and the exact product."""

    weight: IntArray
    x: IntArray
    cycles: Table
    exact: list[int]


@pytest.fixture(scope="module")
def tile() -> Tile:
    given, cycles = section("")
    body, last = given[1:-1], given[-1]
    numbers_of = np.array([[int(cell) for cell in row[1:]] for row in body])
    return Tile(
        numbers_of[:, :2], numbers_of[None, :, 2], cycles[1:], [int(cell) for cell in last[1:3]]
    )


def crossbar(encoding: str, inputs: str = "twos-complement") -> Crossbar:
    adc_bits = None if encoding == "twos-complement" else 2
    cell_bits = 1 if encoding == "ternary" else 2
    return crossbar_of(None, cell_bits, 1, encoding, 4, inputs, 3, adc_bits, "half-up", 32)


def driving(tile: Tile, hardware: Crossbar) -> list[tuple[IntArray, Cycle]]:
    """The digits [4] that drive the tile, and what they count, cycle by cycle."""
    digits = hardware.digits(tile.x)[:, 0]
    return list(zip(digits, hardware.cycles, strict=True))


def law_of(hardware: Crossbar) -> Law:
    assert hardware.law is not None
    return hardware.law


def test_the_tile_has_the_shape_that_the_page_says(tile: Tile) -> None:
    assert tile.weight.shape == (4, 2)
    assert [crossbar(encoding).slices for encoding in ENCODINGS] == [2, 2, 2, 2, 2, 3]
    assert (tile.x @ tile.weight).tolist() == [tile.exact]


def test_cycles_drive_the_bits_of_the_inputs(tile: Tile) -> None:
    cycles = driving(tile, crossbar("offset"))
    assert len(cycles) == 3
    for row, (driven, cycle) in zip(tile.cycles, cycles, strict=True):
        counts, digits, total = int(row[1]), [int(cell) for cell in row[2:6]], int(row[6])
        assert counts == cycle.sign << cycle.shift
        assert digits == driven.tolist()
        assert total == driven.sum()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_cells_hold_the_digits_of_the_weights(encoding: str, tile: Tile) -> None:
    cells = section(encoding)[0]
    slices = StoredWeights(tile.weight, crossbar(encoding)).slices
    stored = np.hstack([cut.digits for cut in slices])
    assert [[int(cell) for cell in row[1:]] for row in cells[1:]] == stored.tolist()
    flagged = [name.endswith(" F") for name in cells[0][1:]]
    assert flagged == np.hstack([cut.flipped for cut in slices])[0].tolist()
    if crossbar(encoding).weights.complements:
        assert any(flagged)
        assert not all(flagged)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_sums_codes_and_shift_and_add(encoding: str, tile: Tile) -> None:
    hardware = crossbar(encoding)
    _, steps, result = section(encoding)
    slices = StoredWeights(tile.weight, hardware).slices
    total = np.zeros(2, np.int64)
    rows = iter(steps[1:])
    for c, (driven, cycle) in enumerate(driving(tile, hardware)):
        for k, cut in enumerate(slices):
            row = next(rows)
            assert row[:2] == [str(c), str(k)]
            value = driven @ cut.digits
            assert numbers(row[2]) == value.tolist()
            if encoding != "twos-complement":
                law = law_of(hardware)
                code = adc(value, 1 << STEP, law.lo, law.hi, "half-up")
                assert numbers(row[3]) == code.tolist()
                value = code << STEP
            complement = hardware.weights.complement * driven.sum()
            value = np.where(cut.flipped[0], complement - value, value)
            assert numbers(row[4]) == value.tolist()
            factor = cycle.factor * cut.worth
            assert int(row[5]) == factor
            assert numbers(row[6]) == (factor * value).tolist()
            total += factor * value
    assert next(rows, None) is None
    summed, correction, found, exact = (numbers(cell) for cell in result[1])
    assert summed == total.tolist()
    assert found == (total + correction[0]).tolist()
    assert exact == tile.exact
    converters = None if encoding == "twos-complement" else STEP
    references = at_steps(hardware, (converters,) * len(slices))
    assert mvm(tile.x, StoredWeights(tile.weight, hardware), references).tolist() == [found]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("inputs", ["twos-complement", "offset", "bipolar"])
def test_without_converters_every_encoding_gives_the_exact_product(
    encoding: str, inputs: str, tile: Tile
) -> None:
    hardware = changed(crossbar(encoding, inputs), adc_bits=None)
    assert mvm(tile.x, StoredWeights(tile.weight, hardware), hardware.no_references).tolist() == [
        tile.exact
    ]


def plain(name: str, **keys: object) -> Crossbar:
    """The tile's crossbar in the section of that name."""
    base = "offset" if name in ("unit-column", "leak") else "differential"
    return changed(crossbar(base), **keys)


def check_result(name: str, tile: Tile, hardware: Crossbar, total: IntArray, step: int) -> None:
    """The last table of a section: the sum, the correction, and what the contract makes of it."""
    summed, correction, found, exact = (numbers(cell) for cell in section(name)[-1][1])
    assert summed == total.tolist()
    assert found == (total + correction[0]).tolist()
    assert exact == tile.exact
    references = at_steps(hardware, (step,) * hardware.slices, step)
    result = mvm(tile.x, StoredWeights(tile.weight, hardware), references)
    assert result.tolist() == [found]


def test_each_polarity_is_converted(tile: Tile) -> None:
    hardware = plain("polarity", adc_on="polarity")
    slices = StoredWeights(tile.weight, hardware).slices
    assert [cut.sign for cut in slices] == [1, -1, 1, -1]
    total = np.zeros(2, np.int64)
    rows = iter(section("polarity")[0][1:])
    for c, (driven, cycle) in enumerate(driving(tile, hardware)):
        for k in range(2):
            row = next(rows)
            assert row[:2] == [str(c), str(k)]
            value = np.zeros(2, np.int64)
            for cut, cells in zip(slices[2 * k : 2 * k + 2], (row[2:4], row[4:6]), strict=True):
                sums = driven @ cut.digits
                codes = law_of(hardware).codes(sums, 1 << STEP)
                assert [numbers(cell) for cell in cells] == [sums.tolist(), codes.tolist()]
                value += cut.sign * (codes << STEP)
            assert numbers(row[6]) == value.tolist()
            factor = cycle.sign << cycle.shift + slices[2 * k].shift
            assert int(row[7]) == factor
            assert numbers(row[8]) == (factor * value).tolist()
            total += factor * value
    assert next(rows, None) is None
    check_result("polarity", tile, hardware, total, STEP)


def test_cycles_are_added_before_the_converter(tile: Tile) -> None:
    hardware, step = plain("analog", shift_add="analog"), 3
    total = np.zeros(2, np.int64)
    rows, slices = section("analog")[0][1:], StoredWeights(tile.weight, hardware).slices
    for k, (row, cut) in enumerate(zip(rows, slices, strict=True)):
        sums = tile.x[0] @ cut.digits
        codes = law_of(hardware).codes(sums, 1 << step)
        adds = (codes << step) << cut.shift
        assert int(row[0]) == k
        assert [numbers(cell) for cell in row[1:4]] == [
            sums.tolist(), codes.tolist(), (codes << step).tolist(),
        ]  # fmt: skip
        assert int(row[4]) == 1 << cut.shift
        assert numbers(row[5]) == adds.tolist()
        total += adds
    check_result("analog", tile, hardware, total, step)


def test_the_unit_column_measures_the_sum_of_the_digits(tile: Tile) -> None:
    hardware = plain("unit-column", offset_sum="unit-column")
    steps, result = section("unit-column")
    correction = 0
    for row, (driven, cycle) in zip(steps[1:], driving(tile, hardware), strict=True):
        total = driven.sum()
        code = int(law_of(hardware).codes(total, 1 << STEP))
        factor = -8 * (cycle.sign << cycle.shift)
        expected = [total, code, code << STEP, factor, factor * (code << STEP)]
        assert [int(cell) for cell in row[1:]] == expected
        correction += factor * (code << STEP)
    assert int(result[1][1]) == correction
    offset = section("offset")[-1][1][0]
    check_result("unit-column", tile, hardware, np.array(numbers(offset)), STEP)


def test_what_cells_leak_is_taken_off(tile: Tile) -> None:
    leak, step = leak_of(13.0, 2), 13
    assert leak == 1024
    hardware = plain("leak", leak=leak)
    steps, result = section("leak")
    total = np.zeros(2, np.int64)
    rows = iter(steps[1:])
    for c, (driven, cycle) in enumerate(driving(tile, hardware)):
        for k, cut in enumerate(StoredWeights(tile.weight, hardware).cells.slices):
            row = next(rows)
            assert row[:2] == [str(c), str(k)]
            sums = driven @ cut.digits
            codes = law_of(hardware).codes(sums, 1 << step)
            value = (codes << step) - leak * driven.sum()
            factor = cycle.sign << cycle.shift + cut.shift
            assert digits(row[2]) == sums.tolist()
            assert numbers(row[3]) == codes.tolist()
            assert digits(row[4]) == value.tolist()
            assert int(row[5]) == factor
            assert digits(row[6]) == (factor * value).tolist()
            total += factor * value
    assert next(rows, None) is None
    assert digits(result[1][0]) == total.tolist()
    rounded, correction, found = (numbers(cell) for cell in result[1][1:4])
    assert rounded == ((total + (1 << 11)) >> 12).tolist()
    assert found == [value + correction[0] for value in rounded]
    references = at_steps(hardware, (step, step))
    assert mvm(tile.x, StoredWeights(tile.weight, hardware), references).tolist() == [found]


def digits(cell: str) -> list[int]:
    """Numbers of digits, in 2^-12 of one."""
    return [int(float(part) * (1 << 12)) for part in cell.split(",")]


def test_a_measured_converter_reads_its_table(tile: Tile) -> None:
    transfer = measured_thresholds((0.25, 1.5, 3.0))
    hardware = plain("table", rounding=None, transfer=transfer)
    total = np.zeros(2, np.int64)
    rows = iter(section("table")[0][1:])
    for c, (driven, cycle) in enumerate(driving(tile, hardware)):
        for k, cut in enumerate(StoredWeights(tile.weight, hardware).slices):
            row = next(rows)
            assert row[:2] == [str(c), str(k)]
            sums = driven @ cut.digits
            codes = law_of(hardware).codes(sums, 1 << STEP)
            factor = cycle.sign << cycle.shift + cut.shift
            expected = [sums, codes, codes << STEP, factor * (codes << STEP)]
            cells = [numbers(cell) for cell in (*row[2:5], row[6])]
            assert cells == [one.tolist() for one in expected]
            assert int(row[5]) == factor
            total += factor * (codes << STEP)
    assert next(rows, None) is None
    check_result("table", tile, hardware, total, STEP)
