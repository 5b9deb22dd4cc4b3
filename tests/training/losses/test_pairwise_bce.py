from __future__ import annotations

import mpmath
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from cimtool.base.errors import CimError
from cimtool.ir.surrogate import FittedRange, Polynomial
from cimtool.training.loss import HELD_OUTSIDE, Batch, Task, Terms
from cimtool.training.losses.info_nce import variance_regulariser
from cimtool.training.losses.pairwise import PairwiseBce, PairwisePoly, pairwise
from cimtool.training.towers import Encoded, all_pairs_ed, all_pairs_vd


def encoded(seed: int, rows: int = 5, width: int = 4) -> Encoded:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(2, rows, width, generator=generator, dtype=torch.float64)
    return Encoded(2 * drawn[0], drawn[1] - 1)


def terms(loss: PairwiseBce, text: Encoded, video: Encoded, items: Tensor | None = None) -> Terms:
    found: Terms = loss.objective(Task(4))(text, video, Batch(text.mu, video.mu, items))
    return found


def test_it_is_torchs_binary_cross_entropy_of_all_pairs() -> None:
    text, video = encoded(0), encoded(1)
    loss = PairwiseBce(a=0.3, b=2.0, tau=0.5)
    logits = (2.0 - 0.3 * all_pairs_ed(*text.moments, *video.moments)) / 0.5
    found = terms(loss, text, video).loss
    expected = functional.binary_cross_entropy_with_logits(
        logits, torch.eye(5, dtype=torch.float64), reduction="sum"
    )
    torch.testing.assert_close(found["pairs"], expected / 5)
    torch.testing.assert_close(found["variance"], variance_regulariser(text, video, 0.001))
    assert loss.deployed() == {"a": 0.3 / 0.5, "b": 2.0 / 0.5}  # of the sigmoid, tau included


def test_far_logits_keep_their_digits() -> None:
    logits = torch.tensor([[-800.0, 30.0], [-41.5, 900.0]], dtype=torch.float64)
    found = pairwise(functional.logsigmoid(logits), functional.logsigmoid(-logits))
    with mpmath.workdps(40):
        right, wrong = (logits[0, 0], logits[1, 1]), (logits[0, 1], logits[1, 0])
        total = sum(mpmath.log1p(mpmath.exp(-mpmath.mpf(x.item()))) for x in right)
        total += sum(mpmath.log1p(mpmath.exp(mpmath.mpf(x.item()))) for x in wrong)
        assert found.item() == pytest.approx(float(total / 2), rel=1e-14)


def test_the_gradient_of_a_pair_is_its_own_error() -> None:
    """dL/dL_ij = (p_ij - [i = j]) / n: no pair competes with another, as in InfoNCE."""
    logits = encoded(2, 6, 6).mu.requires_grad_()
    pairwise(functional.logsigmoid(logits), functional.logsigmoid(-logits)).backward()
    assert logits.grad is not None
    expected = (logits.detach().sigmoid() - torch.eye(6, dtype=torch.float64)) / 6
    torch.testing.assert_close(logits.grad, expected)


def test_a_video_of_several_texts_is_no_wrong_item_of_theirs() -> None:
    text, video, items = encoded(0), encoded(1), torch.tensor([7, 1, 7, 2, 3])
    logits = 5.0 - 0.1 * all_pairs_ed(*text.moments, *video.moments)
    total = torch.zeros((), dtype=torch.float64)
    for i in range(5):
        for j in range(5):
            if i == j or items[i] != items[j]:
                total += functional.softplus(-logits[i, j] if i == j else logits[i, j])
    torch.testing.assert_close(terms(PairwiseBce(), text, video, items).loss["pairs"], total / 5)
    objective = PairwiseBce().objective(Task(4))
    torch.testing.assert_close(objective.scores(text, video), logits)


def test_on_a_polynomial_the_probability_is_its_sigmoid() -> None:
    text, video = encoded(0), encoded(1)
    ed = all_pairs_ed(*text.moments, *video.moments)
    domain = FittedRange((0.0, 200.0), None, (0.0, 0.0), (-1e6, 1e6))
    poly = Polynomial(1, (-0.3, 0.001), 2.0, domain=domain)
    objective = PairwisePoly(variance=0.0).objective(Task(4, polynomial=poly))
    logits = 2.0 - 0.3 * ed + 0.001 * all_pairs_vd(*text.moments, *video.moments)
    found = objective(text, video, Batch(text.mu, video.mu))
    expected = functional.binary_cross_entropy_with_logits(
        logits, torch.eye(5, dtype=torch.float64), reduction="sum"
    )
    torch.testing.assert_close(found.loss["pairs"], expected / 5)
    torch.testing.assert_close(objective.scores(text, video), logits)
    assert objective.watched(text, video)[HELD_OUTSIDE].item() == 0
    with pytest.raises(CimError, match='loss "pairwise-poly" needs a polynomial; expected poly'):
        PairwisePoly().objective(Task(4))


def test_of_several_right_pairs_all_count() -> None:
    logits = encoded(2, 4, 4).mu
    right = torch.eye(4, dtype=torch.bool)
    right[0, 1] = right[3, 2] = True
    sides = functional.logsigmoid(logits), functional.logsigmoid(-logits)
    expected = functional.binary_cross_entropy_with_logits(logits, right.double(), reduction="sum")
    torch.testing.assert_close(pairwise(*sides, None, right), expected / 4)
