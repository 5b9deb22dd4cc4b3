"""Qrels files, and ids of items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.loading.embeddings import Embeddings, embeddings_of
from cimtool.loading.qrels import judged_data, read_qrels

ROWS = {"text": np.eye(3), "video": np.ones((4, 3))}


def data(**more: Any) -> Embeddings:
    return embeddings_of(ROWS | more, "e.npz")


def qrels(folder: Path, text: str) -> Path:
    path = folder / "q.txt"
    path.write_text(text)
    return path


def pairs(path: Path, rows: Embeddings) -> list[tuple[int, int, int]]:
    found = read_qrels(path, rows)
    return [*zip(*(one.tolist() for one in (found.text, found.video, found.grade)), strict=True)]


def test_rows_are_ids_where_the_data_have_none(tmp_path: Path) -> None:
    path = qrels(tmp_path, "0 0 3 2\n\n2\t0\t1   1\n1 0 1 0\n1 Q0 2 -1\n")
    assert pairs(path, data()) == [(0, 3, 2), (2, 1, 1)]
    judged = judged_data(data(), path)
    assert isinstance(judged, Embeddings)
    assert judged.truth.judged is judged.judged
    assert judged_data(ROWS, None) is ROWS


def test_a_byte_order_mark_is_no_part_of_the_first_query(tmp_path: Path) -> None:
    assert pairs(qrels(tmp_path, "\ufeff0 0 3 2\n"), data()) == [(0, 3, 2)]


def test_ids_of_the_data_are_those_of_the_file(tmp_path: Path) -> None:
    path = qrels(tmp_path, "b 0 7 2\nc 0 5 1\n")
    ids = {"text_ids": np.array(["a", "b", "c"]), "image_ids": np.array([7, 6, 5, 4])}
    assert pairs(path, data(**ids)) == [(1, 0, 2), (2, 2, 1)]
    alone = {"rows": np.eye(3), "row_ids": np.array(["a", "b", "c"])}
    path = qrels(tmp_path, "b 0 b 1\nc 0 a 1\n")
    assert pairs(path, embeddings_of(alone)) == [(2, 0, 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 0 1 1\n0 1 1\n", r"q\.txt: line 2 has 3 columns; expected 4, query 0 item grade"),
        ("3 0 1 1\n", r"line 1: query 3 is not known; expected a text row of e\.npz, 0 to 2"),
        ("0 0 d4 1\n", "line 1: item d4 is not known; expected a video row of e.npz, 0 to 3"),
        ("0 0 1 1\n0 0 1 2\n", "line 2 judges the pair of line 1 again; expected it once"),
        ("0 0 1 1.5\n", "line 1: grade 1.5 is not an integer of 32 bits"),
        (f"0 0 1 {2**40}\n", "line 1: grade 1099511627776 is not an integer of 32 bits"),
        ("0 0 1 1_0\n", "line 1: grade 1_0 is not an integer of 32 bits"),
        ("0 0 1 ٣\n", "line 1: grade ٣ is not an integer of 32 bits"),
        ("0 0 1 0\n", "grades no pair above 0; expected grades of right pairs"),
        ("", "grades no pair above 0"),
    ],
)
def test_lines_that_are_no_judgement(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CimError, match=message):
        read_qrels(qrels(tmp_path, text), data())


def test_files_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(CimError, match="there is no such file"):
        read_qrels(tmp_path / "none", data())
    (tmp_path / "q").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CimError, match="is not text in UTF-8"):
        read_qrels(tmp_path / "q", data())


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (
            np.array(["a", "b"]),
            r"text_ids has shape \[2\] of <U1; expected \[3\] texts or integers",
        ),
        (np.zeros(3), r"text_ids has shape \[3\] of float64"),
        (np.array(["a", "b c", "d"]), 'text_ids of row 1 is "b c"; expected a text without spaces'),
        (np.array(["a", "", "d"]), 'text_ids of row 1 is ""'),
        (np.array([4, 2, 4]), "text_ids has 4 more than once; expected a different id"),
    ],
)
def test_ids_amiss(ids: np.ndarray, message: str) -> None:
    with pytest.raises(CimError, match=message):
        data(text_ids=ids)


def test_an_unknown_id_names_the_array(tmp_path: Path) -> None:
    ids = {"text_ids": np.array(["a", "b", "c"])}
    with pytest.raises(CimError, match=r"query d is not known; expected one of text_ids in e\.npz"):
        read_qrels(qrels(tmp_path, "d 0 1 1\n"), data(**ids))
