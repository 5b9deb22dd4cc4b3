"""Layout `projection`: one matrix per modality, as behind CLIP's two encoders.

    text_projection, visual.proj                        [in, out]: OpenAI's files, open_clip
    visual.head.proj.weight                             [out, in]: open_clip, encoders of timm
    text_projection.weight, visual_projection.weight    [out, in]: transformers
    text_model.head.weight, text.text_projection.weight [out, in]: SigLIP's texts

Nothing projects the pooled features of SigLIP's images: a row is these features. A checkpoint with
`logit_scale` is scored by cosines c; with `logit_bias` too, by exp(logit_scale) c + logit_bias, the
logit of a sigmoid, as in SigLIP (arXiv 2303.15343). Keys follow
https://github.com/mlfoundations/open_clip and transformers (`modeling_siglip.py`).

The `prefix` of a layer map can name another matrix or Linear. It gives `mu`; `output_activation`
follows if the checkpoint or a map names one. The encoders' tensors are left out: rows are the
inputs of the projections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cimtool.base.errors import ArgumentError
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.loading.layout import Layout, read_activation, read_projection
from cimtool.loading.logit_scale import LOGIT_BIAS, LOGIT_SCALE, cosine_score, require_number
from cimtool.loading.weights import (
    MATRIX,
    POOLED,
    POOLINGS,
    PROJECTION,
    Weights,
    flat,
    unwrapped,
)

OPEN_CLIP = (
    *("visual", "text", "transformer", "token_embedding", "positional_embedding", "ln_final"),
    *("input_resolution", "context_length", "vocab_size"),
)
TRANSFORMERS = ("text_model", "vision_model")
BLIP = ("text_encoder", "visual_encoder")
"""Beginnings of the keys of encoders, in the files of three libraries."""

NO_BIAS = (
    "there is a logit_scale without a logit_bias: the score is the cosine alone, no logit as "
    "SigLIP's is"
)


class Projection(Layout, name="projection"):
    """A matrix that multiplies an encoder's rows."""

    description = (
        "one matrix, as CLIP's text_projection and visual.proj or visual_projection, or the "
        "prefixes of a layer map, are"
    )
    layers = (PROJECTION,)
    encoders = (*OPEN_CLIP, *TRANSFORMERS, *BLIP)

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """True if the projection is the only layer, or an encoder ends without one."""
        return weights.layers in ((PROJECTION,), (POOLED,))

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read the matrix, or the Linear; CimError if it does not have two axes."""
        if POOLED in weights.layers:
            width, _ = weights.shape(POOLED, "weight")
            return TowerBuilder(width).tower("x")
        after = read_activation(weights, "output_activation", "none")
        layer = read_projection(weights)
        builder = TowerBuilder(layer.weight.shape[0])
        mu = builder.add("mu" if after is None else "mu_sum", layer, "x")
        return builder.tower(mu if after is None else builder.add("mu", after, mu))

    @classmethod
    def score(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Head `cosine` of a checkpoint with a learned scale."""
        return cosine_score(content)

    @classmethod
    def require_score(cls, file: str, content: Mapping[str, Any]) -> None:
        """Raise CimError if the scale is missing, or the bias is not one number."""
        expected = ArgumentError(
            'one number beside the projections, by which layout "projection" takes head cosine, or '
            "{head} cosine (with {a} and {b} for the logit of a sigmoid) or {head} euclidean"
        )
        require_number(file, content, LOGIT_SCALE, expected)
        if LOGIT_BIAS in map(unwrapped, flat(content)):
            require_number(file, content, LOGIT_BIAS, expected)

    @classmethod
    def warnings(cls, content: Mapping[str, Any]) -> tuple[str, ...]:
        """A remark on a model with SigLIP's image encoder that lacks the bias."""
        names = set(map(unwrapped, flat(content)))
        pooled = any(f"{place}.weight" in names for place in POOLINGS["video"])
        return (NO_BIAS,) if pooled and LOGIT_SCALE in names and LOGIT_BIAS not in names else ()

    @classmethod
    def assumptions(cls, weights: Weights) -> tuple[str, ...]:
        """A remark on the contents of rows, which no weight shows."""
        (layer,) = weights.layers
        key = weights.key(layer, MATRIX if weights.has(layer, MATRIX) else "weight")
        if layer == POOLED:
            return (
                f"{weights.file}: no layer follows {key}; rows are taken as the features that it "
                "ends, pooled",
            )
        return (
            f"{weights.file}: the last projections alone are taken; rows must be what these read: "
            "behind the encoder's last norm, and pooled unless a row is tokens",
        )
