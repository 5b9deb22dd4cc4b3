"""Head `pcme-poly`: both statistics of the distance, in matrix products, into the polynomial."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from cimtool.ir.arithmetic import MatMul
from cimtool.ir.heads.pcme_poly import PcmePoly
from cimtool.ir.surrogate import Polynomial


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


def test_a_polynomial_in_ed_alone_takes_one_product_and_stores_no_variance(
    made: Callable[..., Any], towers: SimpleNamespace
) -> None:
    head = PcmePoly(Polynomial(2, (-0.3, 0.0, 0.01, 0.0, 0.0), 1.5, scale_ed=2.0))
    found = made(head, towers.gaussians)
    (mu_t, mu_v), (s_t, s_v) = found.mu, found.s
    x = ((mu_t - mu_v) ** 2 + s_t + s_v).sum(axis=-1) / 2
    np.testing.assert_allclose(found.scores, 1.5 - 0.3 * x + 0.01 * x * x, rtol=1e-10)
    products = [node for node in found.program.score.nodes if isinstance(node.op, MatMul)]
    assert [node.name for node in products] == ["mu.mu"]
    assert list(found.program.text.outputs) == ["mu", "ed_self"]
    assert tuple(found.program.score.statistics) == ("ed",)
    assert not head.constant_over({"ed": (1.0, 2.0)})
    assert head.jitter({"ed": np.linspace(1.0, 2.0, 5)}, 0.1) > 0
