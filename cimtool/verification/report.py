"""The report: everything that `verify` found, as plain values, and its files beside the bundle."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from cimtool.base.errors import CheckFailed
from cimtool.costs.estimate import Estimate
from cimtool.costs.render import estimate_json
from cimtool.verification.causes import Causes
from cimtool.verification.checks import Checks
from cimtool.verification.drift_findings import DriftFindings
from cimtool.verification.headline import Headline
from cimtool.verification.saturation import Saturation
from cimtool.verification.subject import Subject

FORMAT_VERSION = 3
DIGITS = 6
"""Significant digits of the numbers in `report.json`: what every machine agrees on."""


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
class CostCard:
    """The cost in the JSON: what `cimtool cost` says of a query against the videos as gallery."""

    unmodelled: tuple[str, ...]
    cost: Mapping[str, Any]
    figures: tuple[TargetFigure, ...]


def cost_card(estimate: Estimate, bundle: str) -> CostCard:
    """What an estimate says, and on what it rests."""
    target, names = estimate.target, [field.name for field in fields(TargetFigure)]
    figures = (TargetFigure(*(getattr(f, name) for name in names)) for f in target.figures)
    return CostCard(target.unmodelled, estimate_json(estimate, bundle), tuple(figures))


RECORDS = (Subject, DriftFindings, Checks, Saturation, Causes, CostCard)
"""The records whose fields make the JSON of a report, beside its notes."""


@dataclass(frozen=True)
class Report:
    """What `verify` found of one bundle; `notes` are sentences a reader should see."""

    subject: Subject
    drift: DriftFindings
    checks: Checks
    saturation: Saturation
    causes: Causes
    estimate: Estimate
    notes: tuple[str, ...]

    @property
    def headline(self) -> Headline:
        """The compiled model's drift in figures and sentences."""
        return self.drift.headline

    @property
    def failures(self) -> tuple[str, ...]:
        """One sentence for each check that did not hold."""
        return self.checks.failures

    def to_json(self) -> dict[str, Any]:
        """Plain values, numbers at 6 significant digits, infinities and unknowns as None."""
        records = [self.subject, self.drift, self.checks, self.saturation, self.causes]
        values: dict[str, Any] = {"format_version": FORMAT_VERSION}
        for record in (*records, cost_card(self.estimate, self.subject.bundle)):
            values |= plain(record)
        values |= {"notes": list(self.notes), "passed": not self.failures}
        return {**values, "failures": list(self.failures)}

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
