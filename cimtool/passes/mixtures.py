"""Mixtures of calibration rows: more rows of the same mean and covariance.

Behind the first activation a few hundred rows span a part of what unseen rows reach, and weights
that are rounded for them err in the rest. A mixture `mean + (x_i - mean) / sqrt 2 + (x_j - mean) /
sqrt 2` of two rows has the mean and covariance of the rows, and reaches further behind an
activation. It tells nothing new of the embeddings themselves.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator, Philox

from cimtool.base.arrays import Array

MOST = 4096
"""Rows that mixtures fill up to."""

FEWEST = 32
"""Mixtures of fewer rows are too much alike."""


def with_mixtures(rows: Array, room: int) -> tuple[int, Array]:
    """The rows [n, width] float32 and mixtures of them, up to MOST or `room` in all; and n.

    An even number of rows: the last is left out if it is single. Mixtures in even places are of
    rows in even places, those in odd ones of the others.
    """
    if len(rows) < FEWEST:
        return len(rows), rows
    rows = rows[: len(rows) // 2 * 2]
    most, stream = min(MOST, room), Generator(Philox(key=0))
    mean = rows.mean(axis=0, dtype=np.float64)
    apart, parts = (rows - mean) * np.sqrt(0.5), [rows]
    while (len(parts) + 1) * len(rows) <= most:
        partner = np.empty(len(rows), np.int64)
        for place in (0, 1):
            partner[place::2] = stream.permutation(len(rows) // 2) * 2 + place
        parts.append((mean + apart + apart[partner]).astype(rows.dtype))
    return len(rows), np.concatenate(parts)
