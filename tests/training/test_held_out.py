from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.loading.embeddings import Embeddings, embeddings_of
from cimtool.training.pairs import split, with_validation


def rows(texts: int, videos: int, width: int = 3) -> Embeddings:
    rng = np.random.default_rng(0)
    text, video = (rng.normal(size=(n, width)).astype(np.float32) for n in (texts, videos))
    right = rng.integers(0, videos, texts)
    return embeddings_of({"text": text, "video": video, "text_to_video": right})


def test_no_video_is_on_both_sides() -> None:
    whole = rows(200, 50)
    pairs, held = split(whole, 0.2, seed=3)
    assert len(pairs) + len(held) == 200
    both = {tuple(row) for row in pairs.video.tolist()} & {
        tuple(row) for row in held.video.tolist()
    }
    assert not both
    assert 0.1 < len(held.video) / 50 < 0.3


def test_the_seed_decides() -> None:
    whole = rows(200, 50)
    first, again, other = (split(whole, 0.2, seed)[1].text.tolist() for seed in (3, 3, 4))
    assert first == again != other


def test_bad_shares() -> None:
    with pytest.raises(CimError, match="held_out is 1; expected a share between 0 and 1"):
        split(rows(20, 5), 1.0, 0)
    with pytest.raises(CimError, match=r"of 5 videos the held-out share of 0.1: 0 pairs"):
        split(rows(20, 5), 0.1, 0)
    with pytest.raises(CimError, match=r"held_out 0.999 leaves no pair to train on"):
        split(rows(200, 50), 0.999, 0)


def test_rows_of_unknown_truth() -> None:
    whole = embeddings_of({"text": np.ones((4, 2)), "video": np.ones((3, 2))})
    with pytest.raises(CimError, match="4 texts and 3 videos, and text_to_video is missing"):
        split(whole, 0.5, 0)


def test_validation_pairs_that_are_trained_on() -> None:
    whole = rows(20, 5)
    assert whole.text_to_video is not None
    values = {
        "text": np.vstack([whole.text[:2] + 1, whole.text[:3]]),
        "video": whole.video,
        "text_to_video": np.concatenate([[0, 1], whole.text_to_video[:3]]),
    }
    pairs, held = with_validation(whole, embeddings_of(values, "v"))
    assert (len(pairs), len(held)) == (17, 5)
    np.testing.assert_array_equal(pairs.text.numpy(), whole.text[3:])
    values["text_to_video"] = (values["text_to_video"] + 1) % 5  # the same rows in other pairs
    assert len(with_validation(whole, embeddings_of(values))[0]) == 20
    with pytest.raises(CimError, match="all 20 pairs are also in v, which validates"):
        with_validation(whole, replace(whole, file="v"))


def test_a_validation_file_of_other_widths() -> None:
    with pytest.raises(CimError, match="text rows have 4 numbers; expected 3 as in embeddings"):
        with_validation(rows(20, 5), rows(20, 5, width=4))
