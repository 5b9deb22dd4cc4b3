from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cimtool.training.losses import all_pairs_ed, all_pairs_vd, info_nce, variance_regulariser


def gaussians(seed: int, rows: int, width: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mu = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    return mu, torch.randn(rows, width, generator=generator, dtype=torch.float64).exp()


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000), st.integers(1, 5), st.integers(1, 5), st.integers(1, 9))
def test_all_pairs_statistics_equal_the_broadcast_ones(
    seed: int, n: int, m: int, width: int
) -> None:
    mu_t, s_t = gaussians(seed, n, width)
    mu_v, s_v = gaussians(seed + 1, m, width)
    delta2 = (mu_t[:, None] - mu_v[None]).square()
    s = s_t[:, None] + s_v[None]
    ed, vd = (delta2 + s).sum(2), (2 * s.square() + 4 * delta2 * s).sum(2)
    torch.testing.assert_close(all_pairs_ed(mu_t, s_t, mu_v, s_v), ed)
    torch.testing.assert_close(all_pairs_vd(mu_t, s_t, mu_v, s_v), vd)


def test_info_nce_is_the_written_formula() -> None:
    logits, _ = gaussians(3, 6, 6)
    scaled = logits / 0.7
    terms = [
        2 * scaled[i, i] - scaled[i].exp().sum().log() - scaled[:, i].exp().sum().log()
        for i in range(6)
    ]
    torch.testing.assert_close(info_nce(logits, 0.7), -torch.stack(terms).mean())


def test_variance_regulariser_is_the_written_formula_and_zero_at_the_prior() -> None:
    mu_t, s_t = gaussians(5, 4, 7)
    mu_v, s_v = gaussians(6, 4, 7)
    total = (mu_t**2 + s_t - s_t.log() + mu_v**2 + s_v - s_v.log()).sum() - 2 * 4 * 7
    expected = 0.001 / (2 * 4 * 7) * total
    torch.testing.assert_close(variance_regulariser(mu_t, s_t.log(), mu_v, s_v.log()), expected)
    prior = torch.zeros(4, 7)
    assert variance_regulariser(prior, prior, prior, prior).item() == pytest.approx(0.0)
