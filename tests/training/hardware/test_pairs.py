from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.loading.embeddings import Embeddings
from cimtool.training.hardware.pairs import pairs_of

TEXTS, VIDEOS = 60, 20
DATA = Embeddings(
    np.zeros((TEXTS, 3), np.float32),
    np.zeros((VIDEOS, 3), np.float32),
    np.arange(TEXTS) % VIDEOS,
)


def test_no_video_is_both_learnt_from_and_held_out() -> None:
    learn, held = pairs_of(DATA, np.random.default_rng(0))
    assert sorted([*learn.text, *held.text]) == list(range(TEXTS))
    assert set(held.video) == set(np.flatnonzero(~np.isin(np.arange(VIDEOS), learn.video)))
    assert len(held) == 6
    assert (learn.video == learn.text % VIDEOS).all()


def test_batches_hold_each_text_once() -> None:
    learn, _ = pairs_of(DATA, np.random.default_rng(0))
    batches = list(learn.batches(10, np.random.default_rng(1)))
    seen = np.concatenate([text for text, _ in batches])
    assert len(seen) == len(set(seen)) == 50
    assert all((video == text % VIDEOS).all() for text, video in batches)


def test_unpaired_rows_are_learnt_from_too() -> None:
    learn, held = pairs_of(replace(DATA, text_to_video=None), np.random.default_rng(0))
    assert len(learn) + len(held) == TEXTS
    assert not set(learn.video) & set(held.video)


def test_rows_that_cannot_be_split_are_refused() -> None:
    few = Embeddings(np.zeros((4, 3)), np.zeros((4, 3)), np.arange(4), file="few.npz")
    with pytest.raises(CimError, match=r"few\.npz: 4 texts and 4 videos are too few"):
        pairs_of(few, np.random.default_rng(0))
