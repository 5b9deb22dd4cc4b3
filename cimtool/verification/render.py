"""The report as a document, and its files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cimtool.base.files import REPORT_FILES, replace_texts
from cimtool.report.document import (
    Block,
    Document,
    FactList,
    Note,
    Picture,
    Section,
    Sentence,
    Tone,
    notes,
)
from cimtool.report.formats import number
from cimtool.report.html import html
from cimtool.report.markdown import markdown
from cimtool.verification import answers, pictures, tables
from cimtool.verification.bits import bit_sentences
from cimtool.verification.report import Report
from cimtool.verification.sections import ReportSection

FIRST = 2
"""Sentences of the headline that stand before all tables; the others are with the error budget."""


def document(report: Report) -> Document:
    """The report: its verdict and notes, a card for each first question, then every finding."""
    tone: Tone = "bad" if report.failures else "good"
    found = report.sections.items()
    others = [
        block
        for name, one in found
        for block in ReportSection.every()[name].blocks(one, report.subject.bundle)
    ]
    cards = [one for one in others if isinstance(one, Section) and one.span]
    return Document(
        report.subject.bundle,
        (
            *(Note(f"Failed: {text}", "verdict", "bad") for text in report.failures),
            Sentence(answers.survival_sentence(report), "verdict"),
            Sentence(answers.measured_on(report), tone="soft"),
            *map(Sentence, report.headline.sentences[:FIRST]),
            *notes(report.notes),
            *_cards(report),
            *cards,
            *_target(report),
            Section("Error budget", tuple(_budget(report)), "budget"),
            Section("Retrieval", tuple(_retrieval(report)), "retrieval"),
            Section("Scores", tuple(_scores(report)), "pairs"),
            Section("Layers", tuple(_layers(report)), "layers"),
            Section("Sensitivity", tuple(_sensitivity(report)), "sensitivity"),
            Section("Saturation", tuple(_saturation(report)), "saturation"),
            Section("Checks", tuple(_checks(report)), "checks"),
            *(one for one in others if one not in cards),
            *_origin(report),
        ),
        report.to_json,
        Sentence(answers.verdict(report), "verdict", tone),
    )


def _cards(report: Report) -> Iterator[Section]:
    """The first questions: whether it survives, whether it is worse, and why."""
    drift, cause, earlier = report.drift, report.headline, report.checks.earlier
    chart = Picture("survival", pictures.survival_chart(drift), "R@1 and its interval.")
    table = tables.survival_table(drift).named("survival")
    yield Section("Does it survive?", (table, chart), "survive", 6)
    if earlier is not None:
        said, *more = answers.earlier_sentences(report)
        compared = tables.earlier_table(earlier).named("earlier")
        blocks: tuple[Block, ...] = (Sentence(said, "verdict"), compared, *notes(more))
        yield Section("Is it worse than before?", blocks, "earlier", 6)
    step = "No step changes any score" if cause.cause is None else cause.cause
    against = ""
    if cause.cause_before is not None:
        rmse = f"{number(cause.cause_centred_rmse)} centred {drift.score} RMSE"
        against = f": {rmse} against \u201c{cause.cause_before}\u201d"
    next_ = (Sentence(f"Next: {text}.") for text in report.causes.advice)
    blocks = (Sentence(f"{step}{against}", "verdict"), *next_)
    yield Section("What costs most, what to change?", blocks, "cause", 2)
    others = (answers.noisiest_sentence(report), answers.clipped_sentence(report))
    blocks = (Sentence(answers.clipping_sentence(report)), *notes(others, "detail"))
    yield Section("Where do converters clip?", blocks, "clipping", 2)


def _target(report: Report) -> Iterator[Section]:
    """Cards on the target: effects that it does not model, and the standing of its figures."""
    none = (Sentence("The target names nothing."),)
    unmodelled = notes(answers.unmodelled(report))
    yield Section("What is not modelled?", unmodelled or none, "unmodelled", 2)
    by_status = []
    for status in answers.STATUSES:
        own = [one.quantity for one in report.target.figures if one.status == status]
        names = ", ".join(dict.fromkeys(own)) or "-"
        by_status.append((f"{len(dict.fromkeys(own))} {status}", names))
    meanings = "; ".join(f"{status}: {said}" for status, said in answers.STATUSES.items())
    blocks: tuple[Block, ...] = (FactList(tuple(by_status), "detail"),)
    if report.target.figures:
        values = tables.target_table(report.target.figures).named("target", "detail")
        said = Sentence(f"{meanings}.", "detail")
        blocks = (*blocks, Section("Values and sources", (values, said)))
    yield Section("How sure are the figures?", blocks, "figures", 2)


def _budget(report: Report) -> Iterator[Block]:
    drift = report.drift
    caption = (
        "Each bar is a step's mean square error within a query, its centred RMSE beside it, up to "
        f"the compiled model's from {drift.reference}. Squares of independent errors add, RMSEs do "
        "not; what is left of the total is drawn apart, as a square."
    )
    yield from notes(report.headline.sentences[FIRST:])
    yield Picture("budget", pictures.budget_chart(drift), caption)
    floor = answers.floor_sentence(report)
    yield from [Section("Monte Carlo as a measure", (Sentence(floor, "detail"),))] if floor else []
    yield tables.drift_table(drift).named("drift")


def _retrieval(report: Report) -> Iterator[Block]:
    drift = report.drift
    yield tables.retrieval_table(drift).named("retrieval", "detail")
    if drift.margins:
        margins = tables.margin_table(drift).named("margins", "detail")
        said = notes(answers.margin_sentences(report), "detail")
        yield Section("Is a rank real?", (margins, *said))
    ways = list(dict.fromkeys(one.way for one in drift.curves))
    expected = "Expected over galleries drawn from this one, the right item among them."
    for way in ways:
        yield Picture(f"recall_{way}", pictures.recall_chart(drift, way), expected, "detail")
    curves = [tables.curve_table(drift, way).named(f"recall_{way}", "detail") for way in ways]
    if curves:
        yield Section("R@1, R@5 and R@10 of larger and smaller galleries", tuple(curves))


def _scores(report: Report) -> Iterator[Block]:
    caption = "A sample of pairs; on the dashed line both scores are the same."
    yield Picture("pairs", pictures.pairs_chart(report.drift), caption, "detail")
    yield FactList(tuple(answers.pair_facts(report)), "detail")


def _layers(report: Report) -> Iterator[Block]:
    yield tables.crossbar_layer_table(report.causes).named("layers", "detail")
    slices = tables.column_table(report.causes).named("columns", "detail")
    yield Section("Every slice in numbers", (slices,))


def _sensitivity(report: Report) -> Iterator[Block]:
    caption = (
        "Centred RMSE from the lowered model with only this part in integers, and how much of the "
        "compiled model's goes where only this part is left in real numbers; the costliest first."
    )
    chart = pictures.sensitivity_chart(report.causes.sensitivity, report.drift.score)
    yield Picture("sensitivity", chart, caption, "detail")
    yield tables.sensitivity_table(report.causes).named("sensitivity", "detail")


def _saturation(report: Report) -> Iterator[Block]:
    yield from notes(answers.domain_sentences(report))
    yield tables.domain_table(report.saturation).named("domains", "detail")
    stored = tables.stored_table(report.saturation).named("stored", "detail")
    yield Section("Stored values", (stored,))


def _checks(report: Report) -> Iterator[Block]:
    yield from notes([*bit_sentences(report.checks.bits), answers.fidelity(report)])
    yield from notes(answers.limit_sentences(report))


def _origin(report: Report) -> Iterator[Section]:
    """The settings, and where the bundle comes from."""
    subject = report.subject
    origin = subject.provenance
    settings = [(k, answers.setting_text(v)) for k, v in subject.settings.items() if v != []]
    yield Section("Settings", (FactList(tuple(settings), "detail", many=True),), "settings")
    facts = [
        ("model", subject.model),
        ("target", f"{subject.target} ({subject.fidelity})"),
        ("compiled with", f"cimtool {origin['cimtool_version']}"),
        ("verified with", f"cimtool {origin['verified_with']}, seed {subject.seed}"),
        *((one["file"], one["sha256"]) for one in origin["inputs"]),
    ]
    files = Section("Files of the bundle", (FactList(tuple(origin["files"].items()), "detail"),))
    said = notes(origin["notes"], "detail")
    compiled = (Section("What the compiler said", said),) if said else ()
    yield Section("Provenance", (FactList(tuple(facts), "detail"), files, *compiled), "provenance")


def write_report(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write `report.json`, `report.md` and `report.html` into `folder`, which is made if missing.

    Earlier ones are replaced only once all new ones are written. Raises CimError where the folder
    cannot be written.
    """
    shown = document(report)
    texts = (report.json_text(), markdown(shown), html(shown))
    return replace_texts(folder, dict(zip(REPORT_FILES, texts, strict=True)), "the report")
