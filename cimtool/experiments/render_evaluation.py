"""An evaluation for a reader: table, sentences, a picture."""

from __future__ import annotations

from dataclasses import replace

from cimtool.base.intervals import Change
from cimtool.base.modality_names import sizes_text, way_names
from cimtool.experiments.evaluate import Evaluation, Score
from cimtool.reference.measures import WAYS
from cimtool.reference.queries import RANKINGS_BY_KEY, led
from cimtool.report.charts import Whisker, whiskers
from cimtool.report.document import Document, Note, Picture, Sentence, notes
from cimtool.report.formats import number
from cimtool.report.svg import percent_tick
from cimtool.report.table import Cell, Column, Content, Table, make_table

ERRORS = {"centred_rmse": "centred logit RMSE", "logit_rmse": "logit RMSE"}
"""Metrics of a score's error, for subjects with an exact score."""

SIDE_BY_SIDE = 3
"""Up to this many subjects are columns; more are rows, with the leading metrics only."""


def evaluation_table(found: Evaluation) -> Table:
    """Metrics and intervals of each subject, and the difference of the later ones to the first.

    Up to three subjects are columns of all metrics; more are rows, with R@1 and R@10 (mAP and
    nDCG@10 if classes are known), and if a score is a logit with selective retrieval and the
    figures of its probability.
    """
    return (_columns if len(found.scores) <= SIDE_BY_SIDE else _rows)(found)


def _rows(found: Evaluation) -> Table:
    first, second = _leading(found.by_class)
    columns = [Column("score")]
    for way, said in _ways(found):
        label, other = (RANKINGS_BY_KEY[f"{name}_{way}"].label for name in (first, second))
        heading, less = f"{said}\n{label}", "less the\nfirst"
        columns += [Column(heading, str, unit="%"), Column(less, str, essential=False)]
        columns.append(Column(other, str, unit="%", essential=False))
    beside = _of_probabilities(found)
    for name in beside:
        metric = RANKINGS_BY_KEY[name]
        title = metric.label.replace(" ", "\n")
        if not metric.texts_only:
            way = next(said for key, said in _ways(found) if metric.keys.get(key) == name)
            title = f"{way}\n{title}"
        essential = name != "nll"
        columns.append(Column(title, str, unit="%" * metric.share, essential=essential))
    known = [name for name in ERRORS if any(name in one.metrics for one in found.scores)]
    columns += [Column(ERRORS[name], str, essential=False) for name in known]
    rows: list[list[Content]] = []
    for one in found.scores:
        row: list[Content] = [" ".join(_heading(found, one))]
        for way in WAYS:
            leading, other = f"{first}_{way}", f"{second}_{way}"
            row.append(_measured(one, leading))
            row.append(_cell(one.differences[leading], leading, "+") if one.differences else None)
            row.append(_number(one.metrics[other], other, ""))
        row += [
            _number(one.metrics[name], name, "") if name in one.metrics else None for name in beside
        ]
        row += [_measured(one, name) for name in known]
        rows.append(row)
    return make_table("Retrieval", columns, rows, footnotes=sentences(found))


def _of_probabilities(found: Evaluation) -> list[str]:
    """Metrics of selective retrieval and of probabilities, if a score is a logit."""
    names = [*(f"aurc_{way}" for way in WAYS), "calibration_error", "nll"]
    known = {name for one in found.scores for name in one.metrics}
    return [name for name in names if name in known] if "nll" in known else []


def _columns(found: Evaluation) -> Table:
    columns = [Column("metric")]
    for one in found.scores:
        columns.append(Column("\n".join(_heading(found, one)), str))
        less = Column("less the first", str, essential=False)
        columns += [less] * bool(one.differences)
    labels = {
        key: f"{'' if metric.texts_only else f'{said}: '}{metric.label}{', %' * metric.share}"
        for way, said in _ways(found)
        for metric in led(found.by_class)
        if (key := metric.keys.get(way)) is not None
    }
    labels |= ERRORS
    known = {name for one in found.scores for name in one.metrics}
    held = [name for name in labels if name in known]
    rows = [(labels[name], *_cells(found, name)) for name in held]
    made = make_table("Retrieval", columns, rows, footnotes=sentences(found))
    return made.keeping(name in _first_rows(found) for name in held)


def _first_rows(found: Evaluation) -> list[str]:
    """The metrics that the first screen has: a second one of retrieval if there is room."""
    first, second = _leading(found.by_class)
    names = [f"{first}_{way}" for way in WAYS] + ["centred_rmse"]
    return names if len(found.scores) > 1 else [*names, *(f"{second}_{way}" for way in WAYS)]


def _leading(by_class: bool) -> tuple[str, str]:
    """The two metrics that a reader looks for first."""
    return ("map", "ndcg10") if by_class else ("r1", "r10")


def _pairs(found: Evaluation) -> list[tuple[str, str]]:
    return list(dict.fromkeys(one.modalities for one in found.scores))


def _heading(found: Evaluation, one: Score) -> tuple[str, ...]:
    """The name of a subject, and its two modalities if subjects differ in them."""
    of = f", {' and '.join(one.modalities)}" * (len(_pairs(found)) > 1)
    return one.name, f"({one.kind},", f"{one.head}{of})"


def _ways(found: Evaluation) -> list[tuple[str, str]]:
    """Each way with its words, such as text to audio."""
    pairs = _pairs(found)
    first, second = pairs[0] if len(pairs) == 1 else ("first", "second")
    return list(way_names((first, second)).items())


