"""Measurements of queries as plain values, and checked as they are read from a point's file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.base.typed_fields import fits
from cimtool.reference.pairs import SHAPES
from cimtool.reference.queries import Queries

MOST_VALUE = 1e30
"""The largest size of a query's measurement, so that sums stay in float64's range."""


def plain_queries(queries: Queries) -> dict[str, dict[str, list[float]]]:
    """The measurements of both sides as lists, by side and name."""
    sides = {"text": queries.text, "video": queries.video}
    return {way: {k: v.tolist() for k, v in one.items()} for way, one in sides.items()}


def read_queries(values: Mapping[str, Any]) -> Queries:
    """Read the values of `plain_queries`; KeyError, TypeError or ValueError for other values."""
    return Queries(*(_side(values[way]) for way in ("text", "video")))


def _side(values: Mapping[str, Any]) -> dict[str, FloatArray]:
    """Measurements [n, ...] by name, NaN if missing; TypeError or ValueError for other values."""
    if not isinstance(values, dict):
        raise TypeError("the measurements are no table")
    found = {}
    for name, numbers in values.items():
        if not isinstance(numbers, list) or not _all_numbers(numbers):
            raise TypeError(f"{name} is not a list of numbers")
        found[name] = np.array(numbers, np.float64)
        if found[name].shape[1:] != SHAPES.get(name, ()):
            raise ValueError(f"{name} has shape {found[name].shape}")
        if (np.abs(found[name]) > MOST_VALUE).any():
            raise ValueError(f"{name} has a number beyond {MOST_VALUE:g}")
    return found


def _all_numbers(values: list[Any]) -> bool:
    """True if a list holds numbers, or lists of them."""
    return all(_all_numbers(one) if isinstance(one, list) else fits(one, float) for one in values)


def counts_by_name(queries: Queries) -> list[dict[str, int]]:
    """The number of queries with each measurement, for texts and for videos."""
    sides = (queries.text, queries.video)
    return [{name: len(values) for name, values in side.items()} for side in sides]
