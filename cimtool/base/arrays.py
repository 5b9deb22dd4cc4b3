"""Type names for arrays, and their rounding to narrower types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

FLOAT_BITS = 53
"""Bits of whole numbers that are exact in float64."""

SINGLE_BITS = 24
"""Bits of whole numbers that are exact in float32."""

SIGNED_TYPES = (np.int8, np.int16, np.int32, np.int64)


LARGEST_NUMBER = 1e100
"""Largest number accepted in a model: float64 holds its square, and sums of many squares."""


def narrow(whole: Array, types: Sequence[type[np.integer[Any]]] = SIGNED_TYPES) -> Array:
    """The same whole numbers in the first of `types` that holds them all."""
    lo, hi = whole.min(initial=0), whole.max(initial=0)
    fitting = (t for t in types if np.iinfo(t).min <= lo and hi <= np.iinfo(t).max)
    return whole.astype(next(fitting))


def single(x: Array) -> Array:
    """Round to what float32 holds, in float64."""
    return x.astype(np.float32).astype(np.float64)


def blocks(count: int, size: int) -> Iterator[slice]:
    """Yield slices of `count` rows, each of at most `size` rows and at least one."""
    size = max(size, 1)
    return (slice(start, min(start + size, count)) for start in range(0, count, size))
