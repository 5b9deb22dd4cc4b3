"""Head `pcme-poly`: both statistics of the distance, in matrix products, into the polynomial."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.reference.surrogate import Polynomial


def test_the_logit_is_the_polynomial_of_the_statistics(
    made: Callable[..., Any], towers: SimpleNamespace
) -> None:
    head = PcmePoly(Polynomial(2, (-0.3, 0.1, 0.01, -0.002, 0.0005), 1.5, scale_ed=2.0))
    found = made(head, towers.gaussians)
    (mu_t, mu_v), (s_t, s_v) = found.mu, found.s
    delta, s = mu_t - mu_v, s_t + s_v
    ed = (delta**2 + s).sum(axis=-1)
    vd = (2 * s**2 + 4 * delta**2 * s).sum(axis=-1)
    x = ed / 2
    wanted = 1.5 - 0.3 * x + 0.1 * vd + 0.01 * x * x - 0.002 * x * vd + 0.0005 * vd * vd
    np.testing.assert_allclose(found.scores, wanted, rtol=1e-10)
