"""The demo's data: embeddings of the functions that are installed, and of their docstrings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cimtool.base.arrays import Array, BoolArray
from cimtool.base.errors import CimError
from cimtool.loading.calibration_rows import row_digests
from cimtool.training.corpus import Pair
from cimtool.training.features import Features

SEED = 0
"""Seed of the split and of the maps to embeddings."""


@dataclass(frozen=True)
class DemoFiles:
    """Files of a model and its data; each `.npz` holds aligned `text`, `video` [n, width]."""

    projectors: Path
    poly: Path
    train: Path
    calibration: Path
    eval: Path

    @classmethod
    def under(cls, folder: Path) -> DemoFiles:
        """The demo's own in `folder`; the projectors lie in the folder of their run."""
        return cls(
            projectors=folder / "demo" / "model.pth",
            poly=folder / "poly.json",
            train=folder / "train.npz",
            calibration=folder / "calibration.npz",
            eval=folder / "eval.npz",
        )

    def missing(self) -> list[str]:
        """Names of the files that are not there."""
        return [path.name for path in vars(self).values() if not path.is_file()]


def write_embeddings(
    pairs: Sequence[Pair], files: DemoFiles, width: int, eval_rows: int, calibration_rows: int
) -> int:
    """Write embeddings of pairs that are drawn to evaluate on, and of the others; count these.

    Both sides are embedded by maps fitted on the others, of which the first calibrate as well.
    No row of these is one to evaluate on: functions that differ in punctuation alone have the same
    embedding. Raises CimError where there are no more than `eval_rows` pairs.
    """
    if len(pairs) <= eval_rows:
        raise CimError(f"the sources hold {len(pairs)} pairs; expected more than {eval_rows}")
    order = np.random.default_rng(SEED).permutation(len(pairs))
    shuffled = [pairs[i] for i in order]
    text = _embedded([pair.text for pair in shuffled], width, eval_rows)
    video = _embedded([pair.code for pair in shuffled], width, eval_rows)
    seen = _seen(text, eval_rows) | _seen(video, eval_rows)
    others = eval_rows + np.flatnonzero(~seen)
    for file, rows in (
        (files.eval, np.arange(eval_rows)),
        (files.train, others),
        (files.calibration, others[:calibration_rows]),
    ):
        np.savez(file, text=text[rows], video=video[rows])
    return len(others)


def _embedded(documents: Sequence[str], width: int, eval_rows: int) -> Array:
    return Features.fit(documents[eval_rows:], width, SEED).transform(documents)


def _seen(rows: Array, eval_rows: int) -> BoolArray:
    """Mask of the rows behind the first `eval_rows`: those that equal one of these."""
    digests = row_digests(rows)
    return np.isin(digests[eval_rows:], digests[:eval_rows])
