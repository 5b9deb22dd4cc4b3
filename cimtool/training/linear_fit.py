"""The linear maps that rank unseen pairs best, with a variance and a sigmoid for their distances.

The penalty, the variance and the sigmoid come from folds of the training pairs: maps of all other
pairs are tried on each fold. No pair that validates is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cimtool.base.arrays import BoolArray, FloatArray
from cimtool.base.threads import one_blas_thread
from cimtool.training.history import leading, recalls_of
from cimtool.training.linear_start import (
    RIDGES,
    LinearFit,
    LinearStart,
    linear_starts,
    rows_and_maps,
)
from cimtool.training.pairs import Pairs
from cimtool.training.sigmoid import fitted_sigmoid, right_pairs

FOLDS = 5
"""Parts of the videos, of which each is ranked by maps of the others."""

RANKED = 1000
"""Videos that are ranked: no fold has more, and folds beyond them are left out."""


WEIGHTS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0)
"""Weights of maps beside rows of unit norm that are tried: rows alone first, maps alone last.

The mean square of a mapped number is 1, so 128 of them have a norm of about 11.
"""


def fit_linear(
    pairs: Pairs, dimensions: int, by_class: bool = False, beside_rows: bool = False
) -> LinearFit:
    """Fit maps to `dimensions` at most, with the ridge of the best mean R@1 of the folds.

    With `by_class` of the best mAP. With `beside_rows`, rows are of one width and unit norm, and
    the weight of the maps beside them is chosen likewise. There are FOLDS videos or more. The same
    pairs give the same numbers whatever the threads.
    """
    with one_blas_thread:
        parts = list(folds(pairs))
        tried = [_starts(rest, dimensions, RIDGES) for rest, _ in parts]
        merits = np.zeros(len(RIDGES))
        for starts, (_, part) in zip(tried, parts, strict=True):
            for i, start in enumerate(starts):
                merits[i] += leading(recalls_of(-_distances(start, part), part, by_class))[1]
        chosen = int(merits.round(9).argmax())  # of equals the least, whatever the last bits say
        squares, right, wrong = [], [], []
        for starts, (_, part) in zip(tried, parts, strict=True):
            start, videos = starts[chosen], part.video[part.right].numpy()
            squares.append((start.text.of(part.text.numpy()) - start.video.of(videos)) ** 2)
            distances, together = _distances(start, part), right_pairs(part)
            right.append(distances[together])
            wrong.append(distances[~together])
        (start,) = _starts(pairs, dimensions, (RIDGES[chosen],))
        residual = np.concatenate(squares).mean(axis=0)
        weight = 0.0
        if beside_rows:
            held = [(starts[chosen], part) for starts, (_, part) in zip(tried, parts, strict=True)]
            weight = _weight_beside_rows(held, by_class)
        return LinearFit(
            start, residual, *fitted_sigmoid(np.concatenate(right), np.concatenate(wrong)), weight
        )


def _weight_beside_rows(held: Sequence[tuple[LinearStart, Pairs]], by_class: bool) -> float:
    """The weight of WEIGHTS whose mean leading figure over held-out folds is best."""
    merits = np.zeros(len(WEIGHTS))
    for start, part in held:
        for i, weight in enumerate(WEIGHTS):
            text = rows_and_maps(part.text.numpy(), start.text, weight)
            video = rows_and_maps(part.video.numpy(), start.video, weight)
            merits[i] += leading(recalls_of(text @ video.T, part, by_class))[1]
    return WEIGHTS[int(merits.round(9).argmax())]


def folds(pairs: Pairs) -> Iterator[tuple[Pairs, Pairs]]:
    """Yield, for each fold, the pairs of all other videos and those of its own."""
    order = np.random.default_rng(0).permutation(len(pairs.video))
    ranked = 0
    for i in range(FOLDS):
        if ranked >= RANKED:
            return
        part = order[i::FOLDS][:RANKED]
        ranked += len(part)
        own: BoolArray = np.isin(pairs.right.numpy(), part)
        yield pairs.among(~own), pairs.among(own)


def _starts(pairs: Pairs, dimensions: int, ridges: tuple[float, ...]) -> list[LinearStart]:
    text, video = pairs.text.numpy(), pairs.video[pairs.right].numpy()
    return list(linear_starts(text, video, dimensions, ridges))


def _distances(start: LinearStart, pairs: Pairs) -> FloatArray:
    return start.distances(pairs.text.numpy(), pairs.video.numpy())
