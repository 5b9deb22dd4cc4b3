"""Embeddings in memory: what a user has in hand is read as the same arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.loading.embeddings import embeddings_in, file_of, files_of
from cimtool.loading.in_memory import array_of

TEXT, VIDEO = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
LISTS = {"text": TEXT.tolist(), "image": VIDEO.tolist(), "title": list("abcde")}


class Column:
    """A column as Hugging Face's datasets give it: rows by index, and nothing else."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> Any:
        return self.rows[at]


class Dataset:
    """A dataset of columns, of which a name that is not asked for is never read."""

    column_names = ("text", "image", "picture")

    def __getitem__(self, name: str) -> Column:
        assert name != "picture"
        return Column(LISTS[name])


FORMS: dict[str, Any] = {
    "arrays": {"text": TEXT, "video": VIDEO},
    "a tuple of arrays": (TEXT, VIDEO),
    "a list of arrays": [TEXT, VIDEO],
    "tensors": {"text": torch.tensor(TEXT, requires_grad=True), "video": torch.tensor(VIDEO)},
    "a tuple of tensors": (torch.tensor(TEXT), torch.tensor(VIDEO)),
    "a tuple of tables": (pd.DataFrame(TEXT), pl.DataFrame(VIDEO)),
    "lists": LISTS,
    "pandas": pd.DataFrame(LISTS),
    "polars": pl.DataFrame(LISTS),
    "pyarrow": pa.table(LISTS),
    "datasets": Dataset(),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_rows(form: str) -> None:
    read = embeddings_in(FORMS[form])
    for rows, wanted in ((read.text, TEXT), (read.video, VIDEO)):
        assert rows.dtype == np.float32
        np.testing.assert_array_equal(rows, wanted)
    assert files_of(FORMS[form]) == ()


def test_a_pair_has_the_names_of_the_models_modalities() -> None:
    read = embeddings_in((TEXT, VIDEO), ("text", "audio"))
    assert read.called == ("text", "audio")


def test_half_precision_of_torch_is_read() -> None:
    rows = torch.tensor(TEXT).to(torch.bfloat16)
    np.testing.assert_array_equal(array_of(rows), rows.float().numpy())


@pytest.mark.parametrize("rows", [TEXT, torch.tensor(TEXT), TEXT.tolist(), pd.DataFrame(TEXT)])
def test_rows_of_one_modality_come_from_no_file(rows: Any) -> None:
    assert file_of(rows, "video") is None


def test_files_are_no_rows(tmp_path: Path) -> None:
    assert files_of((tmp_path / "a.npy", "b.npy")) == (tmp_path / "a.npy", Path("b.npy"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (3, "embeddings are given as int; expected a file, a pair of files or of arrays"),
        (TEXT, "embeddings are given as ndarray; expected a file, a pair"),
        ({"text": ["a cat"], "video": VIDEO}, "text holds texts; expected their embeddings"),
        ({"text": [[1.0], [1.0, 2.0]], "video": VIDEO}, "text is of list; expected an array"),
    ],
)
def test_what_is_no_pair_of_rows_is_one_sentence(given: Any, said: str) -> None:
    with pytest.raises(CimError, match=said):
        embeddings_in(given)
