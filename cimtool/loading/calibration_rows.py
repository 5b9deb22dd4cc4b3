"""Digests of the rows that a bundle was calibrated on: none is evaluated unless asked for."""

from __future__ import annotations

from collections.abc import Mapping

from cimtool.base.errors import ArgumentError
from cimtool.loading.digests import Digests, known_rows
from cimtool.loading.embeddings import Embeddings


def require_unseen(known: Mapping[str, Digests], data: Embeddings, name: str) -> None:
    """Raise CimError where digests of rows of `data` are `known`, those of the model `name`.

    Videos count as texts do, those of a gallery in the arrays as well: ranges that were drawn from
    a row fit it better than one that the model meets for the first time.
    """
    seen = known_rows(known, data.text, data.video)
    found = [
        f"{mask.sum():,} of its {len(mask):,} {modality} rows"
        for modality, mask in seen.items()
        if mask.any()
    ]
    if found:
        raise ArgumentError(
            "{}: {} was calibrated on {}; expected unseen rows, or {allow_calibration_rows}",
            data.file,
            name,
            " and ".join(found),
        )
