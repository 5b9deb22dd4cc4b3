"""Provenance of a checkpoint: digests of the rows that it and its ancestors were trained on.

A checkpoint keeps them under `provenance`, 8 bytes per row and modality. Its options are in its
`config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cimtool.base.arrays import Array, BoolArray
from cimtool.base.errors import CimError
from cimtool.base.modality_names import TEXT_VIDEO, Modalities
from cimtool.ir.program import MODALITIES
from cimtool.loading.checkpoint import single
from cimtool.loading.digests import Digests, digests_of, known_rows

KEY = "provenance"
"""Key of a checkpoint's provenance."""


@dataclass(frozen=True)
class TrainedRows:
    """Numbers of rows of given data that a model or an ancestor was trained on."""

    texts: int
    videos: int


@dataclass(frozen=True)
class TrainedShares:
    """Shares of the rows of given data that a model or an ancestor was trained on."""

    text: float
    video: float

    def said(self, called: Modalities) -> str:
        """Both shares in words; `called` are the names of the modalities."""
        text, video = called
        return f"{self.text:.1%} of the {text} rows and {self.video:.1%} of the {video} rows"


@dataclass(frozen=True, eq=False)
class Provenance:
    """Digests, sorted, of all rows that a model or an ancestor was trained on, by modality.

    `ancestors` are the SHA-256 of the checkpoints that it started from, nearest first. `complete`
    is False if one of these kept no digests.
    """

    rows: Mapping[str, Digests]
    ancestors: tuple[str, ...] = ()
    complete: bool = True

    @classmethod
    def of(cls, text: Array, video: Array) -> Provenance:
        """The provenance of a model that was trained from scratch on rows [n, width]."""
        return cls(digests_of(text, video))

    def after(self, start: Provenance | None, sha256: str) -> Provenance:
        """The provenance if training started from a checkpoint with this SHA-256."""
        if start is None:
            return Provenance(self.rows, (sha256,), complete=False)
        rows = {name: np.union1d(own, start.rows[name]) for name, own in self.rows.items()}
        return Provenance(rows, (sha256, *start.ancestors), start.complete)

    def known_pairs(self, text: Array, video: Array) -> BoolArray:
        """Mask [n] of the pairs (aligned rows) whose rows were both trained on."""
        found: BoolArray = np.logical_and(*known_rows(self.rows, text, video).values())
        return found

    def trained_rows(self, text: Array, video: Array) -> TrainedRows:
        """Count the rows that were trained on; rows are as the model takes them."""
        masks = known_rows(self.rows, text, video)
        return TrainedRows(*(int(mask.sum()) for mask in masks.values()))

    def trained_shares(self, text: Array, video: Array) -> TrainedShares:
        """The shares of the rows that were trained on."""
        found = self.trained_rows(text, video)
        return TrainedShares(found.texts / len(text), found.videos / len(video))

    def values(self) -> dict[str, Any]:
        """Plain values and tensors for a checkpoint; digests as int64, as torch lacks unsigned."""
        import torch

        digests = {name: torch.from_numpy(own.view(np.int64)) for name, own in self.rows.items()}
        return {**digests, "ancestors": list(self.ancestors), "complete": self.complete}


def trained_on(
    known: Provenance | None,
    model: str,
    text: Array,
    video: Array,
    called: Modalities = TEXT_VIDEO,
) -> tuple[str, ...]:
    """The warning for figures on rows that the model was trained on; empty without such rows."""
    if known is None:
        return ()
    seen = known.trained_rows(text, video)
    counts = zip(called, (seen.texts, seen.videos), (len(text), len(video)), strict=True)
    found = [f"{count:,} of the {all_:,} {name} rows" for name, count, all_ in counts if count]
    if not found:
        return ()
    which = " and ".join(found)
    return (f"{model} was trained on {which}, so its figures say little about unseen rows",)


def provenance_of(content: Mapping[str, Any], file: str) -> Provenance | None:
    """Read a checkpoint's provenance, as `values` gives it; None if there is none.

    Raises CimError for other values.
    """
    values = content.get(KEY)
    if values is None:
        return None
    try:
        rows = {name: _digests(values[name]) for name in MODALITIES}
        ancestors, complete = values["ancestors"], values["complete"]
    except (KeyError, TypeError):
        rows, ancestors, complete = {}, None, None
    if not isinstance(ancestors, list) or not isinstance(complete, bool):
        raise CimError(f"{file}: {KEY} is not a record of the training rows; expected one, or none")
    return Provenance(rows, tuple(map(str, ancestors)), complete)


def _digests(value: Any) -> Digests:
    if not isinstance(value, np.ndarray) or value.dtype != np.int64 or value.ndim != 1:
        raise TypeError(value)
    return single(value).view(np.uint64)
