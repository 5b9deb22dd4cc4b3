"""What `simulate` writes: all scores, or the best of each text, in one `.npz`, all or nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import unwritable
from cimtool.simulation.simulator import Features, Simulator


def best_scores(
    simulator: Simulator, text: Features, video: Features | None, top: int
) -> dict[str, Array]:
    """Each text's best videos, best first: `top_index` int64, `top_score` float32, both [n, top].

    Of equal scores the lower row comes first. Never holds more than a block of the n x m scores. Of
    a program that holds its gallery `video` is not looked at. Raises CimError where `top` is not 1
    to m.
    """
    videos = simulator.columns(video)
    if not 1 <= top <= videos:
        raise ArgumentError("{top} is {}; expected 1 to {}, the number of videos", top, videos)
    indices, scores = [], []
    for _, part in simulator.iter_score(text, video):
        logit = part["logit"].astype(np.float32)
        best = np.stack([_best(row, top) for row in logit])
        indices.append(best)
        scores.append(np.take_along_axis(logit, best, axis=1))
    return {"top_index": np.concatenate(indices), "top_score": np.concatenate(scores)}


def _best(logit: Array, top: int) -> IntArray:
    """The places of the `top` largest, best first; of equal ones the lower comes first."""
    least = np.partition(logit, len(logit) - top)[len(logit) - top]
    near = np.flatnonzero(logit >= least)
    best: IntArray = near[np.argsort(-logit[near], kind="stable")[:top]]
    return best


def hybrid_scores(
    simulator: Simulator, text: Features, gallery: Features, shortlist: int, top: int | None
) -> dict[str, Array]:
    """Each text's best items of its shortlist, exactly scored: what `best_scores` returns.

    The shortlist are the items of the smallest `ed` in the memory; the others have no score.
    `gallery` are the items' features; without `top` the whole shortlist is returned. Raises
    CimError where `top` is not 1 to `shortlist`.
    """
    top = shortlist if top is None else top
    if not 1 <= top <= shortlist:
        raise ArgumentError(
            "{top} is {}; expected 1 to {}, the items of a shortlist", top, shortlist
        )
    indices: list[Array] = []
    scores: list[Array] = []
    for block, ed in simulator.iter_distances(text):
        for row, near in enumerate(nearest_items(ed, shortlist), block.start):
            near = np.sort(near)
            query = {name: value[row : row + 1] for name, value in text.items()}
            items = {name: value[near] for name, value in gallery.items()}
            logit = simulator.score(query, items, np.float32)[0]
            best = np.argsort(-logit, kind="stable")[:top]
            indices.append(near[best].astype(np.int64))
            scores.append(logit[best])
    return {"top_index": np.stack(indices), "top_score": np.stack(scores)}


def nearest_items(ed: Array, shortlist: int) -> Array:
    """The items [n, shortlist] of the smallest `ed` [n, M]; of equal ones the lower row first."""
    return np.stack([_best(-row, shortlist) for row in ed])


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
