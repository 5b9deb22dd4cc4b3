"""Digests of the rows that a bundle was calibrated on: none is evaluated unless asked for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import ArgumentError
from cimtool.ir.program import MODALITIES
from cimtool.loading.digests import Digests, row_digests
from cimtool.loading.embeddings import Embeddings


def calibration_digests(text: Array, video: Array) -> dict[str, Digests]:
    """Digests of calibration rows [n, width] by modality, sorted, as a bundle keeps them."""
    return {"text": np.unique(row_digests(text)), "video": np.unique(row_digests(video))}


def require_unseen(known: Mapping[str, Digests], data: Embeddings, name: str) -> None:
    """Raise CimError where digests of rows of `data` are `known`, those of the model `name`.

    Videos count as texts do, those of a gallery in the arrays as well: ranges that were drawn from
    a row fit it better than one that the model meets for the first time.
    """
    found = []
    for modality in MODALITIES:
        rows = getattr(data, modality)
        seen = int(np.isin(row_digests(rows), known[modality]).sum())
        if seen:
            found.append(f"{seen:,} of its {len(rows):,} {modality} rows")
    if found:
        raise ArgumentError(
            "{}: {} was calibrated on {}; expected unseen rows, or {allow_calibration_rows}",
            data.file,
            name,
            " and ".join(found),
        )
