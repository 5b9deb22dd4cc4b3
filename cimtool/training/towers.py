"""What models are made of: a tower a modality, and what towers give."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from cimtool.base.errors import CimError


class Encoded(NamedTuple):
    """What a tower gives: means `mu` [n, d] and `logvar` [n, d]; None for a tower of points."""

    mu: Tensor
    logvar: Tensor | None = None

    @property
    def gaussian(self) -> tuple[Tensor, Tensor]:
        """`mu` and `logvar`; CimError for a tower of points."""
        if self.logvar is None:
            raise CimError("the model has no variance; expected one that has")
        return self.mu, self.logvar


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


def _encoded(given: Tensor | tuple[Tensor, Tensor]) -> Encoded:
    return Encoded(given) if isinstance(given, Tensor) else Encoded(*given)
