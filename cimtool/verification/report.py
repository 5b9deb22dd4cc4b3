"""The report: everything that `verify` found, as plain values, and its files beside the bundle."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from cimtool.base.errors import CheckFailed
from cimtool.verification.bits import BitCount, failures
from cimtool.verification.drift import Row
from cimtool.verification.headline import Headline
from cimtool.verification.layers import LayerFinding
from cimtool.verification.limits import Limit
from cimtool.verification.margins import Margin, PairSample, RecallCurve
from cimtool.verification.noisy import Noisy
from cimtool.verification.references import Reference, Scatter
from cimtool.verification.saturation import Domain, Stored
from cimtool.verification.sensitivity import Sensitivity

FORMAT_VERSION = 3
DIGITS = 6
"""Significant digits of the numbers in `report.json`: what every machine agrees on."""


@dataclass(frozen=True)
class DataCard:
    """What was measured on."""

    file: str
    texts: int
    videos: int
    labelled: bool


@dataclass(frozen=True)
class TargetFigure:
    """A figure of the target that costs rest on, and how sure it is."""

    quantity: str
    value: float
    unit: str
    scope: str
    status: str
    source: str


@dataclass(frozen=True)
class Report:
    """What `verify` found of one bundle; `rows` end with the ONNX files.

    `score` says what is compared, `logit` or `score` (where the head predicts none); `surrogate` is
    the stage of its float score, the trained program before any pass; `scatter` is
    Monte Carlo's own, None where a and b are not known. `bits` count the values that differ
    between implementations; `noisy` are dies at one time each; `advice` says which setting to
    change next. `cost` is what `cimtool cost` says of a query against the videos as gallery,
    `placement` its picture (not in the JSON); `notes` are sentences a reader should see.
    """

    bundle: str
    model: str
    target: str
    fidelity: str
    score: str
    surrogate: str
    data: DataCard
    seed: int
    reference: Reference
    scatter: Scatter | None
    headline: Headline
    rows: tuple[Row, ...]
    noisy: tuple[Noisy, ...]
    margins: tuple[Margin, ...]
    curves: tuple[RecallCurve, ...]
    pairs: PairSample
    bits: tuple[BitCount, ...]
    domains: tuple[Domain, ...]
    stored: tuple[Stored, ...]
    layers: tuple[LayerFinding, ...]
    sensitivity: Sensitivity
    advice: tuple[str, ...]
    metrics: Mapping[str, float]
    limits: tuple[Limit, ...]
    notes: tuple[str, ...]
    unmodelled: tuple[str, ...]
    cost: Mapping[str, Any]
    figures: tuple[TargetFigure, ...]
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]
    placement: str

    @property
    def shown(self) -> tuple[Row, ...]:
        """The rows of the drift table: the stages, then what dies keep where any were drawn."""
        return (*self.rows, *(row for one in self.noisy for row in one.rows))

    @property
    def compiled_rows(self) -> tuple[Row, ...]:
        """The rows of the stages, from the float score on."""
        names = [row.stage for row in self.rows]
        return self.rows[names.index(self.surrogate) :]

    @property
    def survivors(self) -> tuple[Row, ...]:
        """The rows that tell survival: reference, surrogate, compiled model, dies."""
        start = [row for row in self.rows if row.stage in (self.reference.name, self.surrogate)]
        compiled = replace(self.final, stage="compiled model")
        return (*start, compiled, *(row for one in self.noisy for row in one.rows))

    @property
    def final(self) -> Row:
        """The row of the compiled model, as its ONNX files compute it."""
        return self.rows[-1]

    @property
    def failures(self) -> tuple[str, ...]:
        """One sentence for each check that did not hold."""
        return (*failures(self.bits), *(one.sentence() for one in self.limits if not one.kept))

    @property
    def failed(self) -> bool:
        """Whether any check did not hold."""
        return bool(self.failures)

    def to_json(self) -> dict[str, Any]:
        """Plain values, numbers at 6 significant digits, infinities and unknowns as None."""
        values: dict[str, Any] = {"format_version": FORMAT_VERSION, **plain(self)}
        del values["placement"]
        values["passed"] = not self.failed
        values["failures"] = list(self.failures)
        return values

    def json_text(self) -> str:
        """The text of `report.json`: the same findings, the same bytes."""
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"


class VerificationFailed(CheckFailed):
    """A bit differed or a metric was over its limit; `report` holds all that was found."""

    def __init__(self, report: Report):
        super().__init__("; ".join(report.failures))
        self.report = report


def plain(value: Any) -> Any:
    """Dataclasses and containers as JSON's types, floats rounded, without what is derived."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)} | _derived(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return rounded(value)
    return value


def _derived(value: Any) -> dict[str, Any]:
    names = ("relative_rmse", "relative_centred_rmse", "kept", "is_real")
    return {name: plain(getattr(value, name)) for name in names if hasattr(value, name)}


def rounded(number: float) -> float | None:
    """A number at 6 significant digits, 0.0 for -0.0; None where it is not finite."""
    return float(f"{number:.{DIGITS}g}") + 0.0 if math.isfinite(number) else None
