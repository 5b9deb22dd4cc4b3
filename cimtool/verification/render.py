"""The report as a document with its charts, and its files.

Every number of a chart is in a table beside it too. The checks are written as JUnit XML, which
build servers read as tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from cimtool.base.escapes import visible
from cimtool.base.files import REPORT_FILES, check_output, replace_texts, unwritable
from cimtool.base.modality_names import way_names
from cimtool.reference.measures import WAYS
from cimtool.report import charts
from cimtool.report.document import (
    Block,
    Document,
    FactList,
    Note,
    Picture,
    Section,
    Sentence,
    Tone,
    noted,
    notes,
)
from cimtool.report.formats import number
from cimtool.report.html import html
from cimtool.report.markdown import markdown
from cimtool.report.svg import percent_tick
from cimtool.verification import answers, tables
from cimtool.verification.bits import bit_sentences
from cimtool.verification.headline import DriftFindings
from cimtool.verification.report import Report
from cimtool.verification.sections import ReportSection
from cimtool.verification.sensitivity import Sensitivity
from cimtool.verification.worth_table import larger_gallery, worth_table

FEW_NOTES = 2
"""Notes that the first screen has after the warnings."""


def document(report: Report) -> Document:
    """The report: its verdict and notes, a card for each first question, then every finding."""
    # Bits that agree make no build good that is worse than what costs less.
    tone: Tone = "bad" if report.failures else ("good" if report.drift.worth.tone == "good" else "")
    others = [
        block
        for name, one in report.sections.items()
        for block in ReportSection.every()[name].blocks(one, report.subject.bundle)
    ]
    cards = [one for one in others if isinstance(one, Section) and one.span]
    bits = (*bit_sentences(report.checks.bits), answers.fidelity(report))
    return Document(
        report.subject.bundle,
        (
            *(Note(f"Failed: {text}", "verdict", "bad") for text in report.failures),
            *verdict_blocks(report),
            *([Sentence(answers.survival_sentence(report))] if report.drift.noisy else []),
            *noted(report.notes, len(report.warnings) + FEW_NOTES),
            *_cards(report),
            *cards,
            *_target(report),
            Section("Error budget", tuple(_budget(report)), "budget"),
            Section("Retrieval", tuple(_retrieval(report)), "retrieval"),
            *_probabilities(report),
            Section("Scores", tuple(_scores(report)), "pairs"),
            Section("Layers", tuple(_layers(report)), "layers"),
            Section("Sensitivity", tuple(_sensitivity(report)), "sensitivity"),
            Section("Saturation", tuple(_saturation(report)), "saturation"),
            Section("Checks", notes((*bits, *answers.limit_sentences(report))), "checks"),
            *(one for one in others if one not in cards),
            *_origin(report),
        ),
        report.to_json,
        Sentence(answers.verdict(report), "verdict", tone),
    )


def verdict_blocks(report: Report) -> tuple[Block, ...]:
    """The verdict, those of sections, and the figures that they rest on."""
    worth, kinds = report.drift.worth, ReportSection.every()
    measured = answers.measured_on(report)
    table = worth_table(worth, footnote=measured)
    return (
        Sentence(worth.sentence, "verdict", worth.tone),
        *(said for name, one in report.sections.items() for said in kinds[name].verdict(one)),
        *(table or (Sentence(measured, tone="soft"),)),
        *larger_gallery(worth),
    )


def _cards(report: Report) -> Iterator[Section]:
    """The first questions: whether it survives, whether it is worse, and why."""
    drift, cause, earlier = report.drift, report.headline, report.checks.earlier
    chart = Picture("survival", survival_chart(drift), "R@1 and its interval.")
    table = tables.survival_table(drift).named("survival")
    said = () if drift.noisy else (Sentence(answers.survival_sentence(report)),)
    yield Section("Does it survive?", (*said, table, chart), "survive", 6)
    if earlier is not None:
        first, *more = answers.earlier_sentences(report)
        compared = tables.earlier_table(earlier).named("earlier")
        blocks: tuple[Block, ...] = (Sentence(first, "verdict"), compared, *notes(more))
        yield Section("Is it worse than before?", blocks, "earlier", 6)
    step = "No step changes any score" if cause.cause is None else cause.cause
    against = ""
    if cause.cause_before is not None:
        far = f"its {drift.score}s are {number(cause.cause_centred_rmse)} (RMSE)"
        against = f": {far} from those of \u201c{cause.cause_before}\u201d"
    next_ = (Sentence(f"Next: {text}.") for text in report.causes.advice)
    blocks = (Sentence(f"{step}{against}", "verdict"), *next_)
    yield Section("What costs most?", blocks, "cause", 2)
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
    yield from notes((*report.headline.sentences, *drift.worth.notes))
    yield Picture("budget", budget_chart(drift), caption)
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
        yield Picture(f"recall_{way}", recall_chart(drift, way), expected, "detail")
    curves = [tables.curve_table(drift, way).named(f"recall_{way}", "detail") for way in ways]
    if curves:
        yield Section("R@1, R@5 and R@10 of larger and smaller galleries", tuple(curves))


def _probabilities(report: Report) -> Iterator[Section]:
    """The metrics of matching probabilities; nothing if the score is no logit."""
    drift = report.drift
    if not drift.reliability:
        return
    caption = (
        "On the dashed line as many pairs are right as predicted; right and wrong pairs of a query "
        "count half each."
    )
    yield Section(
        "Probabilities",
        (
            *map(Sentence, answers.calibration_sentences(report)),
            Picture("reliability", reliability_chart(drift), caption, "detail"),
            tables.probability_table(drift).named("probabilities"),
        ),
        "probabilities",
    )


def _scores(report: Report) -> Iterator[Block]:
    caption = "A sample of pairs; on the dashed line both scores are the same."
    yield Picture("pairs", pairs_chart(report.drift), caption, "detail")
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
    chart = sensitivity_chart(report.causes.sensitivity, report.drift.score)
    yield Picture("sensitivity", chart, caption, "detail")
    yield tables.sensitivity_table(report.causes).named("sensitivity", "detail")


def _saturation(report: Report) -> Iterator[Block]:
    yield from notes(answers.saturation_sentences(report))
    yield tables.domain_table(report.saturation).named("domains", "detail")
    stored = tables.stored_table(report.saturation).named("stored", "detail")
    yield Section("Stored values", (stored,))


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

    Earlier ones are replaced only once all new ones are written. Raises CimError if the folder
    cannot be written.
    """
    shown = document(report)
    texts = (report.json_text(), markdown(shown), html(shown))
    return replace_texts(folder, dict(zip(REPORT_FILES, texts, strict=True)), "the report")


