"""Work that arrays leave out: cycles without an input, and columns whose cells hold nothing.

Both read sums that are 0 without a conversion, so no integer changes; energy and time do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.hardware.stored import StoredWeights

Skip = Literal["zero-inputs", "zero-slices"]
"""Work that an array leaves out:

    zero-inputs    a cycle of a row group all of whose digits are 0
    zero-slices    a column of a slice and row group all of whose cells hold the digit 0
"""


@dataclass(frozen=True)
class Activity:
    """The work that is left of a layer's: all of it by default.

    `driven` is the mean share of the drive cycles of row groups in which an input is not 0,
    `busiest` the same of the array that has most of them, for which the others wait, and `empty`
    the number of columns, of all slices and row groups, whose cells hold nothing.
    """

    driven: float = 1.0
    busiest: float = 1.0
    empty: int = 0


WHOLE = Activity()


def skipping_notes(activities: Sequence[Activity]) -> list[str]:
    """A sentence on the work that layers skip, if any does."""
    if all(one == WHOLE for one in activities):
        return []
    shares, empty = [one.driven for one in activities], sum(one.empty for one in activities)
    return [
        f"skipped: {1 - max(shares):.1%} to {1 - min(shares):.1%} of a layer's drive cycles, which "
        f"have no input on calibration rows, and {empty:,} columns that hold nothing"
    ]


def driven_shares(x: IntArray, stored: StoredWeights) -> tuple[float, float]:
    """`driven` and `busiest` of an `Activity` for inputs [n, K] of a layer."""
    crossbar = stored.crossbar
    digits = crossbar.inputs.digits(x.reshape(-1, x.shape[-1]), crossbar.inputs.cycles)
    groups, height = stored.groups, crossbar.tiling.height or len(stored.weight)
    driven = np.stack([digits[:, :, group].any(axis=2).sum(axis=0) for group in groups])
    arrays = np.array([group.start // height for group in groups])
    per_array = np.stack([driven[arrays == one].sum(axis=0) for one in np.unique(arrays)])
    cycles, reads = len(digits), np.bincount(arrays).max()
    return float(driven.mean() / cycles), float(per_array.max(axis=0).mean() / (cycles * reads))


def empty_columns(stored: StoredWeights) -> int:
    """Columns of all slices and row groups whose cells all hold the digit 0."""
    held = (one.digits[group].any(axis=0) for one in stored.slices for group in stored.groups)
    return int(sum((~column).sum() for column in held))
