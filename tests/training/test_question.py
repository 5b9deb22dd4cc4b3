"""The question of a loss: what it costs, with even scores, and the limit of those."""

from __future__ import annotations

import math

import pytest
import torch

from cimtool.training.history import asked
from cimtool.training.losses.info_nce import ClipLoss, InfoNce
from cimtool.training.losses.pairwise import PairwiseBce

EVERY = torch.arange(40)


def even_scores(right: float, wrong: float, size: int) -> torch.Tensor:
    scores = torch.full((size, size), wrong, dtype=torch.float64)
    return scores.fill_diagonal_(right)


def test_info_nce_of_even_scores_is_near_its_limit_where_wrong_ones_outweigh_the_right() -> None:
    found = asked(InfoNce(tau=4.0), even_scores(1.0, -2.0, 40), EVERY, 40)
    assert found is not None
    weight = 39 * math.exp(-3 / 4)
    assert found.loss == pytest.approx(found.even) == pytest.approx(math.log1p(weight))
    assert found.limit == pytest.approx(math.log(39) - 3 / 4)
    assert found.limit_without_log == pytest.approx(-3 / 4)
    assert found.limit is not None
    assert 0 < found.even - found.limit < 1 / weight


def test_pairs_have_no_limit_and_their_sum_grows() -> None:
    scores = even_scores(1.0, -2.0, 40)
    costs = {}
    for size in (10, 40):
        found = asked(PairwiseBce(tau=0.5), scores, EVERY, size)
        assert found is not None
        assert found.limit is found.limit_without_log is None
        costs[size] = found.loss
    right, wrong = math.log1p(math.exp(-2)), math.log1p(math.exp(-4))
    assert costs == pytest.approx({10: right + 9 * wrong, 40: right + 39 * wrong})


def test_texts_of_one_video_are_no_wrong_ones_of_each_other() -> None:
    right = torch.tensor([0, 0, 1, 2])
    scores = torch.tensor([[3.0, 1, 0], [2, 1, 0], [0, 4, 1], [1, 1, 1]])
    found = asked(InfoNce(tau=1.0), scores, right, 4)
    assert found is not None
    rows = [[3.0, 1, 0], [2.0, 1, 0], [4.0, 0, 0, 1], [1.0, 1, 1, 1]]
    expected = sum(math.log(sum(map(math.exp, row))) - row[0] for row in rows) / 4
    assert found.loss == pytest.approx(expected)
    assert found.limit_without_log == pytest.approx(0.6 - 2.5)


def test_a_batch_is_at_most_all_pairs_and_some_losses_ask_nothing() -> None:
    found = asked(InfoNce(), even_scores(1.0, 0.0, 8), EVERY[:8], 64)
    assert found is not None
    assert found.size == 8
    assert asked(ClipLoss(), even_scores(1.0, 0.0, 8), EVERY[:8], 8) is None
