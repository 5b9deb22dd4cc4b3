"""Head `euclidean`: the negative squared distance, in matrix products."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cimtool.ir.heads.euclidean import Euclidean


@pytest.mark.parametrize("kind", ["points", "gaussians"])
def test_the_score_is_the_negative_squared_distance_of_the_means(
    made: Callable[..., Any], towers: SimpleNamespace, kind: str
) -> None:
    found = made(Euclidean(), getattr(towers, kind))
    wanted = -np.square(found.mu[0] - found.mu[1]).sum(axis=-1)
    np.testing.assert_allclose(found.scores, wanted, rtol=1e-12)
