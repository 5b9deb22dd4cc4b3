"""A tuning and an evaluation for a reader: tables, sentences, pictures, text for a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from cimtool.experiments.evaluate import Evaluation, Score
from cimtool.experiments.tune import Tuned
from cimtool.experiments.widths import Attempt, CostName
from cimtool.reference.bootstrap import Change
from cimtool.reference.modality_names import sizes_text, way_names
from cimtool.reference.queries import RANKINGS_BY_KEY, WAYS, led
from cimtool.report.charts import Whisker, whiskers
from cimtool.report.formats import NumberFormat, four_digits, number, percent
from cimtool.report.page import render_text
from cimtool.report.result import View, view
from cimtool.report.svg import percent_tick
from cimtool.report.table import Cell, Column, Content, Table, interval_cell, make_table
from cimtool.report.terminal import table_text

MOST_MOVES = 2
"""Moves of a step that its line names."""


def tuned_text(found: Tuned) -> str:
    """All results for a terminal or a pipe."""
    steps, bits = table_text(step_table(found)), table_text(bit_table(found))
    starts = table_text(start_table(found)) if len(found.starts) > 1 else ""
    return render_text(
        "cimtool.experiments",
        "tuned.txt",
        found=found,
        starts=starts,
        steps=steps,
        bits=bits,
        written=shlex.quote(str(found.written)),
    )


def start_table(found: Tuned) -> Table:
    """Every combination of a grid: the cost from it, and the metrics of its highest bits."""
    columns = (
        *(Column(key, str) for key in found.starts[0].values),
        Column(""),
        Column(f"{found.cost}, tuned", "{:,.0f}".format),
        *(Column(f"{name}\nat first", four_digits) for name in found.budget),
    )
    rows = [
        (
            *one.values.values(),
            "chosen" if one.chosen else "" if one.cost else "over",
            one.cost.get(found.cost),
            *(one.metrics.get(name) for name in found.budget),
        )
        for one in found.starts
    ]
    return make_table("Starts", columns, rows, absent="")


def step_table(found: Tuned) -> Table:
    """Every step: its moves, their cost, the error of the compiled model, and its retrieval.

    Below them, on all queries, scores that no hardware has touched.
    """
    metrics = list(
        dict.fromkeys((*found.budget, "centred_rmse", "logit_rmse", "top1_agreement_loss"))
    )
    lead, ways = led(found.by_class)[0], way_names(found.modalities)
    columns = (
        Column("tried"),
        Column(""),
        Column(found.cost, "{:,.0f}".format),
        *(Column(name, four_digits) for name in metrics),
        *(Column(f"{lead.label}, %\n{ways[way]}", percent) for way in lead.keys),
    )
    points: list[tuple[str, str, Mapping[CostName, float], Mapping[str, float]]] = [
        ("the highest bits", "kept", found.start_cost, found.start),
        *((*_step(step), step.cost, step.outcome.metrics) for step in found.steps),
        ("chosen", "", found.chosen_cost, found.chosen),
        ("chosen, held-out queries", "", found.chosen_cost, found.held_out),
        ("chosen, all queries", "", found.chosen_cost, found.on_all),
        *((name, "", {}, values) for name, values in found.baselines.items()),
    ]
    intervals = {"chosen, all queries": found.intervals, **found.baseline_intervals}
    rows = [
        (
            tried,
            verdict,
            cost.get(found.cost),
            *(_known(values, intervals.get(tried, {}), name, four_digits) for name in metrics),
            *(_known(values, intervals.get(tried, {}), key, percent) for key in lead.keys.values()),
        )
        for tried, verdict, cost, values in points
    ]
    return make_table("Steps", columns, rows, absent="")


def _known(
    values: Mapping[str, float],
    intervals: Mapping[str, tuple[float, float]],
    name: str,
    form: NumberFormat,
) -> Content:
    """A metric, with its interval where that is known."""
    value = values.get(name)
    if value is None or name not in intervals:
        return value
    return interval_cell(Change(value, *intervals[name]), form)


def _step(step: Attempt) -> tuple[str, str]:
    """The moves of a step, and what came of it."""
    named = [f"{move.width} {move.was}->{move.now}" for move in step.moves[:MOST_MOVES]]
    rest = len(step.moves) - len(named)
    verdict = "kept" if step.kept else "over" if step.outcome.error is None else "refused"
    return ", ".join(named) + (f" and {rest} more" if rest else ""), verdict


def bit_table(found: Tuned) -> Table:
    """The bits of each layer; of a product that is left out no query has any."""
    columns = (Column("layer"), Column("weight bits", str), Column("activation bits", str))
    rows = [
        (layer, bits["weight_bits"] or "left out", bits.get("activation_bits"))
        for layer, bits in found.bits.items()
    ]
    return make_table("Bits", columns, rows)


@view.register
def _(found: Tuned) -> View:
    before, after = found.start_cost[found.cost], found.chosen_cost[found.cost]
    held = (
        f"{name} is {found.on_all[name]:.4g} on all queries; the limit is {most:g}"
        for name, most in found.budget.items()
    )
    return View(
        f"{found.model} on {found.target}: {found.cost} {before:,.0f} to {after:,.0f}",
        [*found.first, *held, f"The settings are in {found.written}."],
        found.to_json,
        {"bits": lambda: bit_table(found), "steps": lambda: step_table(found)},
    )


ERRORS = {"centred_rmse": "centred logit RMSE", "logit_rmse": "logit RMSE"}
"""The metrics of a score's distance from the exact one, of subjects that have such a one."""

