"""Rows that a bundle was calibrated on, known by digest.

An evaluation refuses them, unless the user allows them or drops them from the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np

from cimtool.base.arrays import BoolArray
from cimtool.base.data_notes import note_data
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.modality_names import Modalities, name_of
from cimtool.ir.program import MODALITIES
from cimtool.loading.digests import Digests, known_rows
from cimtool.loading.embeddings import Embeddings

SeenRows = Literal["refuse", "allow", "drop"]
"""Treatment of rows that a model was calibrated on."""

SEEN_ROWS: tuple[SeenRows, ...] = get_args(SeenRows)

DROP_OR_ALLOW = ArgumentError("{calibration_rows} drop or allow")
"""The clause that names the argument with which the data can still be measured."""

NAMED_ROWS = 5
"""Rows that a sentence names at most."""


def require_unseen(
    known: Mapping[str, Digests],
    data: Embeddings,
    name: str,
    otherwise: CimError = DROP_OR_ALLOW,
) -> None:
    """Raise CimError if the model `name` was calibrated on rows of `data`.

    `known` are the digests of its calibration rows. Texts and videos both count, also videos of a
    gallery in the arrays: calibrated ranges fit calibration rows better than unseen rows.
    `otherwise` names the arguments that help.
    """
    if found := _counted(known_rows(known, data.text, data.video), data.called):
        raise ArgumentError(
            "{}: {} was calibrated on {}; expected unseen rows, {}",
            data.file,
            name,
            found,
            otherwise,
        )


def without_seen(
    known: Sequence[Mapping[str, Digests]], data: Sequence[Embeddings], *names: str
) -> list[Embeddings]:
    """The data without the rows that calibrated any of the models; a note says which are left out.

    `known` has the digests of each model, `data` the same rows in the form that each model takes.
    A pair is left out whole. Raises CimError if fewer than two rows of a modality remain.
    """
    each = [known_rows(own, d.text, d.video) for own, d in zip(known, data, strict=True)]
    seen = {name: np.logical_or.reduce([masks[name] for masks in each]) for name in MODALITIES}
    found = _counted(seen, data[0].called)
    if not found:
        return list(data)
    left = [one.without(seen["text"], seen["video"]) for one in data]
    whose = " or ".join(dict.fromkeys(names))
    remain = (
        f"{data[0].file}: {found} calibrated {whose}; without them and their pairs "
        f"{left[0].counted} remain"
    )
    if min(len(left[0].text), len(left[0].video)) < 2:
        raise CimError(f"{remain}; expected at least 2")
    note_data(f"{remain}, which are measured")
    return left


def _counted(seen: Mapping[str, BoolArray], called: Modalities) -> str:
    """A clause on the rows that the masks [n] mark, by modality; empty if there are none."""
    return " and ".join(
        f"{mask.sum():,} of its {len(mask):,} {name_of(modality, called)} rows ({row_list(mask)})"
        for modality, mask in seen.items()
        if mask.any()
    )


def row_list(mask: BoolArray) -> str:
    """The numbers of the first few rows that a mask [n] marks."""
    rows = np.flatnonzero(mask).tolist()
    more = ", ..." if len(rows) > NAMED_ROWS else ""
    return ", ".join(map(str, rows[:NAMED_ROWS])) + more
