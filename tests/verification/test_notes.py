"""Notes of a report that no figure has: rows that cannot be ranked as they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from cimtool.loading.embeddings import embeddings_of
from cimtool.reference.queries import Queries
from cimtool.verification.notes import data_notes


@pytest.mark.parametrize(
    ("width", "said"), [(6, []), (4, ["text rows have 6 numbers, video rows"])]
)
def test_rows_of_two_widths_have_no_cosine(width: int, said: list[str]) -> None:
    rows: dict[str, Any] = {"text": np.ones((3, 6)), "video": np.ones((3, width))}
    data = embeddings_of(rows, "rows.npz")
    queries = cast(Queries, SimpleNamespace(counts={"text": 500, "video": 500}))
    notes = data_notes(data, data.truth, queries)
    assert [note for note in notes if "no cosine" in note] == [
        f"raw embeddings have no cosine: {one} {width}" for one in said
    ]
