"""Head `probcosine`: expected cosine and its variance, in matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from cimtool.base.errors import CimError
from cimtool.ir.arithmetic import MatMul
from cimtool.ir.heads import ScoreConstants
from cimtool.ir.heads.probcosine import ProbCosine
from cimtool.ir.source import ProbitScore


def closed_form(
    mu: tuple[np.ndarray, np.ndarray], s: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """E and Var [n, m] as the paper writes them, in extended precision."""
    (mu_t, mu_v), (s_t, s_v) = ([x.astype(np.longdouble) for x in pair] for pair in (mu, s))
    norms = (mu_t**2 + s_t).sum(axis=-1) * (mu_v**2 + s_v).sum(axis=-1)
    mean = (mu_t * mu_v).sum(axis=-1) / np.sqrt(norms)
    variance = (s_t * s_v + mu_t**2 * s_v + s_t * mu_v**2).sum(axis=-1) / norms
    return mean, variance


def test_without_a_scale_the_score_is_the_expected_cosine(
    made: Callable[..., Any], towers: SimpleNamespace
) -> None:
    found = made(ProbCosine(), towers.gaussians)
    mean, _ = closed_form(found.mu, found.s)
    np.testing.assert_allclose(found.scores, mean.astype(float), rtol=1e-13)
    assert list(found.program.text.outputs) == ["mu"]
    assert list(found.program.score.operations(MatMul)) == ["mu.mu"]


@pytest.mark.parametrize("b", [None, -2.5])
def test_with_a_scale_it_is_the_logit_under_its_variance(
    made: Callable[..., Any], towers: SimpleNamespace, b: float | None
) -> None:
    found = made(ProbCosine(10.0, b), towers.gaussians)
    mean, variance = closed_form(found.mu, found.s)
    wanted = (10 * mean + (b or 0)) / np.sqrt(1 + np.pi / 8 * 100 * variance)
    np.testing.assert_allclose(found.scores, wanted.astype(float), rtol=1e-12)
    assert list(found.program.text.outputs) == ["mu", "s"]
    products = tuple(found.program.score.operations(MatMul))
    assert products == ("mu.mu", "s.s", "mu2.s", "s.mu2")


def test_mean_and_variance_of_the_product_are_those_of_samples() -> None:
    rng = np.random.default_rng(3)
    mu, s = rng.normal(size=(2, 6)), rng.uniform(0.1, 0.6, (2, 6))
    g, h = mu[:, None] + np.sqrt(s)[:, None] * rng.normal(size=(2, 1_000_000, 6))
    mean, variance = closed_form((mu[0], mu[1]), (s[0], s[1]))
    norm = np.sqrt(np.square(g).sum(axis=1).mean() * np.square(h).sum(axis=1).mean())
    product = (g * h).sum(axis=1) / norm
    assert float(mean) == pytest.approx(product.mean(), abs=2e-3)
    assert float(variance) == pytest.approx(product.var(), rel=0.01)


@given(st.floats(-6, 6, allow_subnormal=False), st.floats(0, 9))
def test_the_root_stands_for_the_mean_of_the_sigmoid(mean: float, variance: float) -> None:
    nodes, weights = np.polynomial.hermite_e.hermegauss(81)
    exact = (weights * expit(mean + math.sqrt(variance) * nodes)).sum() / math.sqrt(2 * math.pi)
    found = ProbitScore(1.0).run(np.array(mean), np.array(variance))
    assert abs(expit(found) - exact) < 0.02
    assert abs(found) <= abs(mean)


def test_an_offset_without_a_scale_is_refused() -> None:
    with pytest.raises(CimError, match=r'f\.pth: gives b without a for head "probcosine"'):
        ProbCosine.trained(ScoreConstants("f.pth", None, None, 1.0))
    assert ProbCosine.trained(ScoreConstants("f.pth", None, 10.0)) == ProbCosine(10.0)
    assert [ProbCosine(*one).measure for one in ((), (10.0,), (10.0, 1.0))] == [
        "score", "score", "logit"
    ]  # fmt: skip
