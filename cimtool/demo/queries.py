"""Queries with several right answers: beginnings of docstrings, and the functions that fit them.

A function fits a query if its docstring begins so: "Return the" fits hundreds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cimtool.base.arrays import Array, BoolArray

FEW_WORDS = 5
"""Words of a short beginning, at most."""


@dataclass(frozen=True)
class DocstringQueries:
    """Distinct queries on functions: the function that each was taken from, and all that fit."""

    texts: tuple[str, ...]
    own: tuple[int, ...]
    right: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.texts)

    def among(self, kept: Iterable[int], functions: int) -> DocstringQueries:
        """The `kept` queries, among the first `functions`."""
        rows = list(kept)
        right = tuple(tuple(j for j in self.right[i] if j < functions) for i in rows)
        return DocstringQueries(
            tuple(self.texts[i] for i in rows), tuple(self.own[i] for i in rows), right
        )


def queries_of(
    docstrings: Sequence[str], each: int, seed: int, known: Collection[str] = ()
) -> DocstringQueries:
    """Draw `each` (1 to 3) of three queries of each docstring, none twice and none of `known`.

    They are a few words, any number of words, and the whole.
    """
    rng = np.random.default_rng(seed)
    fitting: defaultdict[str, list[int]] = defaultdict(list)
    found: dict[str, int] = {}
    for number, docstring in enumerate(docstrings):
        words = docstring.lower().split()
        beginnings = [" ".join(words[: end + 1]) for end in range(len(words))]
        for one in beginnings:
            fitting[one].append(number)
        few, any_ = rng.integers(min(FEW_WORDS, len(words))), rng.integers(len(words))
        for kind in rng.permutation(3)[:each]:
            found.setdefault(beginnings[(few, any_, -1)[kind]], number)
    kept = {text: own for text, own in found.items() if text not in known}
    right = tuple(tuple(fitting[text]) for text in kept)
    return DocstringQueries(tuple(kept), tuple(kept.values()), right)


def write_judged(file: Path, queries: DocstringQueries, text: Array, video: Array) -> None:
    """Write rows of queries and functions, and beside them what is right, as TREC qrels."""
    own = np.array(queries.own, np.int64)
    np.savez(file, text=text, video=video, text_to_video=own)
    lines = (
        f"{query} 0 {function} 1\n"
        for query, functions in enumerate(queries.right)
        for function in functions
    )
    qrels_of(file).write_text("".join(lines), encoding="utf-8")


def read_right(file: Path, queries: int, functions: int) -> BoolArray:
    """Tell which functions are right for the queries of a file of rows, [queries, functions]."""
    pairs = np.loadtxt(qrels_of(file), np.int64, ndmin=2)
    found = np.zeros((queries, functions), bool)
    found[pairs[:, 0], pairs[:, 2]] = True
    return found


def qrels_of(file: Path) -> Path:
    """The file of what is right in a file of rows."""
    return file.with_suffix(".qrels")
