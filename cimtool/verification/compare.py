"""Several bundles on the same data, side by side."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from cimtool.base.errors import CimError
from cimtool.base.progress import Say, silent
from cimtool.bundle.bundle import Bundle
from cimtool.loading.embeddings import Embeddings
from cimtool.verification.columns import number, percent
from cimtool.verification.references import References
from cimtool.verification.render import WIDTH
from cimtool.verification.report import FORMAT_VERSION, Report, VerificationFailed
from cimtool.verification.run import measure
from cimtool.verification.sentences import setting_text


@dataclass(frozen=True)
class Comparison:
    """Reports of several bundles on the same data, in the order given."""

    reports: tuple[Report, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The bundles' names, numbered where two are the same."""
        names = [report.bundle for report in self.reports]
        return tuple(
            name if names.count(name) == 1 else f"{name} ({names[: i + 1].count(name)})"
            for i, name in enumerate(names)
        )

    @property
    def differing(self) -> dict[str, tuple[str, ...]]:
        """Model, target and settings that are not the same in all bundles, by name."""
        values = [_decided(report) for report in self.reports]
        keys = dict.fromkeys(key for one in values for key in one)
        rows = {key: tuple(one.get(key, "-") for one in values) for key in keys}
        return {key: row for key, row in rows.items() if len(set(row)) > 1}

    def to_json(self) -> dict[str, Any]:
        """Plain values: what differs, and each bundle's whole report."""
        return {
            "format_version": FORMAT_VERSION,
            "bundles": list(self.names),
            "differing": {key: list(row) for key, row in self.differing.items()},
            "reports": [report.to_json() for report in self.reports],
        }


def compare_bundles(
    bundles: Sequence[Bundle],
    data: Sequence[Embeddings] | Embeddings,
    references: References | None = None,
    say: Say = silent,
    seen_rows: bool = False,
) -> Comparison:
    """Verify each bundle on the same data; references are computed once for equal trained models.

    `data` is what every bundle takes, or one a bundle where their widths or norms differ. Raises
    VerificationFailed (a CheckFailed) where a bit differs, CimError for fewer than two bundles.
    """
    if len(bundles) < 2:
        raise CimError(f"compare: {len(bundles)} bundle is given; expected at least two")
    references = references or References()
    each = [data] * len(bundles) if isinstance(data, Embeddings) else data
    reports = []
    for bundle, rows in zip(bundles, each, strict=True):
        report = measure(bundle, rows, references, {}, _prefixed(say, bundle.name), None, seen_rows)
        if report.failed:
            raise VerificationFailed(report)
        reports.append(report)
    return Comparison(tuple(reports))


def _prefixed(say: Say, name: str) -> Say:
    return lambda text: say(f"{name}: {text}")


def _decided(report: Report) -> dict[str, str]:
    values = {"model": report.model, "score": report.surrogate, "target": report.target}
    values |= report.settings
    return {name: setting_text(value) for name, value in values.items()}


def comparison_table(found: Comparison, width: int = WIDTH) -> str:
    """The comparison for a terminal, plain text: a column a bundle."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None, highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=0)
    table.add_column("", no_wrap=True)
    for name in found.names:
        table.add_column(name, justify="right", overflow="fold")
    for section in (_settings(found), _steps(found), _results(found)):
        for label, cells in section:
            table.add_row(label, *cells)
        table.add_section()
    console.print(table)
    for sentence in dict.fromkeys(_notes(found)):
        console.print(sentence, markup=False)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


Lines = list[tuple[str, list[str]]]


def _settings(found: Comparison) -> Lines:
    return [(key, list(row)) for key, row in found.differing.items()]


def _steps(found: Comparison) -> Lines:
    """RMSE that each step adds, from the float score on."""
    surrogates = " or ".join(dict.fromkeys(report.surrogate for report in found.reports))
    each = [
        {surrogates if row.stage == report.surrogate else row.stage: row.step_rmse for row in rows}
        for report in found.reports
        if (rows := report.compiled_rows)
    ]
    longest = max(each, key=lambda one: len(one))
    return [(f"step: {name}", [number(one.get(name)) for one in each]) for name in longest]


RESULTS: tuple[tuple[str, Callable[[Report], str]], ...] = (
    ("RMSE", lambda r: number(r.metrics["logit_rmse"])),
    ("RMSE vs float", lambda r: number(r.headline.compiled_rmse)),
    ("% of float spread", lambda r: percent(r.headline.relative_rmse)),
    ("top-1 % vs float", lambda r: percent(r.headline.top1_agreement)),
    ("R@1 loss, points", lambda r: percent(r.metrics["r1_loss"])),
    ("R@5 loss, points", lambda r: percent(r.metrics["r5_loss"])),
    ("R@10 loss, points", lambda r: percent(r.metrics["r10_loss"])),
)


def _results(found: Comparison) -> Lines:
    lines = [(label, [cell(report) for report in found.reports]) for label, cell in RESULTS]
    for label, way in (
        ("R@1 text to video", "text_to_video"),
        ("R@1 video to text", "video_to_text"),
    ):
        cells = [
            percent(getattr(report.final.retrieval, way).r1) if report.final.retrieval else "-"
            for report in found.reports
        ]
        lines.append((label, cells))
    return lines


def _notes(found: Comparison) -> list[str]:
    names = {report.reference.name for report in found.reports}
    notes = [f"RMSE and losses are against {' or '.join(sorted(names))}."]
    for name, report in zip(found.names, found.reports, strict=True):
        notes += [f"{name}: {note}" for note in report.notes]
    return notes
