"""Several bundles on the same data, side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cimtool.base.errors import CimError
from cimtool.base.modality_names import way_names
from cimtool.base.progress import Say, prefixed, silent
from cimtool.bundle.bundle import Bundle
from cimtool.ir.heads import Head
from cimtool.loading.calibration_rows import without_seen
from cimtool.loading.embeddings import Embeddings
from cimtool.reference.metrics import RAW
from cimtool.reference.queries import led
from cimtool.report.document import Document, Note, Sentence
from cimtool.report.formats import four_digits, number, numbered, percent
from cimtool.report.result import Result
from cimtool.report.table import Column, Content, Table, interval_cell, make_table
from cimtool.verification.answers import setting_text, trained_clause
from cimtool.verification.notes import NOT_CHECKED, baseline_sentences
from cimtool.verification.options import DriftOptions
from cimtool.verification.references import References
from cimtool.verification.render import verdict_blocks
from cimtool.verification.report import Report
from cimtool.verification.report_format import FORMAT_VERSION
from cimtool.verification.run import verify_bundle
from cimtool.verification.sections import ReportSection
from cimtool.verification.worth_table import worth_table


@dataclass(frozen=True, repr=False)
class BundleComparison(Result):
    """Reports of several bundles on the same data, in the order given; `scores` are in words."""

    reports: tuple[Report, ...]
    scores: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The bundles' names, numbered where two are the same."""
        return numbered([report.subject.bundle for report in self.reports])

    @property
    def differing(self) -> dict[str, tuple[str, ...]]:
        """Model, score, reference, target and settings that are not the same in all, by name."""
        values = [_decided(*one) for one in zip(self.reports, self.scores, strict=True)]
        keys = dict.fromkeys(key for one in values for key in one)
        rows = {key: tuple(one.get(key, "-") for one in values) for key in keys}
        return {key: row for key, row in rows.items() if len(set(row)) > 1}

    def document(self) -> Document:
        """Each bundle's verdict, the warnings, a table with a column a bundle, and all notes."""
        each = list(zip(self.names, self.reports, strict=True))
        verdicts, others = [], []
        for name, report in each:
            first, *more = (one for one in verdict_blocks(report) if isinstance(one, Sentence))
            verdicts.append((name, first))
            others += [(name, Note(one.text, "shown", one.tone)) for one in more]
        urgent = [(name, Note(text, "verdict")) for name, text in _first(self)]
        figures = [
            replace(table, title=name, name="", level="shown")
            for name, report in each
            for table in worth_table(report.drift.worth)
        ]
        shown = [(name, Note(n)) for name, one in each for n in one.notes[len(one.warnings) :]]
        return Document(
            " and ".join(self.names),
            (
                *_of_bundles(verdicts),
                *_of_bundles(urgent),
                comparison_table(self).named("bundles", "verdict"),
                *figures,
                *_of_bundles(others),
                *_of_bundles(shown),
                Note(_reference(self), "detail"),
                *_of_bundles(
                    (name, Note(f"not modelled: {text}", "detail"))
                    for name, report in each
                    for text in report.target.unmodelled
                ),
            ),
            self.to_json,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values: what differs, each bundle's whole report, and the notes of any."""
        every = dict.fromkeys(note for report in self.reports for note in report.all_notes)
        return {
            "format_version": FORMAT_VERSION,
            "bundles": list(self.names),
            "differing": {key: list(row) for key, row in self.differing.items()},
            "reports": [report.to_json() for report in self.reports],
            "notes": list(every),
        }


def compare_bundles(
    bundles: Sequence[Bundle],
    data: Sequence[Embeddings] | Embeddings,
    references: References | None = None,
    options: DriftOptions | None = None,
    say: Say = silent,
) -> BundleComparison:
    """Verify each bundle on the same data; references are computed once for equal trained models.

    `data` is what every bundle takes, or one a bundle where their widths or norms differ. Raises
    VerificationFailed (a CheckFailed) where a bit differs, CimError for fewer than two bundles.
    """
    if len(bundles) < 2:
        raise CimError(f"compare: {len(bundles)} bundle is given; expected at least two")
    options, references = options or DriftOptions(), references or References()
    each = [data] * len(bundles) if isinstance(data, Embeddings) else data
    if options.calibration_rows == "drop":
        each = without_seen([one.calibration for one in bundles], each, *(b.name for b in bundles))
    reports = tuple(
        verify_bundle(bundle, rows, references, options, say=prefixed(say, bundle.name))
        for bundle, rows in zip(bundles, each, strict=True)
    )
    return BundleComparison(reports, described([bundle.model.head for bundle in bundles]))


def described(heads: Sequence[Head]) -> tuple[str, ...]:
    """Each score in words, with a digest where they differ in their coefficients alone."""
    found = []
    for head in heads:
        alike = [one for one in heads if one.described == head.described and one != head]
        digest = hashlib.sha256(repr(head).encode()).hexdigest()[:8]
        found.append(f"{head.described} ({digest})" if alike else head.described)
    return tuple(found)


def _decided(report: Report, score: str) -> dict[str, str]:
    subject = report.subject
    values = {"model": subject.model, "score": score, "errors from": report.drift.reference}
    values["target"] = subject.target
    return {name: setting_text(value) for name, value in {**values, **subject.settings}.items()}


def comparison_table(found: BundleComparison) -> Table:
    """Settings that differ, the steps, and the metrics, a column a bundle.

    Rows of raw embeddings stand below the metric that leads, where their widths agree.
    """
    columns = [Column("figure"), *(Column(name, number) for name in found.names)]
    settings = [(key, *row) for key, row in found.differing.items()]
    metrics = _by_label([_metrics(report) for report in found.reports])
    figures = _by_label([_of_sections(report) for report in found.reports])
    rows = [*settings, *_steps(found), *metrics, *figures]
    drift = found.reports[0].drift
    lead, ways = led(drift.by_class)[0], way_names(drift.modalities).values()
    told = {key for key, *_ in settings} | {"centred RMSE"} | set(map(lead.labelled, ways))
    told |= {str(label) for label, *_ in figures}
    made = make_table("Bundles side by side", columns, rows)
    return made.keeping(row[0] in told for row in rows)


TableRows = list[Sequence[Content]]


def _by_label(each: Sequence[Mapping[str, Content]]) -> TableRows:
    """A row a label of the longest of `each`."""
    return [(label, *(one.get(label) for one in each)) for label in max(each, key=len)]


def _steps(found: BundleComparison) -> TableRows:
    """Centred RMSE that each step adds, from the float score on."""
    surrogates = " or ".join(dict.fromkeys(report.drift.surrogate for report in found.reports))
    each: list[Mapping[str, Content]] = []
    for report in found.reports:
        trained, *others = report.drift.compiled_rows
        steps = {f"step: {row.stage}": row.get("step_centred_rmse") for row in others}
        each.append({f"step: {surrogates}": trained.get("step_centred_rmse"), **steps})
    return _by_label(each)


def _metrics(report: Report) -> dict[str, Content]:
    """The compiled model's drift and retrieval with intervals; shares in percent."""
    row, shares = report.drift.final, led(report.drift.by_class)
    raw = next((one for one in report.drift.rows if one.stage == RAW), None)
    found: dict[str, Content] = {
        label: interval_cell(row.with_interval(name), number)
        for label, name in (
            ("centred RMSE", "centred_rmse"),
            ("centred vs float", "float_centred_rmse"),
            ("RMSE", "logit_rmse"),
        )
    }
    agreement = {"% of float spread": report.headline.float_relative_centred_rmse}
    agreement["top-1 % vs float"] = report.headline.float_top1
    found |= {name: None if one is None else percent(one) for name, one in agreement.items()}
    for metric in shares:
        label = f"{metric.label} loss{', points' * metric.share}"
        form = percent if metric.share else four_digits
        found[label] = interval_cell(row.losses.get(metric.loss), form)
    ways = way_names(report.drift.modalities)
    for metric in shares:
        for way, key in metric.keys.items():
            label = metric.labelled(ways[way])
            form = percent if metric.share else four_digits
            found[label] = interval_cell(row.with_interval(key), form)
            if raw is not None and metric is shares[0]:
                found[f"{RAW}: {label}"] = interval_cell(raw.with_interval(key), form)
    return found


def _of_bundles(said: Iterable[tuple[str, Sentence]]) -> list[Sentence]:
    """Each sentence once, after the names of the bundles that it is of."""
    names: dict[Sentence, list[str]] = {}
    for name, one in said:
        names.setdefault(one, []).append(name)
    return [replace(one, text=f"{', '.join(of)}: {one.text}") for one, of in names.items()]


def _of_sections(report: Report) -> dict[str, Content]:
    """The rows of its sections."""
    kinds = ReportSection.every()
    rows = (kinds[name].compared(one) for name, one in report.sections.items())
    return {label: cell for row in rows for label, cell in row.items()}


def _first(found: BundleComparison) -> list[tuple[str, str]]:
    """Sentences that a reader must see before any figure, each with its bundle."""
    said = []
    for name, report in zip(found.names, found.reports, strict=True):
        sentences = report.headline.sentences
        own = [*report.warnings, *baseline_sentences(report.drift.baselines)]
        own += trained_clause(report)
        own += [NOT_CHECKED] * (NOT_CHECKED in sentences)
        said += [(name, text) for text in dict.fromkeys(own)]
    return said


def _reference(found: BundleComparison) -> str:
    names = {report.drift.reference for report in found.reports}
    return f"RMSE, centred RMSE and losses are against {' or '.join(sorted(names))}."
