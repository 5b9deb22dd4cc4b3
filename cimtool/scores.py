"""What `simulate` writes: all scores, or the best of each text, in one `.npz`, all or nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cimtool.arrays import Array
from cimtool.errors import CimError
from cimtool.files import unwritable
from cimtool.simulator import Features, Simulator


def best_scores(
    simulator: Simulator, text: Features, video: Features, top: int
) -> dict[str, Array]:
    """Each text's best videos, best first: `top_index` int64, `top_score` float32, both [n, top].

    Of equal scores the lower row comes first. Never holds more than a block of the n x m scores.
    Raises CimError where `top` is not 1 to m.
    """
    videos = len(video["mu"])
    if not 1 <= top <= videos:
        raise CimError(f"--top is {top}; expected 1 to {videos}, the number of videos")
    indices, scores = [], []
    for _, part in simulator.iter_score(text, video):
        logit = part["logit"].astype(np.float32)
        best = np.argsort(-logit, axis=1, kind="stable")[:, :top]
        indices.append(best.astype(np.int64))
        scores.append(np.take_along_axis(logit, best, axis=1))
    return {"top_index": np.concatenate(indices), "top_score": np.concatenate(scores)}


def check_scores_file(file: Path) -> None:
    """Raise CimError where scores cannot go to `file`: another kind of name, or a folder there."""
    if file.suffix != ".npz":
        raise CimError(f"{file}: scores are written as .npz; expected a name that ends so")
    if file.is_dir():
        raise CimError(f"{file}: is a folder; expected a file")


def write_scores(file: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays as an `.npz`, first beside `file`, then renamed.

    The same arrays give the same bytes. Raises CimError where the place cannot be written.
    """
    check_scores_file(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{file.name}.partial-", dir=file.parent
        ) as beside:
            partial = Path(beside) / file.name
            np.savez(partial, **arrays)  # type: ignore[arg-type]
            os.replace(partial, file)
    except OSError as error:
        raise unwritable(file, error) from error