def junit_text(report: Report) -> str:
    """The text of a JUnit file: a suite of the bundle's name, and a case a check."""
    checks = report.checks.all
    failed = sum(bool(check.failures) for check in checks)
    counts = {"tests": f"{len(checks)}", "failures": f"{failed}", "errors": "0"}
    root = ElementTree.Element("testsuites", {"name": "cimtool verify", **counts})
    suite = ElementTree.SubElement(
        root, "testsuite", {"name": visible(report.subject.bundle), **counts, "skipped": "0"}
    )
    for check in checks:
        place = {"classname": f"cimtool.verify.{check.kind}", "name": visible(check.name)}
        case = ElementTree.SubElement(suite, "testcase", place)
        for sentence in check.failures:
            ElementTree.SubElement(case, "failure", {"message": visible(sentence)})
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def remove_earlier(file: Path) -> None:
    """Remove the file of an earlier run, so that a build server reads none where this one fails.

    Raises CimError if no JUnit file can be written there.
    """
    check_output(file, ".xml")
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(file, error) from None


def write_junit(report: Report, file: Path) -> None:
    """Write the checks into a file, whose folder is made if missing.

    Raises CimError if it cannot be written.
    """
    replace_texts(file.parent, {file.name: junit_text(report)}, "the JUnit file")


