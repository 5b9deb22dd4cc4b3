from __future__ import annotations

from pathlib import Path

import numpy as np

from cimtool.demo.queries import qrels_of, queries_of, read_right, write_judged

DOCSTRINGS = [
    "Return the sum.",
    "Return the sum of all items.",
    "Return a copy.",
    "return the sum of all items, sorted.",
    "Close it.",
]


def test_right_are_all_functions_whose_docstring_begins_so() -> None:
    found = queries_of(DOCSTRINGS, 3, 0)
    assert len(found) == len(set(found.texts)) > 6
    for text, own, right in zip(found.texts, found.own, found.right, strict=True):
        words = text.split()
        assert right == tuple(
            i for i, one in enumerate(DOCSTRINGS) if one.lower().split()[: len(words)] == words
        )
        assert own in right
    assert {one.lower() for one in DOCSTRINGS} <= set(found.texts)


def test_known_queries_are_left_out_and_a_part_is_drawn() -> None:
    every = queries_of(DOCSTRINGS, 3, 0)
    others = queries_of(DOCSTRINGS, 3, 0, every.texts[:4])
    assert others.texts == every.texts[4:]
    one = queries_of(DOCSTRINGS, 1, 0)
    assert len(one) <= len(DOCSTRINGS)
    assert queries_of(DOCSTRINGS, 1, 0) == one


def test_among_the_first_functions_others_are_not_right() -> None:
    found = queries_of(DOCSTRINGS, 3, 0)
    kept = [i for i, own in enumerate(found.own) if own < 2]
    part = found.among(kept, 2)
    assert part.texts == tuple(found.texts[i] for i in kept)
    assert all(set(right) <= {0, 1} and right for right in part.right)


def test_a_file_of_rows_has_its_right_pairs_beside_it(tmp_path: Path) -> None:
    queries = queries_of(DOCSTRINGS, 3, 0)
    file = tmp_path / "rows.npz"
    write_judged(file, queries, np.zeros((len(queries), 2)), np.zeros((5, 2)))
    assert qrels_of(file) == tmp_path / "rows.qrels"
    right = read_right(file, len(queries), 5)
    assert [tuple(np.flatnonzero(row)) for row in right] == list(queries.right)
    with np.load(file) as arrays:
        assert tuple(arrays["text_to_video"]) == queries.own
