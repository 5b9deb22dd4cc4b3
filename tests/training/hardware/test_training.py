from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.loading.embeddings import Embeddings
from cimtool.training.hardware.fine_tune import split_rows

TEXTS, VIDEOS = 60, 20
DATA = Embeddings(
    np.zeros((TEXTS, 3), np.float32),
    np.zeros((VIDEOS, 3), np.float32),
    np.arange(TEXTS) % VIDEOS,
)


def test_no_video_is_both_learnt_from_and_held_out() -> None:
    right, learn, held = split_rows(DATA, np.random.default_rng(0))
    assert sorted([*learn, *held]) == list(range(TEXTS))
    assert set(right[held]) == set(np.flatnonzero(~np.isin(np.arange(VIDEOS), right[learn])))
    assert len(held) == 6
    assert (right == np.arange(TEXTS) % VIDEOS).all()


def test_unpaired_rows_are_learnt_from_too() -> None:
    rows = replace(DATA, text_to_video=None)
    right, learn, held = split_rows(rows, np.random.default_rng(0))
    assert len(learn) + len(held) == TEXTS
    assert not set(right[learn]) & set(right[held])


def test_rows_that_cannot_be_split_are_refused() -> None:
    few = Embeddings(np.zeros((4, 3)), np.zeros((4, 3)), np.arange(4), file="few.npz")
    with pytest.raises(CimError, match=r"few\.npz: 4 texts and 4 videos are too few"):
        split_rows(few, np.random.default_rng(0))
