"""Layout `pcmepp-clip`: PCME++ in open_clip's form, two matrices behind each encoder.

    text_projection, visual.proj                                [in, out], for the mean
    uncertainty_text_projection, visual.uncertainty_proj        [in, out], for the log-variance

A row holds the input of the first matrix, then the input of the second. Keys and arithmetic follow
https://github.com/naver-ai/pcmepp (hf_models).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.ir.source import L2Normalize
from cimtool.loading.layout import Layout, arranged
from cimtool.loading.layouts.pcmepp import CSD_KEYS, csd_score, require_both
from cimtool.loading.layouts.projection import OPEN_CLIP
from cimtool.loading.weights import MATRIX, PROJECTION, UNCERTAINTY, Weights


class PcmeppClip(Layout, name="pcmepp-clip"):
    """A matrix for mu, which is scaled to unit norm, and a matrix for the log-variance."""

    description = "PCME++'s uncertainty projections beside those of CLIP"
    layers = (PROJECTION,)
    encoders = (*OPEN_CLIP, "uncertainty_transformer")
    score_keys = CSD_KEYS

    @classmethod
    def recognises(cls, weights: Weights) -> bool:
        """True if there is a second matrix."""
        return weights.has(UNCERTAINTY, MATRIX)

    @classmethod
    def tower(cls, weights: Weights) -> Graph:
        """Read both matrices; CimError if they do not have two axes."""
        mean = weights.get(PROJECTION, MATRIX, (None, None))
        spread = weights.get(UNCERTAINTY, MATRIX, (None, mean.shape[1]))
        first, width = len(mean), len(mean) + len(spread)
        builder = TowerBuilder(width)
        mean_row, spread_row = (
            arranged(builder, "x", places[None]) for places in np.split(np.arange(width), [first])
        )
        projected = builder.add("projection", _layer(mean), mean_row)
        logvar = builder.add("logvar", _layer(spread), spread_row)
        return builder.tower(builder.add("mu", L2Normalize(), projected), logvar)

    @classmethod
    def score(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """The closed form of the distance, head `csd`."""
        return csd_score(content)

    @classmethod
    def require_score(cls, file: str, content: Mapping[str, Any]) -> None:
        """Raise CimError if the scale or the shift is there without the other."""
        require_both(file, content)

    @classmethod
    def assumptions(cls, weights: Weights) -> tuple[str, ...]:
        """A remark on the contents of rows, which no weight shows."""
        mean, spread = weights.keys.values()
        return (
            f"{weights.file}: {mean} and {spread} alone are taken of their side; a row is what the "
            "one reads, pooled and behind the encoder's last norm, and then what the other reads, "
            "pooled behind the transformer of uncertainty",
        )


def _layer(matrix: FloatArray) -> Mvm:
    return Mvm(matrix, np.zeros(matrix.shape[1]))
