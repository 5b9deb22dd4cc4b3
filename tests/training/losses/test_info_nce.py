from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from cimtool.training.losses.info_nce import info_nce, variance_regulariser
from cimtool.training.towers import Encoded


def gaussians(seed: int, rows: int, width: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mu = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    return mu, torch.randn(rows, width, generator=generator, dtype=torch.float64).exp()


def test_info_nce_is_the_written_formula() -> None:
    logits, _ = gaussians(3, 6, 6)
    scaled = logits / 0.7
    terms = [
        2 * scaled[i, i] - scaled[i].exp().sum().log() - scaled[:, i].exp().sum().log()
        for i in range(6)
    ]
    torch.testing.assert_close(info_nce(logits, 0.7), -torch.stack(terms).mean())


def test_variance_regulariser_is_the_written_formula_and_zero_at_the_prior() -> None:
    mu_t, s_t = gaussians(5, 4, 7)
    mu_v, s_v = gaussians(6, 4, 7)
    total = (mu_t**2 + s_t - s_t.log() + mu_v**2 + s_v - s_v.log()).sum() - 2 * 4 * 7
    expected = 0.001 / (2 * 4 * 7) * total
    text, video = Encoded(mu_t, s_t.log()), Encoded(mu_v, s_v.log())
    torch.testing.assert_close(variance_regulariser(text, video, 0.001), expected)
    prior = Encoded(torch.zeros(4, 7), torch.zeros(4, 7))
    assert variance_regulariser(prior, prior, 1.0).item() == pytest.approx(0.0)


def test_a_video_of_several_texts_is_no_wrong_item_of_theirs() -> None:
    logits, _ = gaussians(3, 4, 4)
    items = torch.tensor([7, 1, 7, 2])
    scaled = logits / 0.7
    terms = []
    for i in range(4):
        mine = [j for j in range(4) if j == i or items[j] != items[i]]
        terms += [scaled[i, mine].exp().sum().log() - scaled[i, i]]
        terms += [scaled[mine, i].exp().sum().log() - scaled[i, i]]
    torch.testing.assert_close(info_nce(logits, 0.7, items), torch.stack(terms).sum() / 4)


def test_videos_of_one_text_each_change_nothing() -> None:
    logits, _ = gaussians(3, 4, 4)
    assert torch.equal(info_nce(logits, 0.7, torch.arange(4)), info_nce(logits, 0.7))


def test_the_gradients_of_info_nce_are_shares_less_the_right_pair() -> None:
    """dL/dL_ij = (softmax_row + softmax_column - 2 [i = j]) / (n tau)."""
    logits, _ = gaussians(4, 5, 5)
    logits.requires_grad_()
    info_nce(logits, 0.5).backward()
    scaled = logits.detach() / 0.5
    expected = scaled.softmax(1) + scaled.softmax(0) - 2 * torch.eye(5, dtype=torch.float64)
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, expected / (5 * 0.5))


def test_the_limit_of_info_nce_for_many_wrong_items_has_the_log_of_their_number() -> None:
    n, right, wrong, tau = 2000, 0.2, 0.7, 0.5
    logits = torch.full((n, n), wrong, dtype=torch.float64).fill_diagonal_(right)
    one_way = info_nce(logits, tau).item() / 2
    assert one_way == pytest.approx(math.log(n - 1) + (wrong - right) / tau, abs=1e-3)


def test_any_of_several_right_items_will_do() -> None:
    logits, _ = gaussians(3, 4, 4)
    right = np.eye(4, dtype=bool)
    right[0, 2] = right[3, 0] = right[3, 1] = True
    e, total = np.exp(logits.numpy() / 0.7), 0.0
    for i in range(4):
        total -= np.log(e[i, right[i]].sum() / e[i].sum())
        total -= np.log(e[right[:, i], i].sum() / e[:, i].sum())
    found = info_nce(logits, 0.7, None, torch.from_numpy(right))
    assert found.item() == pytest.approx(total / 4, rel=1e-12)
    one = info_nce(logits, 0.7, None, torch.eye(4, dtype=torch.bool))
    torch.testing.assert_close(one, info_nce(logits, 0.7))
