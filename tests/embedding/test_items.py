from __future__ import annotations

from pathlib import Path

import pytest

from cimtool.base.errors import CimError
from cimtool.embedding.items import read_items


def test_cells_may_hold_commas_quotes_and_lines(tmp_path: Path) -> None:
    file = tmp_path / "items.csv"
    file.write_text('n,text\n1,"a dog, ""Rex"",\nruns"\n\n2,a cat\n')
    (found,) = read_items(file, "text", None)
    assert found.values == ['a dog, "Rex",\nruns', "a cat"]
    assert found.places == [f"{file}: line 3", f"{file}: line 5"]


def test_an_image_that_stands_several_times_is_kept_once(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).touch()
    file = tmp_path / "items.csv"
    file.write_text("image\nb\na\nb\n")
    (found,) = read_items(file, None, "image")
    once, rows = found.once()
    assert once.values == ("b", "a")
    assert once.places == (f"{file}: line 2", f"{file}: line 3")
    assert rows.tolist() == [0, 1, 0]
    assert once.path(1) == tmp_path / "a"


WRONG = {
    "few cells": (".csv", b"n,text\n1\n", "line 2: has 1 cells; expected 2, as many as the first"),
    "an open quote": (".csv", b'n,text\n1,"a\n', "line 2: is no row of a table: unexpected end"),
    "a huge cell": (".csv", b"n,text\n1," + b"a" * 200_000, "line 2: is no row .* field limit"),
    "one column twice": (".csv", b"text,text\na,b\n", "line 1: has more than one column text"),
    "no rows": (".csv", b"n,text\n", "has no rows; expected at least one"),
    "nothing": (".csv", b"", "line 1: has no column text; it has none"),
    "not Unicode": (".csv", b"n,text\n1,\xff\n", "line 2: is not UTF-8"),
    "no JSON": (".jsonl", b'{"text": "a"}\n{"text"\n', "line 2: is not JSON"),
    "no object": (".jsonl", b'["text"]\n', "line 1: holds no object; expected one a line"),
    "a number": (".jsonl", b'{"text": 3}\n', "line 1: text is not a text; expected one"),
    "no key": (".jsonl", b'{"txt": "a"}\n', 'line 1: has no column text; .* did you mean "txt"'),
    "deep": (".jsonl", b'{"text": ' + b"[" * 90 + b"]" * 90 + b"}", "line 1: is not JSON: .* deep"),
    "a blank text": (".jsonl", b'{"text": " "}\n', "line 1: text is blank; expected a text"),
    "another form": (".xlsx", b"PK", r"is no file of items; expected \.csv, \.tsv, \.jsonl, \.txt"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_file_that_is_wrong_is_one_sentence(kind: str, tmp_path: Path) -> None:
    suffix, content, said = WRONG[kind]
    file = tmp_path / f"items{suffix}"
    file.write_bytes(content)
    with pytest.raises(CimError, match=said) as caught:
        read_items(file, "text", None)
    assert str(caught.value).startswith(f"{file}: ")


def test_a_blank_line_of_texts_is_named(tmp_path: Path) -> None:
    file = tmp_path / "items.txt"
    file.write_text("a\n\nb\n")
    with pytest.raises(CimError, match="line 2: text is blank; expected a text"):
        read_items(file, None, None)
    with pytest.raises(CimError, match="is a text a line, without columns"):
        read_items(file, "text", None)


def test_a_folder_has_images_and_no_columns(tmp_path: Path) -> None:
    (tmp_path / "notes.md").touch()
    with pytest.raises(CimError, match=r"holds no image; expected \.jpg"):
        read_items(tmp_path, None, None)
    for name in ("b.JPG", "a.png"):
        (tmp_path / name).touch()
    (found,) = read_items(tmp_path, None, None)
    assert found.values == ["a.png", "b.JPG"]
    with pytest.raises(CimError, match="is a folder of images, without columns"):
        read_items(tmp_path, None, "image")


def test_an_image_that_is_a_device_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "items.csv"
    file.write_text("image\n/dev/zero\n")
    with pytest.raises(CimError, match="/dev/zero: is a device, a pipe or a socket"):
        read_items(file, None, "image")
