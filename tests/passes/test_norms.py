"""Norms of rows by multiply, add and clip."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cimtool.ir.source import L2Normalize
from cimtool.simulation.simulator import Simulator

from .conftest import curved, passed


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_norms_below_a_limit_are_the_limit(models: SimpleNamespace, share: float) -> None:
    job = models.job(*models.data)
    (plain,) = passed(curved(L2Normalize(), 1.0), job, "calibrated")
    rows = Simulator(plain).values("text", job.text, ["fc"])["fc"]
    norms = np.linalg.norm(rows, axis=1)
    least = 1.001 * float(np.quantile(norms, share)) if share else 1e-5
    pair = passed(curved(L2Normalize(least), 1.0), job, "calibrated", "lowered")
    exact, close = (Simulator(p).values("text", job.text, ["curve"])["curve"] for p in pair)
    np.testing.assert_allclose(exact, rows / np.maximum(norms, least)[:, None], rtol=1e-12)
    assert np.abs(close - exact).max() <= 1e-5
    assert (np.linalg.norm(exact, axis=1) < 0.999).mean() >= share / 2
