"""Layout `projection`: one matrix per modality, as behind CLIP's two encoders.

    text_projection, visual.proj                        [in, out]: OpenAI's files, open_clip
    text_projection.weight, visual_projection.weight    [out, in]: transformers

The `prefix` of a layer map can name another matrix or Linear. It gives `mu`; `output_activation`
follows if the checkpoint or a map names one. The encoders' tensors are left out: rows are the
inputs of the projections.
"""

from __future__ import annotations

from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.loading.layout import Layout, read_activation, read_projection
from cimtool.loading.weights import PROJECTION, Weights

OPEN_CLIP = (
    *("visual", "text", "transformer", "token_embedding", "positional_embedding", "ln_final"),
    *("input_resolution", "context_length", "vocab_size"),
)
TRANSFORMERS = ("text_model", "vision_model")
BLIP = ("text_encoder", "visual_encoder")
"""Beginnings of the keys of encoders, in the files of three libraries."""


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
        """True if the projection is the only layer."""
        return weights.layers == (PROJECTION,)

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read the matrix, or the Linear; CimError if it does not have two axes."""
        after = read_activation(weights, "output_activation", "none")
        layer = read_projection(weights)
        builder = TowerBuilder(layer.weight.shape[0])
        mu = builder.add("mu" if after is None else "mu_sum", layer, "x")
        return builder.tower(mu if after is None else builder.add("mu", after, mu))

    @classmethod
    def assumptions(cls, weights: Weights) -> tuple[str, ...]:
        """A remark on the contents of rows, which no weight shows."""
        key = next(iter(weights.keys.values()))
        return (
            f"{weights.file}: {key} alone is taken of its side; rows are taken as what it reads, "
            "pooled and behind the encoder's last norm",
        )
