"""InfoNCE on a polynomial: learnt with slopes that go on, ranked by what is deployed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from cimtool.base.errors import CimError
from cimtool.ir.surrogate import FittedRange, Polynomial
from cimtool.reference.statistics import Gaussians, distance_variance, expected_distance
from cimtool.training.loss import HELD_OUTSIDE, Batch, Task
from cimtool.training.losses.info_nce import InfoNcePoly
from cimtool.training.towers import Encoded

# Falls up to ed = 4, the end of its band, and rises from ed = 8 on.
RANGE = FittedRange((0.0, 4.0), None, (0.0, 0.0), (0.0, 100.0))
POLY = Polynomial(2, (-1.0, 0.0, 0.0625, 0.0, 0.0), 0.0, domain=RANGE)
TASK = Task(1, polynomial=POLY)


def points(*mu: float) -> Encoded:
    return Encoded(torch.tensor(mu, dtype=torch.float64)[:, None], torch.full((len(mu), 1), -9.0))


def gaussians(side: Encoded) -> Gaussians:
    mu, logvar = side.gaussian
    return Gaussians(mu.numpy(), np.exp(logvar.double().numpy()))


def test_scores_are_those_of_the_deployed_polynomial_beyond_its_band_too() -> None:
    text, video = points(0.0, 0.5), points(0.1, 1.0, 3.0, 6.0)
    found = InfoNcePoly().objective(TASK).scores(text, video)
    for row, scores in enumerate(found):
        own = gaussians(text)[np.full(4, row)]
        ed, vd = expected_distance(own, gaussians(video)), distance_variance(own, gaussians(video))
        np.testing.assert_allclose(scores.numpy(), POLY.evaluate(ed, vd), atol=1e-5)
    assert found[0].argmax() == 3  # the farthest: what the hardware would answer


def test_the_share_beyond_the_band_is_that_of_all_pairs() -> None:
    text, video = points(0.0, 5.0), points(0.1, 1.0, 3.0, 6.0)
    watched = InfoNcePoly().objective(TASK).watched(text, video)
    assert watched[HELD_OUTSIDE].item() == 5 / 8


def test_the_loss_goes_on_falling_where_the_polynomial_rises() -> None:
    def loss(far: float) -> Tensor:
        sides = points(0.0, far), points(0.1, far)
        objective = InfoNcePoly(tau=1.0, variance=0.0).objective(TASK)
        total: Tensor = objective(*sides, Batch(torch.empty(2), torch.empty(2))).total
        return total

    assert loss(3.0) > loss(6.0)


def test_without_a_polynomial() -> None:
    with pytest.raises(CimError, match='loss "info-nce-poly" needs a polynomial; expected poly'):
        InfoNcePoly().objective(Task(1))
