"""A metric: its name, what it is of, its direction, and how tables call it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray
from cimtool.base.modality_names import way_names
from cimtool.reference.bootstrap import QueryCounts
from cimtool.reference.truth import Truth

WAYS = tuple(way_names())

Hits = tuple[IntArray, IntArray | None]
"""Positions of the right items of a query, best first, and their grades where they have any."""

Pooled = Callable[[QueryCounts, FloatArray], FloatArray]
"""One number of a measurement of each query, in each resample."""


@dataclass(frozen=True)
class Metric:
    """A metric that is made of one measurement `of` each query.

    `label` names it in sentences and `heading`, which may have lines, in tables; `essential` ones
    stay in a narrow table. `share` metrics are read in percent.
    """

    name: str
    label: str
    of: str
    help: str = ""
    lower_is_better: bool = False
    share: bool = False
    heading: str = ""
    essential: bool = True

    def rounded(self, value: float) -> float:
        """The value without digits that are rounding."""
        return value


@dataclass(frozen=True)
class RankingMetric(Metric):
    """A metric of rankings; ties count against the right item.

    With `by_class` right are the items of the query's class where classes are known. A query is
    measured by the rank of its best right item, or by `of_hits` of all its right items, or by
    `of_means` of the means of both modalities, over the texts alone. Values have `decimals`: less
    is rounding in float64. `signed` ones may be below 0.
    """

    value: Pooled = QueryCounts.mean
    by_class: bool = False
    of_hits: Callable[[Hits], float] | None = None
    of_means: Callable[[Truth, Array, Array], FloatArray | None] | None = None
    decimals: int | None = None
    signed: bool = False

    @property
    def keys(self) -> dict[str, str]:
        """The names of its values by way."""
        if self.of_means is not None:
            return {WAYS[0]: self.name}
        return {way: f"{self.name}_{way}" for way in WAYS}

    @property
    def loss(self) -> str:
        """The name of its loss in the worse way."""
        return f"{self.name}_loss"

    def labelled(self, way: str) -> str:
        """The label with words for a way, where the metric is of ways."""
        return self.label if self.of_means is not None else f"{self.label} {way}"

    def rounded(self, value: float) -> float:
        """The value at its `decimals`; adding 0.0 makes a -0.0 a 0.0."""
        return value if self.decimals is None else round(value, self.decimals) + 0.0


Pooling = Literal[
    "text mean", "video mean", "text root", "text largest", "worse mean", "worse root"
]
"""The number of a measurement: a mean, the root of one, or the largest; of both sides the worse."""


@dataclass(frozen=True)
class DifferenceMetric(Metric):
    """A metric of the difference of scores from others, or of their spread; one without a
    `pooling` is derived.

    `limit` is the name of its loss, where a limit can be put on it: an error itself, or what is
    lacking of a share.
    """

    pooling: Pooling | None = None
    limit: str = ""

    def lost(self, value: float) -> float:
        """The value that a limit is held to."""
        return value if self.lower_is_better else 1 - value


def pooled(
    how: Pooling, text: QueryCounts, own: FloatArray, video: QueryCounts, other: FloatArray | None
) -> FloatArray:
    """One number a resample [B] of a measurement over texts, and over videos if there is one."""
    if how == "text largest":
        return text.largest(own)
    mean = text.mean(own)
    if other is not None and how == "video mean":
        mean = video.mean(other)
    elif other is not None and how == "worse mean":
        mean = np.minimum(mean, video.mean(other))
    elif other is not None and how == "worse root":
        mean = np.maximum(mean, video.mean(other))
    root: FloatArray = np.sqrt(mean) if how in ("text root", "worse root") else mean
    return root
