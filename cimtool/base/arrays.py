"""Type names for arrays, and their rounding to single precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

FLOAT_BITS = 53
"""Bits of whole numbers that are exact in float64."""


def single(x: Array) -> Array:
    """Round to what float32 holds, in float64."""
    return x.astype(np.float32).astype(np.float64)
