"""Type names for arrays, so that signatures say what a function computes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

FLOAT_BITS = 53
"""Whole numbers of so many bits are exact in float64."""
