"""Scores that rank nothing, for they are equal."""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import Array
from cimtool.reference.modality_names import TEXT_VIDEO, Modalities, item_names

MOST = 0.5
"""A larger share of queries whose scores are all equal is a warning."""


def all_equal(
    scores: Array, called: Modalities = TEXT_VIDEO, what: str = "compiled scores"
) -> list[str]:
    """A sentence where scores [n, m] are constant, over all pairs or within queries.

    Queries are one side's items, then the other's; one with a single item to rank is not counted.
    """
    if scores.size > 1 and np.ptp(scores) == 0:
        return [f"the {what} are constant: every pair gets the same score"]
    found = []
    for axis, queries in zip((1, 0), item_names(called), strict=True):
        share = float(np.mean(np.ptp(scores, axis=axis) == 0))
        if scores.shape[axis] > 1 and share > MOST:
            found.append(
                f"the {what} are all equal within {share:.1%} of the queries ({queries}), "
                "so they rank nothing there"
            )
    return found
