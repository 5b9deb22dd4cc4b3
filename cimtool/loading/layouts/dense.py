"""Layout `dense`: the Dense module of sentence-transformers, which both modalities pass.

    linear.weight [out, in], linear.bias        in `2_Dense/model.safetensors`

The activation is that of `config.json` beside the file, or `output_activation` of a layer map. A
module `Normalize` after it has no weights, and head `cosine` normalises by itself. A row is what
the module reads, the pooled tokens. Rows that have the module's output width, which its input
lacks, are taken as they are: such are the images of a model whose Dense module maps texts into
CLIP's space (clip-ViT-B-32-multilingual-v1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cimtool.base.errors import CimError
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.loading.dense_config import CONFIG, DENSE
from cimtool.loading.layout import Layout, linear, read_activation
from cimtool.loading.weights import Weights

OUTPUT_ACTIVATION = "output_activation"


class Dense(Layout, name="dense"):
    """One Linear for both modalities, and an activation."""

    description = "a Dense module of sentence-transformers, linear.weight and linear.bias alone"
    layers = (DENSE,)
    depends_on_width = True

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """True if the module's layer is the only one."""
        return weights.layers == (DENSE,)

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read the layer; CimError if nothing names the activation."""
        layer = linear(weights, DENSE, has_bias=weights.has(DENSE, "bias"))
        width, d = layer.weight.shape
        if _is_projected(weights, width, d):
            return TowerBuilder(d).tower("x")
        if OUTPUT_ACTIVATION not in weights.values:
            raise CimError(
                f"{weights.file}: the activation after {weights.key(DENSE, 'weight')} is not "
                f"known; expected the module's {CONFIG} beside the file, or {OUTPUT_ACTIVATION} "
                "in a layer map"
            )
        after = read_activation(weights, OUTPUT_ACTIVATION, "none")
        builder = TowerBuilder(width)
        mu = builder.add("mu" if after is None else "mu_sum", layer, "x")
        return builder.tower(mu if after is None else builder.add("mu", after, mu))

    @classmethod
    def score(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Head `cosine`, sentence-transformers' default similarity."""
        return {"head": "cosine"}

    @classmethod
    def assumptions(cls, weights: Weights) -> tuple[str, ...]:
        """A remark on the contents of rows, which no weight shows."""
        d, width = weights.shape(DENSE, "weight")
        key = weights.key(DENSE, "weight")
        if _is_projected(weights, width, d):
            return (f"{weights.file}: rows of {d} numbers are taken as the outputs of {key}",)
        return (f"{weights.file}: rows of {width} numbers are taken as what {key} reads",)


def _is_projected(weights: Weights, width: int, d: int) -> bool:
    return weights.row_width == d != width
