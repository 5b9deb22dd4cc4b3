"""Model `cross-attention`: an item attends to one other token, itself or its partner.

With one token the softmax is 1, so the attention is a linear map of that token. If the token is
the partner of the other modality, features of a pair hold the right answer already: a gap between
right and wrong pairs is then no measure of retrieval, and nothing that could be deployed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import ValidationInfo, field_validator
from torch import Tensor, nn

from cimtool.base.errors import CimError
from cimtool.training.model import ProjectorModel
from cimtool.training.options import Count, Flag, refused
from cimtool.training.pairs import Pairs
from cimtool.training.towers import Encoded, TwoTower, all_cosines, cosine_gap


class AttentionBlock(nn.Module):
    """`LayerNorm(x + attention(x, context))` of rows x [n, width], each with one context row."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln = nn.LayerNorm(width)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return rows [n, width]; without a context each row is its own."""
        query = x.unsqueeze(1)
        token = query if context is None else context.unsqueeze(1)
        attended, _ = self.attn(query, token, token, need_weights=False)
        found: Tensor = self.ln(query + attended).squeeze(1)
        return found


class CrossAttentionTowers(TwoTower):
    """One block for both modalities; with `paired` the context in `forward` is the partner.

    With `updated` a text attends to what the block made of its video.
    """

    def __init__(self, block: AttentionBlock, paired: bool, updated: bool = False) -> None:
        super().__init__(block, block)
        self.paired, self.updated = paired, updated

    def forward(self, text: Tensor, video: Tensor) -> tuple[Encoded, Encoded]:
        """Return points of aligned rows [n, in]; the deployed towers see their own rows alone."""
        if not self.paired:
            return super().forward(text, video)
        seen = self.video_proj(video, text)
        return Encoded(self.text_proj(text, seen if self.updated else video)), Encoded(seen)


class CrossAttentionModel(ProjectorModel, name="cross-attention"):
    """A block of `heads` heads; `paired` trains it on partners as contexts, which leaks.

    With `updated` too a text attends to the video that has attended to it, one after the other.
    """

    layout: ClassVar[str] = "cross-attention"
    head: ClassVar[str] = "cosine"
    has_variance: ClassVar[bool] = False

    heads: Count = 4
    paired: Flag = False
    updated: Flag = False

    @field_validator("updated")
    @classmethod
    def _with_paired(cls, value: bool, info: ValidationInfo) -> bool:
        if value and not info.data.get("paired"):
            raise refused("is true, and model.paired is not; expected both")
        return value

    def deployed(self) -> Mapping[str, Any]:
        """The flag for partners as contexts, of which the layout warns."""
        return {"paired": self.paired}

    def build(self, text: int, video: int) -> TwoTower:
        """Return the block for both; CimError if widths differ or heads do not divide them."""
        self.require_one_width(text, video)
        if text % self.heads:
            raise CimError(f"model.heads is {self.heads}; expected a divisor of {text}, the width")
        block = AttentionBlock(text, self.heads)
        return CrossAttentionTowers(block, self.paired, self.updated)

    def remarks(self, towers: TwoTower, held: Pairs) -> tuple[str, ...]:
        """The cosine gap as deployed, and with partners as contexts, if that was trained."""
        text, video = held.text, held.video[held.right]
        with torch.no_grad():
            deployed = _gap((towers.text_tower(text), towers.video_tower(video)), held)
            trained = _gap(towers(text, video), held)
        gap = f"Held-out cosine gap after the last epoch: {deployed:.4f}"
        if not self.paired:
            return (f"{gap}.",)
        return (
            f"{gap} as deployed, each side from its own row alone; {trained:.4f} with partners as "
            "contexts, which is optimistic: paired attention leaks the right answer into the "
            "features.",
        )


def _gap(given: tuple[Encoded, Encoded], held: Pairs) -> float:
    text, video = given
    return float(cosine_gap(all_cosines(text.mu, video.mu), held.right))
