"""The report: everything that `verify` found, as plain values, and its files beside the bundle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter

import cimtool.verification.bounds  # noqa: F401, a section of every schema
from cimtool import __version__
from cimtool.base.errors import CheckFailed
from cimtool.base.json_files import six_digits
from cimtool.bundle.bundle import Bundle
from cimtool.hardware.target import Target
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.provenance import TrainedRows
from cimtool.reference.limits import DriftLimit, limit_changes
from cimtool.report.result import Result
from cimtool.verification.bits import BitCount
from cimtool.verification.drift import StageRow
from cimtool.verification.headline import DriftFindings, Headline
from cimtool.verification.paired import Comparison, Verdict
from cimtool.verification.report_format import FORMAT_VERSION
from cimtool.verification.saturation import Saturation
from cimtool.verification.sections import section_values, sections_schema
from cimtool.verification.sensitivity import Causes
from cimtool.verification.stages import FiniteCount
from cimtool.verification.worth import Standing

DIALECT = "https://json-schema.org/draft/2020-12/schema"

NUMBER = {"type": ["number", "null"]}
"""A number at 6 significant digits; null where it is not finite or not known."""

DERIVED: dict[str, dict[str, Any]] = {
    "Change": {"is_real": {"type": "boolean"}},
    "DriftLimit": {"kept": {"type": "boolean"}},
    "PairedFigure": {
        "verdict": {"enum": list(get_args(Verdict))},
        "failed": {"type": "boolean"},
        "detectable": NUMBER,
    },
    "SampledAlike": {
        "standing": {"enum": list(get_args(Standing))},
        "standing_whole": {"enum": list(get_args(Standing))},
    },
    "Worth": {
        "gain": {"anyOf": [{"$ref": "#/$defs/Change"}, {"type": "null"}]},
        "sentence": {"type": "string"},
        "tone": {"enum": ["", "good", "bad"]},
    },
}
"""Properties that the JSON has beside a class's own fields."""


@dataclass(frozen=True)
class DataCard:
    """The data that was measured on; `trained` counts rows that the model was trained on.

    It is None if the model's checkpoint keeps no provenance. `digest` is the SHA-256 of the rows
    as the model takes them, and of what is right for each.
    """

    file: str
    digest: str
    texts: int
    videos: int
    labelled: bool
    trained: TrainedRows | None


@dataclass(frozen=True)
class VerifiedBundle:
    """A bundle, its target and settings, where they come from, the data, and the seed of all draws.

    `fidelity` is the target's class.
    """

    bundle: str
    model: str
    target: str
    fidelity: str
    data: DataCard
    seed: int
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any] = field(repr=False)


def verified_bundle(bundle: Bundle, data: Embeddings, seed: int) -> VerifiedBundle:
    """Name what is verified."""
    known = bundle.training
    trained = None if known is None else known.trained_rows(data.text, data.video)
    sizes = (len(data.text), len(data.video))
    card = DataCard(data.file, data.digest, *sizes, data.labels is not None, trained)
    manifest = ("cimtool_version", "inputs", "files", "notes")
    origin = {"verified_with": __version__} | {name: bundle.manifest[name] for name in manifest}
    return VerifiedBundle(
        bundle=bundle.name,
        model=bundle.model.name,
        target=bundle.target.name,
        fidelity=bundle.target.class_,
        data=card,
        seed=seed,
        settings=bundle.settings.to_json(),
        provenance=origin,
    )


@dataclass(frozen=True)
class Check:
    """One thing that is checked, what kind of thing it is, and a sentence for each failure."""

    kind: str
    name: str
    failures: tuple[str, ...]


@dataclass(frozen=True)
class Checks:
    """The values that differ between implementations, those not finite, and limits on `metrics`.

    `reference_faults` are those of the float score where it is what limits are held against;
    `earlier` is an earlier run beside this one, None if none was given.
    """

    bits: tuple[BitCount, ...] = field(repr=False)
    float_file: FiniteCount
    metrics: Mapping[str, float]
    limits: tuple[DriftLimit, ...]
    reference_faults: tuple[str, ...]
    earlier: Comparison | None = None

    @property
    def all(self) -> tuple[Check, ...]:
        """Every check, in the order in which failures are told."""
        found = [
            Check("bits", f"{one.output}, {one.implementation}", one.failures) for one in self.bits
        ]
        found.append(Check("finite", self.float_file.file, self.float_file.failures))
        for limit in self.limits:
            over = () if limit.kept else (limit.sentence(),)
            found.append(Check("limit", f"{limit.metric} at most {limit.limit:g}", over))
        if self.limits:
            found.append(Check("limit", "reference of the limits", self.reference_faults))
        if self.earlier is not None:
            found += [
                Check("baseline", f"{one.label}, worse by at most {one.tolerance:g}", failures)
                for one, failures in self.earlier.decisive
            ]
        return tuple(found)

    @property
    def failures(self) -> tuple[str, ...]:
        """One sentence for each check that did not hold."""
        return tuple(sentence for check in self.all for sentence in check.failures)


