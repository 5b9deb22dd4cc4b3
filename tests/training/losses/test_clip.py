"""The CLIP loss, and what the derivation of InfoNCE says of its two ways."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from cimtool.base.errors import CimError
from cimtool.training.loss import Task
from cimtool.training.losses.info_nce import ClipLoss, CosineObjective, Hnac

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


def written_out(text: Tensor, video: Tensor, tau: float) -> Tensor:
    """The definition, pair by pair; for scores whose exponential does not overflow."""
    cosines = functional.normalize(text) @ functional.normalize(video).T
    weights = 1 - 0.5 * torch.sigmoid(5 * cosines.detach())
    n, total = len(text), torch.zeros((), dtype=torch.float64)
    for i in range(n):
        right = (cosines[i, i] / tau).exp()
        row = sum(weights[i, j] * (cosines[i, j] / tau).exp() for j in range(n) if j != i)
        column = sum(weights[j, i] * (cosines[j, i] / tau).exp() for j in range(n) if j != i)
        total = total - (right / (right + row)).log() - (right / (right + column)).log()
    return total / (2 * n)


def test_it_is_the_written_formula_and_its_gradient(batch: SimpleNamespace) -> None:
    text, video = batch.points(0)
    text.requires_grad_()
    found, wanted = batch.terms(Hnac(), text, video).total, written_out(text, video, 0.07)
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(one, text)[0] for one in (found, wanted)]
    torch.testing.assert_close(*gradients)


def test_wrong_pairs_weigh_less_the_nearer_they_are(batch: SimpleNamespace) -> None:
    right = torch.eye(2, dtype=torch.float64)
    near = torch.tensor([[1.0, 0.0], [0.8, 0.6]], dtype=torch.float64)
    lost = []
    for video in (right, near):
        clip, hnac = (
            batch.terms(loss, right, video).total for loss in (ClipLoss(tau=0.5), Hnac(tau=0.5))
        )
        assert hnac < clip
        lost.append((hnac / clip).item())
    assert lost[1] < lost[0]


def test_nothing_overflows_at_a_small_temperature(batch: SimpleNamespace) -> None:
    text, video = batch.points(1)
    text.requires_grad_()
    found = batch.terms(Hnac(tau=1e-5), text, video).total
    (gradient,) = torch.autograd.grad(found, text)
    assert torch.isfinite(found)
    assert torch.isfinite(gradient).all()


def test_without_a_share_it_is_clip(batch: SimpleNamespace) -> None:
    text, video = batch.points(2)
    items = torch.tensor([0, 1, 2, 0, 3, 1])
    found, clip = (
        batch.terms(loss, text, video, items).total for loss in (Hnac(share=0.0), ClipLoss())
    )
    torch.testing.assert_close(found, clip)


def test_what_weights_can_be() -> None:
    assert Hnac().deployed() == {"head": "cosine"}
    with pytest.raises(CimError, match=r"loss.share is 1; expected 0 or more, and below 1"):
        Hnac(share=1.0)
    with pytest.raises(CimError, match=r"loss.slope is -1; expected more than 0"):
        Hnac(slope=-1.0)


def test_a_right_pair_of_several_is_not_weighted() -> None:
    cosines = torch.rand(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    right = np.eye(4, dtype=bool)
    right[0, 1] = right[2, 3] = True
    c = cosines.numpy()
    weights = np.where(right, 1.0, 1 - 0.5 / (1 + np.exp(-5.0 * c)))
    e = weights * np.exp(c / 0.07)
    total = sum(-np.log((e * right).sum(way) / e.sum(way)).mean() for way in (1, 0))
    objective = Hnac(share=0.5, slope=5.0, tau=0.07).objective(Task(3))
    assert isinstance(objective, CosineObjective)
    found = objective.term(cosines, None, torch.from_numpy(right))
    assert found.item() == pytest.approx(total / 2, rel=1e-12)
