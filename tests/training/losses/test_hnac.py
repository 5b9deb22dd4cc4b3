from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from cimtool.base.errors import CimError
from cimtool.training.losses.clip import ClipLoss, Hnac


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
