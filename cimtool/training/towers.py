"""Towers: a projector a modality, what they give for rows, and statistics of all pairs of it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from cimtool.base.errors import CimError

ENCODED_ROWS = 1024
"""Rows that are encoded at a time if nothing is trained."""


class Encoded(NamedTuple):
    """Means `mu` [n, d] and `logvar` [n, d] of rows; `logvar` is None for a tower of points."""

    mu: Tensor
    logvar: Tensor | None = None

    @property
    def gaussian(self) -> tuple[Tensor, Tensor]:
        """`mu` and `logvar`; CimError for a tower of points."""
        if self.logvar is None:
            raise CimError("the model has no variance; expected a model with one")
        return self.mu, self.logvar

    @property
    def moments(self) -> tuple[Tensor, Tensor]:
        """Means and variances [n, d]; points have none, so 0."""
        return self.mu, torch.zeros_like(self.mu) if self.logvar is None else self.logvar.exp()

    def double(self) -> Encoded:
        """The same numbers in float64."""
        return Encoded(self.mu.double(), None if self.logvar is None else self.logvar.double())


class TwoTower(nn.Module):
    """A text and a video projector; its state dict has the prefixes `text_proj.`, `video_proj.`.

    A projector gives `mu` and `logvar`, or one tensor: points. A decoder makes rows of points; it
    is trained beside the projectors, and not deployed.
    """

    def __init__(
        self, text_proj: nn.Module, video_proj: nn.Module, decoder: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.text_proj = text_proj
        self.video_proj = video_proj
        self.decoder = decoder

    def forward(self, text: Tensor, video: Tensor) -> tuple[Encoded, Encoded]:
        """Return what the projectors give for rows `text` [n, in] and `video` [m, in]."""
        return self.text_tower(text), self.video_tower(video)

    def text_tower(self, rows: Tensor) -> Encoded:
        """Return what the text projector gives for rows [n, in]."""
        return _encoded(self.text_proj(rows))

    def video_tower(self, rows: Tensor) -> Encoded:
        """Return what the video projector gives for rows [m, in]."""
        return _encoded(self.video_proj(rows))

    def encode(self, text: Tensor, video: Tensor) -> tuple[Encoded, Encoded]:
        """Return the same in eval mode, without gradients, on the device of the towers."""
        self.eval()
        device = next(self.parameters()).device
        found = []
        with torch.no_grad():
            for tower, rows in ((self.text_tower, text), (self.video_tower, video)):
                starts = range(0, len(rows), ENCODED_ROWS)
                blocks = [tower(rows[i : i + ENCODED_ROWS].to(device)) for i in starts]
                mu, logvar = zip(*blocks, strict=True)
                known = [one for one in logvar if one is not None]
                found.append(Encoded(torch.cat(mu), torch.cat(known) if known else None))
        return found[0], found[1]


def _encoded(given: Tensor | tuple[Tensor, Tensor]) -> Encoded:
    return Encoded(given) if isinstance(given, Tensor) else Encoded(*given)


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


def all_cosines(text: Tensor, video: Tensor) -> Tensor:
    """Return the cosines [n, m] of rows `text` [n, d] and `video` [m, d]."""
    return functional.normalize(text, dim=-1) @ functional.normalize(video, dim=-1).T


def cosine_gap(cosines: Tensor, items: Tensor | None = None) -> Tensor:
    """Return the mean of the diagonal of `cosines` [n, n] less the mean of the wrong pairs.

    `items` [n] are the videos' numbers if some texts share one: such pairs are no wrong ones.
    NaN if no pair is wrong.
    """
    videos = torch.arange(len(cosines), device=cosines.device) if items is None else items
    wrong = videos[:, None] != videos[None, :]
    return cosines.diagonal().mean() - cosines[wrong].mean()
