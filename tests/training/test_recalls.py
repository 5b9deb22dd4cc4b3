from __future__ import annotations

import numpy as np
import pytest
import torch

from cimtool.training.pairs import Pairs
from cimtool.training.recalls import recalls_of


def test_recalls_are_those_of_the_right_videos() -> None:
    scores = np.array([[3.0, 1.0], [2.0, 1.0], [0.0, 5.0]])
    pairs = Pairs(torch.zeros(3, 1), torch.zeros(2, 1), torch.tensor([0, 1, 1]))
    found = recalls_of(scores, pairs)
    assert found["r1_text_to_video"] == 2 / 3
    assert found["r1_video_to_text"] == 1.0
    assert found["r10_text_to_video"] == 1.0


def test_map_counts_all_of_a_class_as_right() -> None:
    """Classes 0, 1, 0: the second and third text rank a video of the other class first."""
    scores = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [2.0, 3.0, 1.0]])
    labels = torch.tensor([0, 1, 0])
    pairs = Pairs(torch.zeros(3, 1), torch.zeros(3, 1), torch.arange(3), labels)
    found = recalls_of(scores, pairs, by_class=True)
    first, second, third = (1 + 2 / 3) / 2, 1 / 2, (1 / 2 + 2 / 3) / 2
    assert found["map_text_to_video"] == pytest.approx((first + second + third) / 3)
    assert recalls_of(scores, pairs).keys() == found.keys() - {
        "map_text_to_video",
        "map_video_to_text",
    }


def test_map_is_that_of_the_texts_videos_where_they_are_shared() -> None:
    scores = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    labels = torch.tensor([4, 4, 2])
    pairs = Pairs(torch.zeros(3, 1), torch.zeros(2, 1), torch.tensor([1, 1, 0]), labels)
    found = recalls_of(scores, pairs, by_class=True)
    assert found["map_text_to_video"] == pytest.approx((0.5 + 0.5 + 1.0) / 3)


def test_items_of_one_modality_are_left_out_where_they_are_the_query() -> None:
    scores = np.array(
        [
            [9.0, 3.0, 5.0, 1.0, 4.0],
            [3.0, 9.0, 2.0, 7.0, 6.0],
            [5.0, 2.0, 9.0, 8.0, 0.0],
            [1.0, 7.0, 8.0, 9.0, 2.0],
            [4.0, 6.0, 0.0, 2.0, 9.0],
        ]
    )
    labels = torch.tensor([0, 0, 1, 1, 2])  # the last is alone in its class: no query
    rows = torch.zeros(5, 1)
    pairs = Pairs(rows, rows, torch.arange(5), labels, alone=True)
    found = recalls_of(scores, pairs, by_class=True)
    for way in ("text_to_video", "video_to_text"):
        assert found[f"r1_{way}"] == 2 / 4  # the right one of 0 and 1 is third
        assert found[f"r5_{way}"] == 1.0
        assert found[f"map_{way}"] == (1 / 3 + 1 / 3 + 1 + 1) / 4
    unlabelled = recalls_of(scores, Pairs(rows, rows, torch.arange(5), alone=True))
    assert unlabelled["r1_text_to_video"] == 1.0
