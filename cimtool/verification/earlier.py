"""An earlier report, read back to compare a run with; it is a file of others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import ArgumentError, CimError, naming
from cimtool.base.files import REPORT_FILES
from cimtool.base.json_files import read_json
from cimtool.base.typed_fields import fits
from cimtool.loading.embeddings import Embeddings
from cimtool.reference.limits import check_measurable, check_metrics
from cimtool.reference.measures import RANKINGS
from cimtool.reference.queries import Queries
from cimtool.reference.truth import Truth
from cimtool.verification.drift import KEPT, MOST_QUERIES
from cimtool.verification.headline import DriftFindings
from cimtool.verification.paired import Comparison, EarlierRun, ThisRun, compare_runs
from cimtool.verification.report_format import FORMAT_VERSION, LARGEST_REPORT

MOST_VALUE = 1e30
"""A measurement of a query is less, in size: sums of them stay in float64's range."""


def read_earlier(file: Path) -> EarlierRun:
    """Read what a run is compared with from the `report.json` of an earlier one.

    Raises CimError for a file that is no report, of another format version, or whose queries are no
    measurements.
    """
    values = read_json(file, LARGEST_REPORT)
    with naming(file):
        # A report of any version says if it passed; other files have versions of their own.
        known = isinstance(values, dict) and "passed" in values
        version = values.get("format_version") if known else None
        if not fits(version, int) or ("queries" not in values and version == FORMAT_VERSION):
            raise CimError("is not a report; expected a report.json that `cimtool verify` wrote")
        if version != FORMAT_VERSION:
            raise CimError(
                f"has format_version {version}; expected {FORMAT_VERSION}: verify the bundle of "
                "this report again"
            )
        texts = {name: _text(values, name) for name in ("bundle", "target", "score", "reference")}
        return EarlierRun(
            file=str(file),
            digest=_text(_table(values, "data"), "digest"),
            compiled=_queries(_table(values, "queries"), "compiled"),
            of_reference=_queries(_table(values, "queries"), "reference"),
            sections=_table(values, "sections"),
            **texts,
        )


def earlier_of(
    baseline: Path | str | None, tolerance: Mapping[str, float] | None, report: Path
) -> Earlier | None:
    """The run to compare with and its tolerances; None if no `baseline` is given.

    Raises CimError for a baseline that is the report which will be written into the folder
    `report`, for a tolerance without any, and for one that is no metric or below 0.
    """
    tolerance = tolerance or {}
    check_metrics("tolerance", tolerance)
    for metric, value in tolerance.items():
        if value < 0:
            raise ArgumentError("{tolerance} {}: {} is below 0; expected 0 or more", metric, value)
    if baseline is None:
        if tolerance:
            raise ArgumentError("{tolerance} is given without {baseline}; expected both")
        return None
    file = Path(baseline)
    run = read_earlier(file)
    written = report / REPORT_FILES[0]
    if written.exists() and written.samefile(file):
        raise ArgumentError(
            "{baseline} {}: the report is written over it; expected a copy of it elsewhere, or "
            "another folder for {report}",
            file,
        )
    return Earlier(run, tolerance)


@dataclass(frozen=True, eq=False)
class Earlier:
    """An earlier run, and what a loss from it may be by names of LIMITS."""

    run: EarlierRun
    tolerances: Mapping[str, float]

    def check(self, data: Embeddings, of_logit: bool) -> None:
        """Raise CimError, before anything runs, for other data and for tolerances of nothing."""
        check_measurable("tolerance", self.tolerances, data.truth, data.file, of_logit)
        for metric in self.tolerances:
            if metric in NOT_KEPT:
                raise ArgumentError(
                    "{tolerance} {}: reports do not keep what it needs of each query; expected "
                    "another metric, or a limit by {max_drift}",
                    metric,
                )
        self.run.require_data(data.digest, data.file)

    def beside(
        self, drift: DriftFindings, sections: Mapping[str, Any], truth: Truth, seed: int
    ) -> Comparison:
        """The run of these findings beside the earlier one; CimError as `compare_runs`."""
        names = (drift.score, drift.reference)
        run = ThisRun(drift.queries, truth, *names, sections, drift.modalities)
        return compare_runs(run, self.run, self.tolerances, seed)


def _table(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = values.get(key)
    if not isinstance(found, dict):
        raise CimError(f"{key} is not a table; expected what `cimtool verify` wrote")
    return found


LONGEST = 1000
"""Characters of a name, more than any that `verify` writes."""


def _text(values: Mapping[str, Any], key: str) -> str:
    found = values.get(key)
    if not isinstance(found, str) or len(found) > LONGEST or not found.isprintable():
        raise CimError(f"{key} is not a name; expected what `cimtool verify` wrote")
    return found


def _queries(values: Mapping[str, Any], key: str) -> Queries:
    """The measurements of both sides, by names of KEPT in the order of it."""
    found = _table(values, key)
    return Queries(*(_side(_table(found, side), f"{key}.{side}") for side in ("text", "video")))


def _side(values: Mapping[str, Any], where: str) -> dict[str, FloatArray]:
    return {
        name: _measured(values[name], f"{where}.{name}", -MOST_VALUE if name in SIGNED else 0.0)
        for name in KEPT
        if name in values
    }


NOT_KEPT = tuple(one.loss for one in RANKINGS if not one.one_number)
"""Limits on metrics whose measurements of queries a report does not keep."""

SIGNED = {one.of for one in RANKINGS if one.signed}
"""Measurements that may be below 0."""


def _measured(values: Any, where: str, least: float) -> FloatArray:
    """Numbers of queries [n] from `least` on, NaN if one is null."""
    if not isinstance(values, list) or not 0 < len(values) <= MOST_QUERIES:
        raise CimError(f"queries.{where} is not a list of 1 to {MOST_QUERIES:,} numbers")
    for index, value in enumerate(values):
        if value is not None and not (fits(value, float) and least <= value <= MOST_VALUE):
            raise CimError(
                f"queries.{where}[{index}] is not a number from {least:g} to {MOST_VALUE:g}, nor "
                "null"
            )
    return np.array([math.nan if value is None else value for value in values], np.float64)