def make_checks(
    bits: tuple[BitCount, ...],
    float_file: FiniteCount,
    compiled: StageRow,
    limits: Mapping[str, float],
    reference_faults: tuple[str, ...] = (),
    earlier: Comparison | None = None,
) -> Checks:
    """Hold the row of the compiled model against limits.

    Losses are from the reference's row, the float score's where no other reference is known: with
    `reference_faults` of that none is kept.
    """
    found = limit_changes(compiled.metrics, compiled.intervals, compiled.losses)
    held = tuple(
        DriftLimit(metric, limit, found[metric].value, found[metric].interval, not reference_faults)
        for metric, limit in limits.items()
    )
    values = {name: one.value for name, one in found.items()}
    return Checks(bits, float_file, values, held, reference_faults, earlier)


@dataclass(frozen=True)
class TargetFigure:
    """A figure of the target, and how sure it is."""

    quantity: str
    value: float
    unit: str
    scope: str
    status: str
    source: str


@dataclass(frozen=True)
class TargetCard:
    """The figures of a target, and in its own words the effects that it does not model."""

    unmodelled: tuple[str, ...]
    figures: tuple[TargetFigure, ...] = field(repr=False)


def target_card(target: Target) -> TargetCard:
    """Describe a target."""
    names = [field.name for field in fields(TargetFigure)]
    figures = (TargetFigure(*(getattr(f, name) for name in names)) for f in target.figures)
    return TargetCard(target.unmodelled, tuple(figures))


RECORDS = (VerifiedBundle, DriftFindings, Checks, Saturation, Causes, TargetCard)
"""The records whose fields make the JSON of a report, beside its sections and notes."""


@dataclass(frozen=True, repr=False, kw_only=True)
class Report(Result, shown_by="cimtool.verification.render"):
    """The findings on one bundle; `notes` are sentences a reader should see, `warnings` of them.

    `sections` are what others found, by names of `ReportSection`.
    """

    subject: VerifiedBundle
    drift: DriftFindings
    checks: Checks
    saturation: Saturation
    causes: Causes
    target: TargetCard
    sections: Mapping[str, Any]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def headline(self) -> Headline:
        """The compiled model's drift in figures and sentences."""
        return self.drift.headline

    @property
    def failures(self) -> tuple[str, ...]:
        """One sentence for each check that did not hold."""
        return self.checks.failures

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes, and a sentence on each effect that the target does not model."""
        return (*self.notes, *(f"not modelled: {text}" for text in self.target.unmodelled))

    def to_json(self) -> dict[str, Any]:
        """Plain values, numbers at 6 significant digits, infinities and unknowns as None."""
        records = (self.subject, self.drift, self.checks, self.saturation, self.causes, self.target)
        values: dict[str, Any] = {"format_version": FORMAT_VERSION}
        for record in records:
            values |= json_values(record)
        return values | {
            "sections": json_values(section_values(self.sections)),
            "notes": list(self.all_notes),
            "passed": not self.failures,
            "failures": list(self.failures),
        }

    def json_text(self) -> str:
        """The text of `report.json`: the same findings, the same bytes."""
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"


class VerificationFailed(CheckFailed):
    """A bit differed or a metric was over its limit; `report` holds all that was found."""

    def __init__(self, report: Report):
        super().__init__("; ".join(report.failures))
        self.report = report


def json_values(value: Any) -> Any:
    """Dataclasses and containers as JSON's types, floats six_digits, without what is derived."""
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value).__name__
        names = [*(field.name for field in fields(value)), *DERIVED.get(kind, ())]
        return {name: json_values(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): json_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_values(inner) for inner in value]
    if isinstance(value, float):
        return six_digits(value)
    return value


def report_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) of what `Report.to_json` gives."""
    hints = [hint for record in RECORDS for hint in get_type_hints(record).items()]
    texts = tuple[str, ...]
    ends = [("sections", dict[str, Any]), ("notes", texts), ("passed", bool), ("failures", texts)]
    fields = [("format_version", int), *hints, *ends]
    flat = make_dataclass("Flat", fields, namespace={"__doc__": Report.__doc__})
    found = TypeAdapter(flat).json_schema(mode="serialization")
    found["properties"]["format_version"] = {"const": FORMAT_VERSION}
    del found["properties"]["sections"]
    definitions = found.pop("$defs")
    for name, more in DERIVED.items():
        definitions[name]["properties"] |= more
        definitions[name]["required"] += more
    body = _plain({**found, "$defs": definitions})
    body["properties"]["sections"] = sections_schema()
    return {"$schema": DIALECT, "title": "cimtool report", **body}


def schema_text() -> str:
    """The text of `docs/report.schema.json`."""
    return json.dumps(report_schema(), indent=1) + "\n"


def _plain(node: Any) -> Any:
    """A part of the schema with numbers that may be null, nothing unnamed, and no titles."""
    if isinstance(node, list):
        return [_plain(one) for one in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "number":
        return NUMBER
    if "anyOf" in node and {"type": "number"} in node["anyOf"]:
        return NUMBER
    kept = {name: one for name, one in node.items() if name not in ("title", "default")}
    if "properties" not in node:
        return {name: _plain(one) for name, one in kept.items()}
    kept["properties"] = {name: _plain(one) for name, one in node["properties"].items()}
    return {name: one if name == "properties" else _plain(one) for name, one in kept.items()} | {
        "additionalProperties": False
    }
