"""Judgements as TREC's qrels files: a line `query 0 item grade` for each judged pair."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import CimError
from cimtool.base.escapes import integer_of
from cimtool.base.modality_names import Modalities, name_of, one_row
from cimtool.base.untrusted import read_bounded
from cimtool.loading.embeddings import (
    Embeddings,
    EmbeddingsLike,
    File,
    embeddings_in,
)
from cimtool.reference.truth import Judgements

COLUMNS = "query 0 item grade"

LARGEST = 1 << 26
"""Bytes of a qrels file at most."""


def judged_data(
    data: EmbeddingsLike, qrels: File | None, modalities: Modalities | None = None
) -> EmbeddingsLike:
    """Embeddings with the right items of a qrels file; unchanged if there is no file.

    Queries are texts and items are videos, named by id, or by row if the data have no ids. Raises
    CimError, which names the line, if a line is not a judgement of these data.
    """
    return data if qrels is None else judged_rows(embeddings_in(data, modalities), qrels)


def judged_rows(rows: Embeddings, qrels: File | None) -> Embeddings:
    """Embeddings, already read, with the right items of a qrels file."""
    return rows if qrels is None else replace(rows, judged=read_qrels(Path(qrels), rows))


def read_qrels(path: Path, data: Embeddings) -> Judgements:
    """Read a qrels file about these embeddings; pairs of grade 0 or less are wrong pairs."""
    texts, videos = (_Rows(data, modality) for modality in ("text", "video"))
    known: dict[tuple[int, int], tuple[int, int]] = {}
    for number, line in enumerate(_lines(path), 1):
        where, parts = f"{path}: line {number}", line.split()
        if not parts:
            continue
        if len(parts) != 4:
            raise CimError(f"{where} has {len(parts)} columns; expected 4, {COLUMNS}")
        pair = texts.row(parts[0], f"{where}: query"), videos.row(parts[2], f"{where}: item")
        if pair in known:
            raise CimError(
                f"{where} judges the pair of line {known[pair][1]} again; expected it once"
            )
        known[pair] = _grade(parts[3], where), number
    right = {pair: grade for pair, (grade, _) in known.items() if grade > 0}
    if data.alone:
        right = {pair: grade for pair, grade in right.items() if pair[0] != pair[1]}
    if not right:
        raise CimError(f"{path}: grades no pair above 0; expected grades of right pairs, {COLUMNS}")
    pairs: IntArray = np.array(list(right), np.int64)
    return Judgements(pairs[:, 0], pairs[:, 1], np.array(list(right.values()), np.int64), str(path))


def _lines(path: Path) -> list[str]:
    try:
        return read_bounded(path, LARGEST).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise CimError(f"{path}: is not text in UTF-8; expected lines of {COLUMNS}") from None


def _grade(text: str, where: str) -> int:
    try:
        grade = integer_of(text)
    except ValueError:
        grade = 2**31
    if abs(grade) >= 2**31:
        raise CimError(f"{where}: grade {text} is not an integer of 32 bits; expected one")
    return grade


class _Rows:
    """The rows of a modality's items, by id."""

    def __init__(self, data: Embeddings, modality: str) -> None:
        ids: Array = data.ids(modality)
        self.known = {one: row for row, one in enumerate(ids.tolist())}
        named = data.named(modality)
        self.expected = (
            f"one of {named} in {data.file}"
            if named
            else f"{one_row(name_of(modality, data.called))} of {data.file}, 0 to {len(ids) - 1}"
        )

    def row(self, name: str, where: str) -> int:
        if name not in self.known:
            raise CimError(f"{where} {name} is not known; expected {self.expected}")
        return self.known[name]
