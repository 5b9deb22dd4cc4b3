"""The CLIP loss, and what the derivation of InfoNCE says of its two ways."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from cimtool.base.errors import CimError
from cimtool.training.loss import Task
from cimtool.training.losses.clip import ClipLoss, CosineObjective

TAU = 0.07


def term(scores: Tensor, tau: float = TAU) -> Tensor:
    objective = ClipLoss(tau=tau).objective(Task(1))
    assert isinstance(objective, CosineObjective)
    return objective.term(scores, None)


def alike(n: int, right: Tensor | float, wrong: Tensor | float) -> Tensor:
    """Scores [n, n] with one value on the diagonal and another off it."""
    eye = torch.eye(n, dtype=torch.float64)
    return eye * right + (1 - eye) * wrong


def test_it_is_the_mean_of_both_cross_entropies(batch: SimpleNamespace) -> None:
    text, video = batch.points(0)
    logits = functional.normalize(text) @ functional.normalize(video).T / TAU
    right = torch.arange(len(text))
    both = functional.cross_entropy(logits, right), functional.cross_entropy(logits.T, right)
    found = batch.terms(ClipLoss(), 3 * text, video)
    torch.testing.assert_close(found.total, sum(both) / 2)
    cosines = logits * TAU
    wrong = cosines[~torch.eye(len(text), dtype=torch.bool)]
    assert found.watched["cosine gap"].item() == pytest.approx(
        (cosines.diagonal().mean() - wrong.mean()).item()
    )


def test_texts_of_one_video_do_not_part_from_each_other(batch: SimpleNamespace) -> None:
    text, video = batch.points(1, rows=2)
    assert batch.terms(ClipLoss(), text, video, torch.tensor([3, 3])).total.item() == 0


def test_it_ranks_by_the_cosine_that_is_deployed(batch: SimpleNamespace) -> None:
    assert ClipLoss().deployed() == {"head": "cosine"}


def test_gradients_are_shares_of_the_softmax_over_tau() -> None:
    """dL_i/dS_ii = -(1 - P_ii) / tau and dL_i/dS_ij = P_ij / tau, each way, summed over i."""
    scores = torch.randn(5, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    scores.requires_grad_()
    (2 * len(scores) * term(scores)).backward()
    expected = torch.zeros(5, 5, dtype=torch.float64)
    for turned in (False, True):
        held = scores.detach().T if turned else scores.detach()
        shares = torch.stack([(row / TAU).exp() / (row / TAU).exp().sum() for row in held])
        one_way = shares / TAU
        for i in range(len(held)):
            one_way[i, i] = -(1 - shares[i, i]) / TAU
        expected += one_way.T if turned else one_way
    torch.testing.assert_close(scores.grad, expected)


def test_a_pair_that_is_learnt_has_no_gradient() -> None:
    scores = alike(4, 1.0, -1.0).requires_grad_()
    term(scores, 0.02).backward()
    assert scores.grad is not None
    assert scores.grad.abs().max() < 1e-12


@pytest.mark.parametrize("n", [2, 9, 300])
def test_where_wrong_items_are_alike_only_the_gap_counts(n: int) -> None:
    """L/N = log(1 + (N - 1) e^(-gap/tau)): less loss is more gap, whatever the two are."""
    gaps = torch.linspace(-0.5, 1.0, 7, dtype=torch.float64)
    losses = torch.stack([term(alike(n, 0.3 + gap, 0.3)) for gap in gaps])
    moved = torch.stack([term(alike(n, gap - 0.8, -0.8)) for gap in gaps])
    torch.testing.assert_close(losses, torch.log1p((n - 1) * torch.exp(-gaps / TAU)))
    torch.testing.assert_close(losses, moved)
    assert (losses.diff() < 0).all()
    right, wrong = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (0.4, 0.1))
    term(alike(n, right, wrong)).backward()
    assert right.grad is not None
    torch.testing.assert_close(right.grad, -wrong.grad)


def test_the_limit_for_many_wrong_items_has_the_log_of_their_number() -> None:
    """L/N -> log(N - 1) + (s_neg - s_pos) / tau, from above; without the logarithm it is off."""
    right, wrong, tau = 0.5, 0.2, 0.3
    errors = []
    for n in (10, 100, 1000):
        limit = torch.tensor(n - 1.0).log().item() + (wrong - right) / tau
        errors.append(term(alike(n, right, wrong), tau).item() - limit)
        assert errors[-1] == pytest.approx(2.718281828 / (n - 1), rel=2.0 / n**0.5)
    assert errors[0] > errors[1] > errors[2] > 0


def test_a_temperature_is_above_zero() -> None:
    with pytest.raises(CimError, match=r"loss.tau is 0; expected more than 0"):
        ClipLoss(tau=0.0)
