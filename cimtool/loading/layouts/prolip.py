"""Layout `prolip`: ProLIP's projections behind its two encoders.

    visual.proj, text.text_projection                                 for the mean
    visual.uncertainty_proj, text.text_uncertainty_projection         for the log-variance

`visual.proj` is a matrix [in, out]; the others are Linears, and `text.text_projection` may be
either. A row holds what the projections read: the state of the token CLS, then that of the token
UNC, both after the encoder's last norm (for images the code applies `ln_post` to CLS twice).

    mu = normalize(projection(CLS))         logvar = uncertainty(UNC)

For texts `TextTransformer.forward` of the public code reads the projected CLS in place of UNC:
`logvar = uncertainty(projection(CLS))`. This is computed for texts whose rows are CLS alone.

The public code trains and scores with L = exp(logit_scale), B = logit_bias and unit means:

    logit = L (mu_t.mu_v - (sum exp(logvar_t) + sum exp(logvar_v)) / 2) + B

Its `std` is a log-variance (`logsigma_sq`). As ed = 2 - 2 mu_t.mu_v + sum exp(logvar_t) +
sum exp(logvar_v), this is head `csd`, b - a ed, with a = L / 2 and b = L + B. Keys and arithmetic
follow https://github.com/naver-ai/prolip, commit 59f6324: `transformer.py` (VisionTransformer,
TextTransformer) and `loss.py` (`get_prolip_logits`, `inclusion_test`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cimtool.base.errors import ArgumentError, CimError
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.ir.source import L2Normalize
from cimtool.loading.layout import Layout, arranged, linear, read_projection
from cimtool.loading.logit_scale import (
    LOGIT_BIAS,
    LOGIT_SCALE,
    distance_constants,
    require_number,
)
from cimtool.loading.weights import PROJECTION, UNCERTAINTY, Weights, unwrapped

TEXT_UNCERTAINTY = "text.text_uncertainty_projection.weight"
"""The key of the layer that the public code applies to the projected CLS."""


class Prolip(Layout, name="prolip"):
    """A projection for mu, which is scaled to unit norm, and a Linear for the log-variance."""

    description = "ProLIP's text_uncertainty_projection and uncertainty_proj beside those of CLIP"
    layers = (PROJECTION,)
    depends_on_width = True
    encoders = ("text", "visual")

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """True if the second layer is a Linear."""
        return weights.has(UNCERTAINTY, "weight")

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read both layers; CimError if their shapes or the rows do not fit."""
        mean = read_projection(weights)
        width, d = mean.weight.shape
        if _holds_cls_alone(weights, width):
            builder = TowerBuilder(width)
            projected = builder.add("projection", mean, "x")
            logvar = builder.add("logvar", linear(weights, UNCERTAINTY, d, d), projected)
        else:
            spread = linear(weights, UNCERTAINTY, width, d)
            builder = TowerBuilder(2 * width)
            cls_token, unc_token = (
                arranged(builder, "x", places[None])
                for places in np.arange(2 * width).reshape(2, width)
            )
            projected = builder.add("projection", mean, cls_token)
            logvar = builder.add("logvar", spread, unc_token)
        return builder.tower(builder.add("mu", L2Normalize(), projected), logvar)

    @classmethod
    def score(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Head `csd`, with a and b if the file has both numbers that they follow from."""
        return {"head": "csd", **distance_constants(content)}

    @classmethod
    def require_score(cls, file: str, content: Mapping[str, Any]) -> None:
        """Raise CimError for a missing number from which a or b follows."""
        expected = ArgumentError(
            'one number beside the projections, as layout "prolip" takes a = exp(logit_scale) / 2 '
            "and b = exp(logit_scale) + logit_bias, or {a} and {b}"
        )
        for key in (LOGIT_SCALE, LOGIT_BIAS):
            require_number(file, content, key, expected)

    @classmethod
    def assumptions(cls, weights: Weights) -> tuple[str, ...]:
        """A remark on the contents of rows, which no weight shows."""
        key, end = weights.key(UNCERTAINTY, "weight"), "after the encoder's last norm"
        if not _is_text(weights):
            return (f"{weights.file}: {key}: a row is the states of CLS and UNC, {end}",)
        if _holds_cls_alone(weights, len(read_projection(weights).weight)):
            return (
                f"{weights.file}: {key}: a row is the state of CLS, {end}; the log-variance is "
                "taken of the projected CLS, as ProLIP's public code does",
            )
        return (
            f"{weights.file}: {key}: a row is the states of CLS and UNC, {end}; the log-variance "
            "is taken of UNC, where ProLIP's public code takes the projected CLS (rows of CLS "
            "alone are read like that)",
        )


def _is_text(weights: Weights) -> bool:
    return unwrapped(weights.key(UNCERTAINTY, "weight")) == TEXT_UNCERTAINTY


def _holds_cls_alone(weights: Weights, width: int) -> bool:
    """True if rows hold CLS alone, False for [CLS | UNC]; CimError for rows of another width."""
    own = weights.row_width
    if own in (None, 2 * width):
        return False
    if own == width and _is_text(weights):
        return True
    alone = f", or of CLS alone, {width}" if _is_text(weights) else ""
    raise CimError(
        f"{weights.file}: {weights.key(UNCERTAINTY, 'weight')} takes rows [CLS | UNC] of "
        f"{2 * width} numbers{alone}; the data have rows of {own} numbers"
    )
