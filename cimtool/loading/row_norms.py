"""Warnings if the norms of rows differ in scale from the norms of a bundle's calibration rows."""

from __future__ import annotations

import warnings

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimWarning
from cimtool.base.modality_names import TEXT_VIDEO
from cimtool.loading.model import ModelCard

MEASURED_ROWS = 4096
"""Rows whose norms are computed: the first ones, the most that calibrate."""

MOST_TIMES = 4.0
"""The largest factor between median norms of rows of the same kind."""


def median_norm(rows: Array) -> float:
    """The median norm of the first rows [n, width] that are not zero; 0 if there are none.

    It is rounded to 4 digits, which are the same on every CPU.
    """
    norms = np.linalg.norm(rows[:MEASURED_ROWS].astype(np.float64), axis=1)
    norms = norms[(norms > 0) & np.isfinite(norms)]
    return float(f"{np.median(norms):.4g}") if len(norms) else 0.0


def other_scale(
    rows: Array, modality: str, model: ModelCard, where: str, name: str | None = None
) -> list[str]:
    """A sentence if rows [n, width] are over MOST_TIMES larger or smaller than calibration rows.

    It calls the modality by the user's `name`. There is no sentence if the model is not calibrated,
    or if all rows are zeros.
    """
    found = median_norm(rows)
    if model.row_norms is None:
        return []
    calibrated = model.row_norms[TEXT_VIDEO.index(modality)]
    if not (found and calibrated):
        return []
    times = found / calibrated
    if 1 / MOST_TIMES <= times <= MOST_TIMES:
        return []
    differ, effect = f"{times:.3g} times larger", "values beyond the calibrated range saturate"
    if times < 1:
        differ, effect = f"{1 / times:.3g} times smaller", "few steps of the inputs are used"
    return [
        f"{where}: the {name or modality} rows are {differ} than those that calibrated "
        f"{model.name} (median norm {found:.4g}, not {calibrated:.4g}), so that {effect}; one of "
        "the two probably has integer codes, or another normalisation"
    ]


def warn_of_scale(
    rows: Array, modality: str, model: ModelCard, where: str, name: str | None = None
) -> None:
    """Warn with the sentence of `other_scale`, if there is one."""
    for sentence in other_scale(rows, modality, model, where, name):
        warnings.warn(sentence, CimWarning, stacklevel=2)
