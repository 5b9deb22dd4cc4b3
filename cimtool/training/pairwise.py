"""The statistics of all pairs of a batch, differentiable, by matrix products."""

from __future__ import annotations

import torch
from torch import Tensor


def all_pairs_ed(mu_t: Tensor, s_t: Tensor, mu_v: Tensor, s_v: Tensor) -> Tensor:
    """Return `ed = sum delta^2 + s` of all pairs, `[n, m]`, from means and variances `[n|m, d]`."""
    own_t = (mu_t.square() + s_t).sum(1)
    own_v = (mu_v.square() + s_v).sum(1)
    return own_t[:, None] + own_v[None, :] - 2.0 * mu_t @ mu_v.T


def all_pairs_vd(mu_t: Tensor, s_t: Tensor, mu_v: Tensor, s_v: Tensor) -> Tensor:
    """Return `vd = sum 2 s^2 + 4 delta^2 s` of all pairs, `[n, m]`, without an n x m x d array."""
    own_t = (2.0 * s_t.square() + 4.0 * mu_t.square() * s_t).sum(1)
    own_v = (2.0 * s_v.square() + 4.0 * mu_v.square() * s_v).sum(1)
    # The five cross terms are one product of longer rows.
    left = torch.cat([s_t, mu_t.square(), s_t, mu_t * s_t, mu_t], dim=1)
    right = torch.cat(
        [4.0 * s_v, 4.0 * s_v, 4.0 * mu_v.square(), -8.0 * mu_v, -8.0 * mu_v * s_v], dim=1
    )
    return own_t[:, None] + own_v[None, :] + left @ right.T