MOST_PARTS = 12
"""Parts in the picture of the sensitivity, those that leave least error first."""


def survival_chart(drift: DriftFindings) -> str:
    """R@1 both ways of the reference, the surrogate, the compiled model and dies."""
    shown = [
        charts.Whisker(
            row.stage,
            tuple(row.with_interval(f"r1_{way}") for way in WAYS),
            row.stage == "compiled model",
        )
        for row in drift.survivors
    ]
    ways = list(way_names(drift.modalities).values())
    return charts.whiskers(shown, ways, "R@1 and its interval, stage by stage", percent_tick)


def budget_chart(drift: DriftFindings) -> str:
    """Centred mean square errors, which add where they are independent, up to the compiled model's.

    The rest closes the sum: errors of steps that add up, or cancel.
    """
    terms = [
        charts.Term(row.stage, step**2, number(step), row.stage == drift.headline.cause)
        for row in drift.compiled_rows
        if (step := row.get("step_centred_rmse")) is not None
    ]
    metrics = drift.final.metrics
    # From the float score where the reference is that.
    total = metrics.get("centred_rmse", metrics.get("float_centred_rmse", 0.0)) ** 2
    rest = total - sum(term.amount for term in terms)
    if abs(rest) > 1e-3 * max(total, *(term.amount for term in terms)):
        name = "steps that err alike" if rest > 0 else "steps that cancel"
        terms.append(charts.Term(name, rest, f"{rest:+.1g}"))
    last = charts.Term("compiled model", total, number(math.sqrt(total)), True)
    label = f"Mean square {drift.score} error of each step, up to {last.text} centred RMSE in all"
    return charts.waterfall(terms, last, label, f"mean square {drift.score} error")


def pairs_chart(drift: DriftFindings) -> str:
    """Compiled scores of a sample of pairs against the reference's."""
    pairs = drift.pairs
    both = list(zip(pairs.reference, pairs.compiled, pairs.right, strict=True))
    groups = [
        charts.Points(name, [(x, y) for x, y, right in both if right == kind])
        for name, kind in (("right pairs", True), ("wrong pairs", False))
    ]
    of = drift.reference
    label = f"Compiled {drift.score} of {len(both)} pairs against that of {of}"
    return charts.scatter(groups, f"{drift.score}, {of}", f"{drift.score}, compiled", label)


def reliability_chart(drift: DriftFindings) -> str:
    """Observed against predicted probability of the reference, -ed, float and compiled score."""
    groups = [
        charts.Points(
            "compiled model" if one.stage == drift.final.stage else one.stage,
            list(zip(one.predicted, one.observed, strict=True)),
        )
        for one in drift.reliability
    ]
    label = "Observed against predicted probability"
    return charts.scatter(groups, "predicted probability", "observed share of right pairs", label)


def recall_chart(drift: DriftFindings, way: str) -> str:
    """R@1 of reference, float score and compiled model against the size of the gallery."""
    found = [one for one in drift.curves if one.way == way and one.k == 1]
    lines = [
        charts.Points(
            "compiled model" if one.stage == drift.final.stage else one.stage,
            list(zip(one.sizes, one.recall, strict=True)),
        )
        for one in found
    ]
    said = way_names(drift.modalities)[way]
    label = f"R@1 {said} against the size of the gallery"
    return charts.curves(lines, "items in the gallery", f"R@1, {said}", label)


def sensitivity_chart(found: Sensitivity, score: str) -> str:
    """The error of each part alone, and how much goes where it is left in real numbers."""
    parts = sorted(found.parts, key=lambda part: part.left_float_centred_rmse)[:MOST_PARTS]
    rows = [
        (part.part, (part.alone_centred_rmse, found.centred_rmse - part.left_float_centred_rmse))
        for part in parts
    ]
    label = f"Centred RMSE of the {score} by part: {found.costliest} is the costliest"
    return charts.bars(rows, ("alone in integers", "goes when left float"), label, number)
