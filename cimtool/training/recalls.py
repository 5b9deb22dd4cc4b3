"""Retrieval among held-out pairs, by which the epochs of a run are compared."""

from __future__ import annotations

import numpy as np

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.reference.metrics import Retrieval, mean_average_precision
from cimtool.reference.precision import average_precision, hit_positions
from cimtool.reference.queries import RECALLS, WAYS, retrieval
from cimtool.training.pairs import Pairs


def recalls_of(scores: FloatArray, pairs: Pairs, by_class: bool = False) -> dict[str, float]:
    """Return R@1/5/10 both ways of scores [n, m] of all texts and videos of `pairs`.

    With `by_class` mAP as well: all items of the query's class are right. Where both are the same
    items with labels, all others of its class are what an item is to find.
    """
    if pairs.alone and pairs.labels is not None:
        return _among_others(scores, pairs.labels.numpy())
    found: Retrieval = retrieval(scores, pairs.right.numpy())
    recalls = {
        f"r{k}_{way}": float(getattr(getattr(found, way), f"r{k}")) for k in RECALLS for way in WAYS
    }
    if not by_class or pairs.labels is None:
        return recalls
    text, right = pairs.labels.numpy(), pairs.right.numpy()
    video = np.empty(len(pairs.video), text.dtype)
    video[right] = text
    both = (scores, text, video), (scores.T, video, text)
    maps = {f"map_{way}": mean_average_precision(*one) for way, one in zip(WAYS, both, strict=True)}
    return maps | recalls


def _among_others(scores: FloatArray, labels: IntArray) -> dict[str, float]:
    """mAP and recalls of items [n] in `scores` [n, n], each left out where it is the query."""
    found: dict[str, float] = {}
    recalls: dict[str, float] = {}
    for way, rows in zip(WAYS, (scores, scores.T), strict=True):
        hits = [
            hit_positions(np.delete(row, i), np.delete(labels, i) == labels[i])
            for i, row in enumerate(rows)
        ]
        queries = [one for one in hits if len(one)]
        found[f"map_{way}"] = float(np.mean([average_precision(one) for one in queries]))
        for k in RECALLS:
            recalls[f"r{k}_{way}"] = float(np.mean([one[0] <= k for one in queries]))
    return found | recalls
