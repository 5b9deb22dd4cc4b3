"""Classes of items: a number for each, or a row of yes and no where an item may have several.

Two items are alike where they have a class in common, as the papers on retrieval have it; an item
without any class is like none, not even itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray, IntArray
from cimtool.reference.statistics import blocks

Classes = IntArray | BoolArray
"""The class [n] of each item, or [n, C] true for each class that it has."""

PAIRS = 1 << 20
"""Pairs of items whose classes are compared at a time, for a bounded memory."""


def alike(own: Array, classes: Classes) -> BoolArray:
    """Tell which items [m] have a class in common with one item, whose own classes are `own`."""
    if classes.ndim == 1:
        same: BoolArray = np.equal(classes, own)
        return same
    common: BoolArray = np.any(classes[:, own], axis=1)
    return common


def alike_pairs(classes: Classes, others: Classes) -> BoolArray:
    """Tell which of all pairs of items have a class in common, [n, m]."""
    if classes.ndim == 1:
        same: BoolArray = classes[:, None] == others
        return same
    common: BoolArray = classes.astype(np.float32) @ others.astype(np.float32).T > 0
    return common


def memberships(classes: Classes) -> tuple[IntArray, IntArray]:
    """Each item with each of its classes: rows of items, and numbers of classes from 0."""
    if classes.ndim == 1:
        numbers = np.unique(classes, return_inverse=True)[1].reshape(-1)
        return np.arange(len(classes)), numbers
    items, numbers = np.nonzero(classes)
    return items, numbers


def any_alike(classes: Classes) -> bool:
    """True where two items have a class in common."""
    return bool(np.bincount(memberships(classes)[1], minlength=1).max() > 1)


def alike_counts(classes: Classes) -> IntArray:
    """The number of other items that have a class in common with each, [n]."""
    if classes.ndim == 1:
        _, numbers, counts = np.unique(classes, return_inverse=True, return_counts=True)
        others: IntArray = counts[numbers.reshape(-1)] - 1
        return others
    found = [np.count_nonzero(mask, axis=1) for mask in _alike_blocks(classes)]
    return np.concatenate(found).astype(np.int64) - classes.any(axis=1)


def alike_sums(classes: Classes, values: FloatArray) -> FloatArray:
    """Sums of `values` [n, d] over the items like each, itself among them, [n, d]."""
    if classes.ndim == 1:
        numbers = memberships(classes)[1]
        sums = np.zeros((numbers.max() + 1, values.shape[1]))
        np.add.at(sums, numbers, values)
        return sums[numbers]
    return np.concatenate([mask.astype(np.float64) @ values for mask in _alike_blocks(classes)])


def _alike_blocks(classes: Classes) -> Iterator[BoolArray]:
    """Yield the rows of `alike_pairs` of items with themselves, some at a time."""
    own = classes.astype(np.float32)
    for rows in blocks(len(own), PAIRS // len(own)):
        yield own[rows] @ own.T > 0
