"""Head `csd`: b - a ed, in matrix products."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from cimtool.ir.heads.csd import Csd


def test_the_logit_is_a_line_in_the_mean_distance(
    made: Callable[..., Any], towers: SimpleNamespace
) -> None:
    found = made(Csd(0.3, 1.5), towers.gaussians)
    (mu_t, mu_v), (s_t, s_v) = found.mu, found.s
    ed = (np.square(mu_t - mu_v) + s_t + s_v).sum(axis=-1)
    np.testing.assert_allclose(found.scores, 1.5 - 0.3 * ed, rtol=1e-12)
