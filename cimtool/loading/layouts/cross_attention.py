"""Layout `cross-attention`: `mu = LayerNorm(x + attention(x))`; x itself is the only token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cimtool.base.arrays import single
from cimtool.ir.arithmetic import Mvm, plus
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.loading.layout import Layout, linear, read_layer_norm
from cimtool.loading.weights import PARAMETERS, Weights

LEAK = (
    "trained with partners as contexts (paired), which leaks the right answer into the features: a "
    "cosine gap of paired features is optimistic; here each side is encoded from its own row alone"
)


class CrossAttention(Layout, name="cross-attention"):
    """Keys `attn.in_proj_weight`, `attn.out_proj`, `ln` of `MultiheadAttention`, `LayerNorm`."""

    description = "a MultiheadAttention attn and a LayerNorm ln"
    layers = ("attn", "attn.out_proj", "ln")

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """True if `attn` has torch's `in_proj_weight`: query, key and value in one matrix."""
        return weights.has(weights.layer("attn"), "in_proj_weight")

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read the block; CimError if a key is missing or a shape does not fit."""
        names = [weights.layer(role) for role in cls.layers]
        attn, out, ln = names
        width = weights.get(attn, "in_proj_weight", (None, None)).shape[1]
        own = {"in_proj_weight", "in_proj_bias"}
        weights.refuse_others(names, cls.name, PARAMETERS | own)
        builder = TowerBuilder(width)
        attended = builder.add("attn", _one_token(weights, attn, out, width), "x")
        total = builder.add("mu_sum", plus(1, 1), "x", attended)
        return builder.tower(builder.add("mu", read_layer_norm(weights, ln, width), total))

    @classmethod
    def warnings(cls, content: Mapping[str, Any]) -> tuple[str, ...]:
        """The leak of paired attention, if `paired` says that the model was trained with it."""
        return (LEAK,) if content.get("paired") is True else ()


def _one_token(weights: Weights, attn: str, out: str, width: int) -> Mvm:
    """Attention to one token: the softmax is 1, so one product, `out_proj(v_proj(token))`."""
    rows = slice(2 * width, None)  # queries and keys come before the values
    value = weights.get(attn, "in_proj_weight", (3 * width, width))[rows]
    has_bias = weights.has(attn, "in_proj_bias") or weights.has(out, "bias")
    outer = linear(weights, out, width, width, has_bias)
    bias = weights.get(attn, "in_proj_bias", (3 * width,))[rows] if has_bias else np.zeros(width)
    # Float32: CPUs and thread counts add in different orders, and rounding hides the difference.
    return Mvm(single(value.T @ outer.weight), single(bias @ outer.weight + outer.bias))
