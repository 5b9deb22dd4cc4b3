from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cimtool.training.pairwise import all_pairs_ed, all_pairs_vd


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