SIDE_BY_SIDE = 3
"""Subjects that have columns of their own; more are rows, with the metric that leads."""


def evaluation_table(found: Evaluation) -> Table:
    """Metrics and intervals of each subject, and of those after the first the difference to it.

    Up to three subjects are columns of all metrics; more are rows, with R@1 and R@10 (mAP and
    nDCG@10 where classes are known).
    """
    return (_columns if len(found.scores) <= SIDE_BY_SIDE else _rows)(found)


def _rows(found: Evaluation) -> Table:
    first, second = ("map", "ndcg10") if found.by_class else ("r1", "r10")
    columns = [Column("")]
    for way, said in _ways(found):
        label, other = (RANKINGS_BY_KEY[f"{name}_{way}"].label for name in (first, second))
        heading, less = f"{said}\n{label}", "less the\nfirst"
        columns += [Column(heading, str, unit="%"), Column(less, str, essential=False)]
        columns.append(Column(other, str, unit="%", essential=False))
    known = [name for name in ERRORS if any(name in one.metrics for one in found.scores)]
    columns += [Column(ERRORS[name], str, essential=False) for name in known]
    rows: list[list[Content]] = []
    for one in found.scores:
        row: list[Content] = [_heading(found, one)]
        for way in WAYS:
            leading, other = f"{first}_{way}", f"{second}_{way}"
            row.append(_measured(one, leading))
            row.append(_cell(one.differences[leading], leading, "+") if one.differences else None)
            row.append(_number(one.metrics[other], other, ""))
        row += [_measured(one, name) for name in known]
        rows.append(row)
    return make_table("Retrieval", columns, rows, footnotes=sentences(found))


def _columns(found: Evaluation) -> Table:
    columns = [Column("")]
    for one in found.scores:
        columns.append(Column(_heading(found, one), str))
        columns += [Column("less the first", str)] * bool(one.differences)
    labels = {
        key: metric.label if metric.of_means else f"{said}: {metric.label}{', %' * metric.share}"
        for way, said in _ways(found)
        for metric in led(found.by_class)
        if (key := metric.keys.get(way)) is not None
    }
    labels |= ERRORS
    known = {name for one in found.scores for name in one.metrics}
    rows = [(label, *_cells(found, name)) for name, label in labels.items() if name in known]
    return make_table("Retrieval", columns, rows, footnotes=sentences(found))


def _pairs(found: Evaluation) -> list[tuple[str, str]]:
    return list(dict.fromkeys(one.modalities for one in found.scores))


def _heading(found: Evaluation, one: Score) -> str:
    """The name of a subject, and its two modalities where others have other ones."""
    of = f", {' and '.join(one.modalities)}" * (len(_pairs(found)) > 1)
    return f"{one.name} ({one.kind}, {one.head}{of})"


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
    """A metric or, with a `sign`, a difference; `*` marks one whose interval leaves out 0."""
    text, low, high = (_number(x, name, sign) for x in (value.value, value.low, value.high))
    star = " *" if sign and value.is_real else ""
    return Cell(text, value.value, f"[{low}, {high}]{star}")


def _number(value: float, name: str, sign: str) -> str:
    if name in ERRORS:
        return number(value)
    metric = RANKINGS_BY_KEY[name]
    digits, scale = 4 if metric.of_means else 1, 100 if metric.share else 1
    return f"{round(scale * value, digits) + 0.0:{sign}.{digits}f}"  # + 0.0: no -0.0 is printed


def _truth_name(found: Evaluation) -> str:
    """The name of the array that says what is right, of each pair with its own names."""
    return ", ".join(f"{first}_to_{second}" for first, second in _pairs(found))


def _counted(found: Evaluation) -> str:
    """The queries of each pair of modalities."""
    counts = {one.modalities: (*one.queries.values(),) for one in found.scores}
    said = [sizes_text((texts, videos), pair) for pair, (texts, videos) in counts.items()]
    return f"{'; '.join(said)} are queries" + " of each other" * (len(said) > 1)


def warnings(found: Evaluation) -> list[str]:
    """Sentences that a reader must see before the metrics, each after its subject."""
    return [f"{one.name}: {text}" for one in found.scores for text in one.warnings]


def sentences(found: Evaluation) -> list[str]:
    """The queries, the resamples and all notes but `warnings`."""
    right = (
        "right is what has an item's label, and an item does not find itself"
        if found.leave_one_out
        else f"right is what belongs to a query by {_truth_name(found)}"
    )
    if found.by_class and not found.leave_one_out:
        right += ", for mAP and nDCG what has its label"
    if found.judged:
        right = "right is what is judged so" + found.leave_one_out * ", and never an item itself"
    said = [
        f"{found.data}: {_counted(found)}; {right}.",
        f"In brackets: 95% of {found.resamples:,} resamples of the queries.",
    ]
    if any(one.differences for one in found.scores):
        of = " of the same pair of modalities" * (len(_pairs(found)) > 1)
        said.append(
            f"* a difference to the first{of}, on the same queries, whose interval leaves out 0"
        )
    first = warnings(found)
    return [*said, *(note for note in found.notes if note not in first)]


@view.register
def _(found: Evaluation) -> View:
    return View(
        f"retrieval on {found.data}",
        [*warnings(found), *sentences(found)],
        found.to_json,
        {"retrieval": lambda: evaluation_table(found)},
        {"retrieval": lambda: retrieval_picture(found)},
    )


def retrieval_picture(found: Evaluation) -> str:
    """The metric that leads, of each subject both ways with its interval."""
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
