"""Layout `projection`: one matrix a modality, such as those behind CLIP's two encoders.

    text_projection, visual.proj                        [in, out]: OpenAI's files, open_clip
    text_projection.weight, visual_projection.weight    [out, in]: transformers

or what the `prefix` of a layer map names, a matrix or a Linear. It gives `mu`, behind which
`output_activation` stands where the checkpoint or a map says one. The encoders' own tensors are
left out: rows are what the projections read.
"""

from __future__ import annotations

import numpy as np

from cimtool.ir.arithmetic import Mvm
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.loading.layout import Layout, linear, read_activation
from cimtool.loading.weights import MATRIX, PROJECTION, Weights


class Projection(Layout, name="projection"):
    """A matrix that rows of an encoder are multiplied by."""

    description = (
        "one matrix, as CLIP's text_projection and visual.proj or visual_projection, or the "
        "prefixes of a layer map, are"
    )
    layers = (PROJECTION,)

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """By nothing beside it."""
        return weights.layers == (PROJECTION,)

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read the matrix, or the Linear; CimError if it has other than two axes."""
        after = read_activation(weights, "output_activation", "none")
        if weights.has(PROJECTION, MATRIX):
            matrix = weights.get(PROJECTION, MATRIX, (None, None))
            layer = Mvm(matrix, np.zeros(matrix.shape[1]))
        else:
            layer = linear(weights, PROJECTION, has_bias=weights.has(PROJECTION, "bias"))
        builder = TowerBuilder(layer.weight.shape[0])
        mu = builder.add("mu" if after is None else "mu_sum", layer, "x")
        return builder.tower(mu if after is None else builder.add("mu", after, mu))

    @classmethod
    def assumptions(cls, weights: Weights) -> tuple[str, ...]:
        """A remark on what rows are, which no weight shows."""
        key = next(iter(weights.keys.values()))
        return (
            f"{weights.file}: {key} alone is taken of its side; rows are taken as what it reads, "
            "pooled and behind the encoder's last norm",
        )
