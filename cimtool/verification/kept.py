"""Queries that a report keeps, so that a later run on the same data is paired with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import FloatArray, IntArray
from cimtool.base.json_files import significant
from cimtool.reference.limits import LIMITED
from cimtool.reference.measures import RANKINGS
from cimtool.reference.queries import Queries, Selection, led
from cimtool.reference.truth import Truth
from cimtool.verification.drift import DriftTable

MOST_QUERIES = 1 << 14
"""Texts, and videos, that are kept; of more a draw that their number alone decides."""

RANKED = tuple(dict.fromkeys(metric.of for metric in RANKINGS))
COMPARED = tuple(one.of for one in LIMITED)
"""Measurements against the reference, which its own row lacks."""

KEPT = (*RANKED, *COMPARED)

OF_REFERENCE = tuple(led(by_class)[0].of for by_class in (False, True))
"""Measurements of the reference that are kept: those of the metrics that lead."""


@dataclass(frozen=True)
class KeptQueries:
    """Measurements of queries by their names in Queries, over texts and over videos.

    Numbers of 6 significant digits, as JSON holds them; NaN is no query.
    """

    text: Mapping[str, tuple[float, ...]]
    video: Mapping[str, tuple[float, ...]]

    @property
    def queries(self) -> Queries:
        """The same as arrays."""
        sides = (self.text, self.video)
        return Queries(*({name: np.array(one) for name, one in side.items()} for side in sides))


@dataclass(frozen=True)
class KeptRun:
    """The queries of the compiled model and of its reference, those of `kept_rows`."""

    compiled: KeptQueries
    reference: KeptQueries


def kept_run(table: DriftTable) -> KeptRun:
    """Keep the queries of a table's last row and of the row that its losses are from."""
    rows = kept_rows(table.truth)
    compiled, reference = (one.of(rows) for one in (table.queries[-1], table.against))
    return KeptRun(_kept(compiled.only(KEPT)), _kept(reference.only(OF_REFERENCE)))


def _kept(queries: Queries) -> KeptQueries:
    sides = (queries.text, queries.video)
    return KeptQueries(*({name: _rounded(one) for name, one in side.items()} for side in sides))


def _rounded(values: FloatArray) -> tuple[float, ...]:
    return tuple(significant(float(value)) for value in values)


def kept_rows(truth: Truth) -> Selection:
    """Rows of the texts and videos whose queries are kept: all, or MOST_QUERIES drawn of more."""
    return Selection(*map(_drawn, (len(truth.text_to_video), truth.videos)))


def _drawn(count: int) -> IntArray:
    if count <= MOST_QUERIES:
        return np.arange(count)
    rows: IntArray = np.sort(np.random.default_rng(count).permutation(count)[:MOST_QUERIES])
    return rows