def _cells(found: Evaluation, name: str) -> list[Content]:
    cells: list[Content] = []
    for one in found.scores:
        cells.append(_measured(one, name))
        if one.differences:
            less = one.differences.get(name)
            cells.append(None if less is None else _cell(less, name, "+"))
    return cells


def _measured(one: Score, name: str) -> Cell | None:
    if name not in one.metrics:
        return None
    interval = one.intervals[name]
    return _cell(Change(one.metrics[name], interval.low, interval.high), name, "")


def _cell(value: Change, name: str, sign: str) -> Cell:
    """A metric or, with a `sign`, a difference; `*` if the difference's interval excludes 0."""
    text, low, high = (_number(x, name, sign) for x in (value.value, value.low, value.high))
    star = " *" if sign and value.is_real else ""
    return Cell(text, value.value, f"[{low}, {high}]{star}")


def _number(value: float, name: str, sign: str) -> str:
    if name in ERRORS:
        return number(value)
    metric = RANKINGS_BY_KEY[name]
    digits, scale = (1, 100) if metric.share else (4 if metric.texts_only else 1, 1)
    return f"{round(scale * value, digits) + 0.0:{sign}.{digits}f}"  # + 0.0: never print -0.0


def _truth_name(found: Evaluation) -> str:
    """The name of the array of right items, for each pair of modalities."""
    return ", ".join(f"{first}_to_{second}" for first, second in _pairs(found))


def _counted(found: Evaluation) -> str:
    """The queries of each pair of modalities."""
    counts = {one.modalities: (*one.queries.values(),) for one in found.scores}
    said = [sizes_text((texts, videos), pair) for pair, (texts, videos) in counts.items()]
    return f"{'; '.join(said)} are queries" + " of each other" * (len(said) > 1)


def warnings(found: Evaluation) -> list[str]:
    """Sentences that a reader must see before the metrics, each after its subjects."""
    of: dict[str, list[str]] = {}
    for one in found.scores:
        for text in one.warnings:
            of.setdefault(text, []).append(one.name)
    return [f"{', '.join(names)}: {text}" for text, names in of.items()]


def sentences(found: Evaluation) -> list[str]:
    """The queries, the resamples and all notes but `warnings`."""
    return [*_read_as(found), *data_notes_of(found)]


def _read_as(found: Evaluation) -> list[str]:
    """The queries, the resamples, and the mark of a difference."""
    right = (
        "items with the same label are right, and an item does not find itself"
        if found.leave_one_out
        else f"the right items of a query are given by {_truth_name(found)}"
    )
    if found.by_class and not found.leave_one_out:
        right += ", for mAP and nDCG by its label"
    if found.judged:
        right = (
            "right items are those judged so" + found.leave_one_out * ", and never an item itself"
        )
    said = [
        f"{found.data}: {_counted(found)}; {right}.",
        f"In brackets: 95% of {found.resamples:,} resamples of the queries.",
    ]
    if any(one.differences for one in found.scores):
        of = " of the same pair of modalities" * (len(_pairs(found)) > 1)
        said.append(
            f"* a difference to the first{of}, on the same queries, whose interval leaves out 0"
        )
    return said


def data_notes_of(found: Evaluation) -> list[str]:
    """The notes but the warnings of subjects."""
    told = [f"{one.name}: {text}" for one in found.scores for text in one.warnings]
    return [note for note in found.notes if note not in told]


def document(found: Evaluation) -> Document:
    """The warnings, the table, and the sentences on its queries."""
    table = replace(evaluation_table(found), title="", footnotes=())
    queries, brackets, *others = _read_as(found)
    best = Sentence(_best(found), "verdict")
    return Document(
        f"retrieval on {found.data}",
        (
            *(Note(text, "verdict") for text in warnings(found)),
            best,
            table.named("retrieval", "verdict"),
            Sentence(f"{queries} {brackets}"),
            *notes(data_notes_of(found)),
            *notes(others, "detail"),
            Picture("retrieval", retrieval_picture(found)),
        ),
        found.to_json,
    )


def _best(found: Evaluation) -> str:
    """The subject with the highest leading metric, the mean of both ways, and its figures."""
    name, _ = _leading(found.by_class)
    ways = {f"{name}_{way}": said for way, said in _ways(found)}
    best = max(found.scores, key=lambda one: sum(one.metrics[key] for key in ways))
    label = led(found.by_class)[0].label
    said = ", ".join(f"{_number(best.metrics[key], key, '')}% {way}" for key, way in ways.items())
    if len(found.scores) > 1:
        return f"The highest {label} is that of {best.name}: {said}."
    chance = "" if found.by_class else f"; guessing has about {100 / found.videos:.2g}%"
    return f"{label} is {said}{chance}."


def retrieval_picture(found: Evaluation) -> str:
    """The leading metric of each subject, both ways, with its interval."""
    name = "map" if found.by_class else "r1"
    rows = [
        Whisker(
            one.name,
            tuple(
                Change(one.metrics[key], one.intervals[key].low, one.intervals[key].high)
                for key in (f"{name}_{way}" for way in WAYS)
            ),
        )
        for one in found.scores
    ]
    title = led(found.by_class)[0].label
    label = f"{title} of {len(rows)}, both ways with intervals"
    return whiskers(rows, [said for _, said in _ways(found)], label, percent_tick)
