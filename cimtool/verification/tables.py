"""The tables of a report, for terminal, Markdown and HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cimtool.base.intervals import Change
from cimtool.base.modality_names import way_marks, way_names
from cimtool.bundle.bundle import FLOAT_FILE
from cimtool.ir.program import MODALITIES
from cimtool.reference.measures import DIFFERENCES, PROBABILITIES, SELECTIVE, RankingMetric
from cimtool.reference.queries import led
from cimtool.report.charts import histogram
from cimtool.report.formats import (
    NOT_KNOWN,
    NumberFormat,
    fine_percent,
    four_digits,
    number,
    percent,
    whole,
)
from cimtool.report.table import (
    Cell,
    Column,
    Content,
    ItemColumns,
    Table,
    interval_cell,
    item_table,
    make_table,
)
from cimtool.verification.drift import StageRow
from cimtool.verification.headline import DriftFindings
from cimtool.verification.layers import LAYER_ROWS, SUM_ROWS, ColumnSums, LayerFinding
from cimtool.verification.paired import Comparison, PairedFigure
from cimtool.verification.report import TargetFigure
from cimtool.verification.saturation import Domain, Saturation
from cimtool.verification.sections import FigureChange
from cimtool.verification.sensitivity import Causes, Part

CLIPPED = Column("clipped", fine_percent, unit="%")


def survival_table(drift: DriftFindings) -> Table:
    """R@1 both ways and the loss, with intervals; after mAP where classes are known."""
    names = ("map", "r1") if drift.by_class else ("r1",)
    shown = [one for one in led(drift.by_class) if one.name in names]
    loss = "what the reference has more on the same queries, in the worse way; real where not 0"
    columns = [Column("stage")]
    for metric in shown:
        first = metric is shown[0]
        columns += [
            Column(
                f"{metric.label}\n{name}", percent, f"{metric.help}; 95% interval", essential=first
            )
            for name in way_names(drift.modalities).values()
        ]
        columns.append(Column(f"{metric.label} loss,\npoints", percent, loss, essential=first))
    rows = []
    for row in drift.survivors:
        cells: list[Content] = [row.stage]
        for metric in shown:
            lost = None if row.stage == drift.reference else row.losses.get(metric.loss)
            shares = [row.with_interval(key) for key in metric.keys.values()]
            cells += [interval_cell(one, percent) for one in (*shares, lost)]
        rows.append(cells)
    labels = " and ".join(metric.label for metric in shown)
    title, styles = f"{labels} in percent, with 95% intervals", _styles(drift.survivors, drift)
    return make_table(title, columns, rows, styles, sortable=False)


def _styles(rows: Sequence[StageRow], drift: DriftFindings) -> list[str]:
    results, cause = (drift.final.stage, "compiled model"), drift.headline.cause
    return [
        " ".join(["result"] * (row.stage in results) + ["cause"] * (row.stage == cause))
        for row in rows
    ]


def drift_table(drift: DriftFindings) -> Table:
    """The drift of every stage; shares in percent."""
    names = {"reference": drift.reference, "surrogate": drift.surrogate}
    shown = [one for one in DIFFERENCES if one.heading]
    columns = [
        Column(
            one.heading,
            percent if one.share else number,
            one.help.format(**names),
            essential=one.essential,
        )
        for one in shown
    ]

    def content(row: StageRow, name: str) -> Content:
        special = {"centred_rmse": _centred, "step_centred_rmse": _step}
        return special[name](row, drift) if name in special else row.get(name)

    rows = [(row.stage, *(content(row, one.name) for one in shown)) for row in drift.shown]
    title = f"Drift from {drift.reference}, stage by stage"
    columns.insert(0, Column("stage"))
    return make_table(title, columns, rows, _styles(drift.shown, drift))


def _step(row: StageRow, drift: DriftFindings) -> Content:
    step = row.get("step_centred_rmse")
    if step is None or row.stage != drift.headline.cause:
        return step
    return Cell(number(step), step, "*")


def _centred(row: StageRow, drift: DriftFindings) -> Content:
    """The error; the scatter of Monte Carlo in its own row; what is not known by these words."""
    scatter = drift.scatter
    if "centred_rmse" in row.metrics:
        return row.metrics["centred_rmse"]
    if not row.metrics:
        return Cell("not finite" if row.stage == FLOAT_FILE else NOT_KNOWN, math.nan)
    if row.stage != drift.reference or scatter is None or scatter.rmse:
        return None
    return Cell(f"±{number(scatter.centred_error)}", math.nan)


def retrieval_table(drift: DriftFindings) -> Table:
    """Retrieval of every stage, with intervals where they are known."""
    shown = [one for one in led(drift.by_class) if one not in (*SELECTIVE, *PROBABILITIES)]
    return _metric_table(drift, shown, "Retrieval", essential=False)


def probability_table(drift: DriftFindings) -> Table:
    """Metrics of matching probabilities and of selective retrieval, with intervals."""
    return _metric_table(drift, (*PROBABILITIES, *SELECTIVE), "Probabilities", essential=True)


def _metric_table(
    drift: DriftFindings, shown: Sequence[RankingMetric], title: str, essential: bool
) -> Table:
    """Metrics of every stage that has any; all in a narrow table too if `essential`."""
    columns = {}
    marks, ways = way_marks(drift.modalities), way_names(drift.modalities)
    for way, arrow in marks.items():
        for metric in shown:
            if way in metric.keys:
                heading = metric.heading or f"{arrow}\n{metric.label}"
                form = percent if metric.share else four_digits
                columns[metric.keys[way]] = Column(
                    heading,
                    form,
                    metric.help,
                    essential=metric.essential or (essential and metric.texts_only),
                )
    columns = {name: one for name, one in columns.items() if name in drift.final.metrics}

    def content(row: StageRow, name: str) -> Content:
        form = columns[name].form
        return interval_cell(row.with_interval(name), form) if form else row.get(name)

    rows = [(row.stage, *(content(row, name) for name in columns)) for row in drift.shown]
    meaning = [f"{marks[way]} {said}" for way, said in ways.items() if marks[way] != said]
    title = ", ".join([f"{title}, shares in percent", *meaning])
    headings = (Column("stage"), *columns.values())
    return make_table(title, headings, rows, _styles(drift.shown, drift))


def crossbar_layer_table(causes: Causes) -> Table:
    """Every layer, its worst column and a picture of its column sums."""
    decibels = "{:.1f}".format
    columns = (
        Column("layer"),
        Column("weights", whole),
        Column("SQNR", decibels, "its output to the noise of all errors that arrive", unit="dB"),
        Column("own", decibels, "the same, of its own weights and converters alone", unit="dB"),
        Column("clipped", fine_percent, "column sums beyond the codes, worst slice", unit="%"),
        Column("of", help="the slice that is clipped most"),
        Column("range used", percent, "the part of its converter's codes in use", unit="%"),
        Column("column sums, slice by slice", help="each from its lowest sum to its highest"),
    )
    return make_table(
        f"On up to {LAYER_ROWS} rows of each modality, column sums on the first {SUM_ROWS} of them",
        columns,
        [_layer_cells(one, index) for index, one in enumerate(causes.layers)],
    )


def _layer_cells(one: LayerFinding, index: int) -> Sequence[Content]:
    worst = max(one.converters, key=lambda column: (column.clipped, column.used))
    pictures = "".join(_sums_picture(column, one.layer) for column in one.converters)
    return (
        one.layer,
        Cell(f"{one.inputs:,} x {one.outputs:,}", one.inputs * one.outputs),
        _decibels(one.sqnr_db) if one.graph in MODALITIES else None,
        _decibels(one.own_sqnr_db),
        _clipped(worst),
        worst.column,
        worst.used,
        Cell("", index, picture=pictures),
    )


def _sums_picture(column: ColumnSums, layer: str) -> str:
    """A histogram of column sums for a cell of a table."""
    label = (
        f"Column sums of {layer}, {column.column}: {column.lowest:,} to {column.highest:,}, "
        f"{percent(column.clipped)}% clipped"
    )
    return histogram(column.counts, label)


def _decibels(value: float | None) -> Content:
    """Signal to noise; if there is no noise it is best of all."""
    return Cell("no noise", math.inf) if value is None else value


def _clipped(column: ColumnSums) -> Cell:
    if column.step is None:
        return Cell("lossless", 0.0)
    style = "bad" if column.clipped else ""
    return Cell(fine_percent(column.clipped), column.clipped, style=style)


def column_table(causes: Causes) -> Table:
    """Every slice of every layer."""
    step = "the converter's step, in digits"
    columns: ItemColumns[tuple[str, ColumnSums]] = (
        (Column("layer"), lambda one: one[0]),
        (Column("column"), lambda one: one[1].column),
        (Column("ADC bits", whole), lambda one: one[1].adc_bits),
        (Column("step", "{:g}".format, step), lambda one: one[1].step),
        (
            Column("conversions", whole, "column sums that were looked at"),
            lambda one: one[1].conversions,
        ),
        (CLIPPED, lambda one: _clipped(one[1])),
        (Column("range used", percent, unit="%"), lambda one: one[1].used),
        (Column("lowest", whole), lambda one: one[1].lowest),
        (Column("highest", whole), lambda one: one[1].highest),
    )
    slices = [(layer.layer, column) for layer in causes.layers for column in layer.converters]
    return item_table("Column sums by layer and slice", slices, columns)


def sensitivity_table(causes: Causes) -> Table:
    """Every part alone in integers, and every part left in real numbers."""
    found = causes.sensitivity
    alone = "only this part in integers, all others in real numbers"
    all_but = "only this part in real numbers, all others compiled"
    columns: ItemColumns[Part] = (
        (Column("part"), lambda one: one.part),
        (Column("kind"), lambda one: one.kind),
        (Column("bits", whole, "of a stored value"), lambda one: one.bits),
        (Column("alone: centred RMSE", number, alone), lambda one: one.alone_centred_rmse),
        (Column("alone: top-1 %", percent), lambda one: one.alone_top1),
        (
            Column("all but this: centred RMSE", number, all_but),
            lambda one: one.left_float_centred_rmse,
        ),
        (Column("all but this: top-1 %", percent), lambda one: one.left_float_top1),
    )
    return item_table(
        f"Parts on {found.texts} x {found.videos} pairs; all compiled: centred RMSE "
        f"{number(found.centred_rmse)} from the lowered model",
        found.parts,
        columns,
        lambda one: "cause" if one.part == found.costliest else "",
    )


def margin_table(drift: DriftFindings) -> Table:
    """Shares of queries whose right item leads or trails by more than the error."""
    columns = (
        Column("queries"),
        Column("sigma", number, "standard deviation of the error of a difference of two scores"),
        Column("leads", percent, "by more than 3 sigma: the error cannot undo it", unit="%"),
        Column("open", percent, "within 3 sigma: the error may decide", unit="%"),
        Column("trails", percent, "by more than 3 sigma: lost before the error", unit="%"),
    )
    ways = way_names(drift.modalities)
    rows = [(ways[one.way], one.sigma, one.leads, one.open, one.trails) for one in drift.margins]
    return make_table("The right item's lead in the reference", columns, rows)


def curve_table(drift: DriftFindings, way: str) -> Table:
    """R@K against the size of the gallery."""
    found = [one for one in drift.curves if one.way == way]
    stages = [Column(f"{one.stage}, R@{one.k}", percent) for one in found]
    rows = zip(found[0].sizes, *(one.recall for one in found), strict=True)
    title = f"R@K {way_names(drift.modalities)[way]} by gallery, in percent"
    return make_table(title, [Column("gallery", whole), *stages], rows)


def domain_table(saturation: Saturation) -> Table:
    """Pairs outside the domain of the compiled score, and outside the range of a fit."""
    columns: ItemColumns[Domain] = (
        (Column("stage"), lambda one: one.stage),
        (Column("statistic"), lambda one: one.statistic),
        (Column("domain", number), lambda one: _range(one.lo, one.hi)),
        (Column("seen", number), lambda one: _range(one.seen_lo, one.seen_hi)),
        (Column("pairs outside", fine_percent, unit="%"), lambda one: one.outside),
        (Column("right pairs outside", whole), _right_outside),
    )
    title = "Pairs against the domain that calibration fixed"
    if any(one.fitted for one in saturation.domains):
        title += ", and against the range that the polynomial was fitted on"
    return item_table(title, saturation.domains, columns)


def _range(lo: float, hi: float) -> Cell:
    return Cell(f"{lo:.4g} to {hi:.4g}", hi - lo)


def _right_outside(one: Domain) -> Cell:
    text = f"{one.right_outside:,} of {one.right:,}"
    return Cell(text, one.right_outside, style="bad" if one.right_outside else "")


def stored_table(saturation: Saturation) -> Table:
    """The share of each stored value of the projectors that its format clips."""
    columns = (Column("value"), Column("role"), Column("bits", whole), CLIPPED)
    rows = [tuple(vars(one).values()) for one in saturation.stored]
    return make_table("Stored values and how often their format clips them", columns, rows)


def target_table(figures: Sequence[TargetFigure]) -> Table:
    """The figures of the target."""
    columns = (Column("figure"), Column("value", whole), *map(Column, ("of", "standing", "source")))
    rows = []
    for one in figures:
        value = Cell(f"{one.value:g} {'' if one.unit == '1' else one.unit}".strip(), one.value)
        rows.append((one.quantity, value, one.scope, one.status, Cell(one.source, style="long")))
    return make_table("Figures of the target", columns, rows)


def earlier_table(found: Comparison) -> Table:
    """Every figure now and before; the difference with its interval, then figures of sections."""
    difference = "now less before, on the same queries, and 95% of other draws of them"
    columns = (
        Column("figure"),
        Column("now", four_digits),
        Column("before", four_digits, f"in {found.file}"),
        Column("difference", four_digits, difference),
        Column("verdict", help="worse or better where the interval leaves out 0"),
        Column("tolerance", four_digits, "a failure where the whole interval is worse by more"),
        Column(
            "80% power", four_digits, "a loss that 80% of such draws would show", essential=False
        ),
    )
    rows: list[Sequence[Content]] = [_paired_cells(one) for one in found.figures]
    rows += [_beside_cells(one) for one in found.beside]
    styles = ["cause" if one.failed else "" for one in found.figures] + [""] * len(found.beside)
    paired = f"paired on the queries of {found.texts:,} x {found.videos:,} pairs"
    title = f"Beside {found.bundle} of {found.file}, {paired}"
    return make_table(title, columns, rows, styles, found.notes, sortable=False)


def _paired_cells(one: PairedFigure) -> Sequence[Content]:
    form: NumberFormat = percent if one.share else four_digits
    sign = 1 if one.lower_is_better else -1
    ends = sorted((sign * one.loss.low, sign * one.loss.high))
    difference = Change(sign * one.loss.value + 0.0, ends[0] + 0.0, ends[1] + 0.0)
    label = f"{one.label}, %" if one.share else one.label

    def cell(value: float | None) -> Content:
        return None if value is None else Cell(form(value), value)

    return (
        label,
        cell(one.now),
        cell(one.before),
        interval_cell(difference, form),
        "WORSE" if one.failed else one.verdict,
        cell(one.tolerance),
        cell(one.detectable),
    )


def _beside_cells(one: FigureChange) -> Sequence[Content]:
    difference = None if one.now is None or one.before is None else one.now - one.before
    label = f"{one.label}, {one.unit}" if one.unit else one.label

    def cell(value: float | None) -> Content:
        if value is None:
            return None
        return Cell(f"{value:,.0f}" if value.is_integer() else f"{value:,.6g}", value)

    return (label, *map(cell, (one.now, one.before, difference)), "", None, None)
