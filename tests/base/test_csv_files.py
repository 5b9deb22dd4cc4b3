"""Tables of numbers in CSV files: block by block, with the line of what is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cimtool.base import csv_files
from cimtool.base.csv_files import CsvColumn, header_of, read_table
from cimtool.base.errors import CimError

COLUMNS = {
    "row": CsvColumn(0, 99, whole=True),
    "value": CsvColumn(-1, 1),
    "state": CsvColumn(0, 1, words={"on": 1.0, "off": 0.0}),
}
LINES = [f"{i},{i / 64!r},{('off', 'on')[i % 2]}" for i in range(50)]


def table(file: Path, lines: list[str], end: str = "\n") -> dict[str, np.ndarray]:
    file.write_bytes(end.join(["row,value,state", *lines, ""]).encode())
    blocks = [rows.columns for rows in read_table(file, COLUMNS)]
    return {name: np.concatenate([block[name] for block in blocks]) for name in COLUMNS}


@pytest.mark.parametrize("block", [7, 64, 1 << 20])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_numbers_are_the_same_in_blocks_of_any_size(
    block: int, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "BLOCK", block)
    found = table(tmp_path / "t.csv", LINES, end)
    np.testing.assert_array_equal(found["row"], np.arange(50))
    np.testing.assert_array_equal(found["value"], np.arange(50) / 64)
    np.testing.assert_array_equal(found["state"], np.arange(50) % 2)


def test_the_last_line_needs_no_end(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("row,value,state\n1,0.5,on")
    (rows,) = read_table(tmp_path / "t.csv", COLUMNS)
    assert {name: values.tolist() for name, values in rows.columns.items()} == {
        "row": [1.0], "value": [0.5], "state": [1.0]
    }  # fmt: skip


@pytest.mark.parametrize("block", [7, 1 << 20])
def test_an_error_names_its_line_in_any_block(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "BLOCK", block)
    file = tmp_path / "t.csv"
    for at, line, said in (
        (30, "1,2,on", "value is 2; expected a number from -1 to 1"),
        (0, "1,0.5,ajar", "state is ajar; expected on or off"),
        (49, "1,0.5", "has 2 columns; expected 3, row,value,state"),
    ):
        with pytest.raises(CimError) as caught:
            table(file, [*LINES[:at], line, *LINES[at + 1 :]])
        assert str(caught.value) == f"{file}: line {at + 2}: {said}"


def test_a_first_line_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"1" * 100_000)
    with pytest.raises(CimError, match=r"a\.csv: line 1: is longer than 4096 bytes$"):
        header_of(tmp_path / "a.csv")


@pytest.mark.parametrize("line", ["1{},0.5,on", "1,0{}.5,on", "{}1,0.5,on", "1,0.5,o{}n"])
def test_the_line_of_a_strange_character_is_named(line: str, tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    for strange in "".join(map(chr, {*range(1, 33)} - {9, 10})) + "\"#_'":
        lines = [LINES[0], line.format(strange), *LINES[1:]]
        if strange.isspace() and strange != "\r" and line in ("1{},0.5,on", "{}1,0.5,on"):
            continue  # white space around a number
        with pytest.raises(CimError) as caught:
            table(file, lines)
        assert str(caught.value).startswith(f"{file}: line 3: "), strange
