"""The tables of a report's page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cimtool.ir.program import MODALITIES
from cimtool.report.tables import Cell, Head, Line, Table
from cimtool.verification.answers import energy, latency
from cimtool.verification.columns import (
    NOTHING,
    Column,
    drift_columns,
    interval_text,
    number,
    percent,
    retrieval_columns,
    survival_columns,
    survivors,
)
from cimtool.verification.drift import Row
from cimtool.verification.layers import LAYER_ROWS, SUM_ROWS, ColumnSums, LayerFinding
from cimtool.verification.pictures import WAYS, sums_picture
from cimtool.verification.report import Report


def survival_table(report: Report) -> Table:
    """R@1 both ways and the loss, with intervals."""
    columns, rows = survival_columns(report), survivors(report)
    lines = tuple(_line(row, i, columns, report) for i, row in enumerate(rows))
    return Table("R@1 in percent, with 95% intervals", _heads(columns), lines, sortable=False)


def drift_table(report: Report) -> Table:
    """The drift of every stage."""
    against = f"Drift from {report.reference.name}, stage by stage"
    return _of_rows(against, drift_columns(report), report)


def retrieval_table(report: Report) -> Table:
    """How well every stage retrieves, with intervals where they are known."""
    caption = "Retrieval in percent (rank: the median), t>v text to video, v>t video to text"
    return _of_rows(caption, retrieval_columns(report), report, _with_interval)


def _of_rows(
    caption: str,
    columns: Sequence[Column],
    report: Report,
    text: Callable[[Column, Row], str] = Column.cell,
) -> Table:
    lines = [_line(row, i, columns, report, text) for i, row in enumerate(report.shown)]
    return Table(caption, _heads(columns), tuple(lines))


def _heads(columns: Sequence[Column]) -> tuple[Head, ...]:
    return tuple(Head(c.title, c.meaning, numeric=i > 0) for i, c in enumerate(columns))


def _line(
    row: Row,
    index: int,
    columns: Sequence[Column],
    report: Report,
    text: Callable[[Column, Row], str] = Column.cell,
) -> Line:
    """A row of cells; stages sort in their own order."""
    first, *others = columns
    cells = [Cell(first.cell(row), index)]
    for column in others:
        said, bracket, interval = text(column, row).partition(" [")
        cells.append(Cell(said, _sortable(column.value(row)), bracket.strip() + interval))
    compiled = row.stage in (report.final.stage, "compiled model")
    cause = row.stage == report.headline.cause
    return Line(tuple(cells), " ".join(["result"] * compiled + ["cause"] * cause))


def _sortable(value: float | None) -> float:
    return math.nan if value is None else value


SHORT = {"t>v": "text_to_video", "v>t": "video_to_text"}
FIGURES = {"R@1": "r1", "R@5": "r5", "R@10": "r10", "mAP": "map"}


def _with_interval(column: Column, row: Row) -> str:
    way, _, figure = column.title.partition(" ")
    if figure not in FIGURES:
        return column.cell(row)
    return column.cell(row) + interval_text(row.intervals, f"{FIGURES[figure]}_{SHORT[way]}")


def layer_table(report: Report) -> Table:
    """Every layer, its worst column and a picture of its column sums."""
    heads = (
        Head("layer", numeric=False),
        Head("weights"),
        Head(
            "SQNR, dB",
            "signal to quantisation noise of its output, with all errors that arrive",
        ),
        Head("own, dB", "the same, of its own weights and converters alone"),
        Head("clipped, %", "column sums beyond the codes of the converter, of the worst slice"),
        Head("of", "the slice that is clipped most", numeric=False),
        Head("range used, %", "the part of the converter's codes that is used, of that slice"),
        Head("column sums, slice by slice", "each from its lowest sum to its highest", False),
    )
    lines = [_layer_line(one, index) for index, one in enumerate(report.layers)]
    caption = (
        f"On up to {LAYER_ROWS} rows of each modality, column sums on the first {SUM_ROWS} of them"
    )
    return Table(caption, heads, tuple(lines))


def _layer_line(one: LayerFinding, index: int) -> Line:
    worst = max(one.converters, key=lambda column: (column.clipped, column.used))
    pictures = "".join(sums_picture(column, one.layer) for column in one.converters)
    return Line(
        (
            Cell(one.layer, index),
            Cell(f"{one.inputs:,} x {one.outputs:,}", one.inputs * one.outputs),
            _decibels(one.sqnr_db, one.layer.partition(".")[0] in MODALITIES),
            _decibels(one.own_sqnr_db, True),
            _clipped(worst),
            Cell(worst.column),
            Cell(percent(worst.used), worst.used),
            Cell("", index, picture=pictures),
        )
    )


def _decibels(value: float | None, defined: bool) -> Cell:
    """Signal to noise; where there is no noise it is best of all."""
    if not defined:
        return Cell(NOTHING, math.nan)
    return Cell("no noise", math.inf) if value is None else Cell(f"{value:.1f}", value)


def _clipped(column: ColumnSums) -> Cell:
    if column.step is None:
        return Cell("lossless", 0.0)
    return Cell(f"{100 * column.clipped:.3f}", column.clipped, style="bad" * (column.clipped > 0))


def column_table(report: Report) -> Table:
    """Every slice of every layer."""
    heads = (
        Head("layer", numeric=False),
        Head("column", numeric=False),
        Head("ADC bits"),
        Head("step", "the converter's step, in units of a column sum"),
        Head("conversions", "column sums that were looked at"),
        Head("clipped, %"),
        Head("range used, %"),
        Head("lowest"),
        Head("highest"),
    )
    found = [(one.layer, column) for one in report.layers for column in one.converters]
    lines = [_column_line(layer, column, index) for index, (layer, column) in enumerate(found)]
    return Table("Column sums by layer and slice", heads, tuple(lines))


def _column_line(layer: str, column: ColumnSums, index: int) -> Line:
    def whole(value: int | None) -> Cell:
        return Cell(NOTHING, math.nan) if value is None else Cell(f"{value:,}", value)

    return Line(
        (
            Cell(layer, index),
            Cell(column.column),
            whole(column.adc_bits),
            whole(None if column.step is None else 2**column.step),
            whole(column.conversions),
            _clipped(column),
            Cell(percent(column.used), column.used),
            whole(column.lowest),
            whole(column.highest),
        )
    )


def sensitivity_table(report: Report) -> Table:
    """Every part alone in integers, and every part left in real numbers."""
    heads = (
        Head("part", numeric=False),
        Head("kind", numeric=False),
        Head("bits", "of a stored value"),
        Head("alone: RMSE", "only this part in integers, all others in real numbers"),
        Head("alone: top-1 %"),
        Head("all but this: RMSE", "only this part in real numbers, all others compiled"),
        Head("all but this: top-1 %"),
    )
    found = report.sensitivity
    lines = [
        Line(
            (
                Cell(one.part, index),
                Cell(one.kind),
                Cell(NOTHING if one.bits is None else str(one.bits), _sortable(one.bits)),
                Cell(number(one.alone_rmse), one.alone_rmse),
                Cell(percent(one.alone_top1), one.alone_top1),
                Cell(number(one.left_float_rmse), one.left_float_rmse),
                Cell(percent(one.left_float_top1), one.left_float_top1),
            ),
            "cause" if one.part == found.costliest else "",
        )
        for index, one in enumerate(found.parts)
    ]
    caption = (
        f"Parts on {found.texts} texts x {found.videos} videos; all compiled: RMSE "
        f"{number(found.rmse)} from the lowered model"
    )
    return Table(caption, heads, tuple(lines))


def margin_table(report: Report) -> Table:
    """Who leads or trails by more than the error."""
    heads = (
        Head("queries", numeric=False),
        Head("sigma", f"standard deviation of the error of a difference of two {report.score}s"),
        Head("leads, %", "the right item leads by more than 3 sigma: the error cannot undo it"),
        Head("open, %", "within 3 sigma: the error may decide"),
        Head("trails, %", "trails by more than 3 sigma: lost before the error"),
    )
    lines = [
        Line(
            (
                Cell(WAYS[one.way], index),
                Cell(number(one.sigma), one.sigma),
                *(Cell(percent(value), value) for value in (one.leads, one.open, one.trails)),
            )
        )
        for index, one in enumerate(report.margins)
    ]
    return Table("The right item's lead in the reference", heads, tuple(lines))


def curve_table(report: Report, way: str) -> Table:
    """R@K against the size of the gallery, in percent."""
    found = [one for one in report.curves if one.way == way]
    heads = (Head("gallery"), *(Head(f"{one.stage}, R@{one.k}") for one in found))
    lines = [
        Line(
            (
                Cell(f"{size:,}", size),
                *(Cell(percent(one.recall[index]), one.recall[index]) for one in found),
            )
        )
        for index, size in enumerate(found[0].sizes if found else ())
    ]
    return Table(f"R@K {WAYS[way]} by gallery, in percent", heads, tuple(lines))


def domain_table(report: Report) -> Table:
    """Pairs outside the domain of the compiled score."""
    heads = (
        Head("stage", numeric=False),
        Head("statistic", numeric=False),
        Head("domain"),
        Head("seen"),
        Head("pairs outside, %"),
        Head("right pairs outside"),
    )
    lines = [
        Line(
            (
                Cell(one.stage, index),
                Cell(one.statistic),
                Cell(f"{one.lo:.4g} to {one.hi:.4g}", one.hi - one.lo),
                Cell(f"{one.seen_lo:.4g} to {one.seen_hi:.4g}", one.seen_hi - one.seen_lo),
                Cell(f"{100 * one.outside:.3f}", one.outside),
                Cell(
                    f"{one.right_outside:,} of {one.right:,}",
                    one.right_outside,
                    style="bad" * bool(one.right_outside),
                ),
            )
        )
        for index, one in enumerate(report.domains)
    ]
    return Table("Pairs against the domain that calibration fixed", heads, tuple(lines))


def stored_table(report: Report) -> Table:
    """How often each stored value of the projectors is clipped by its format."""
    heads = (
        Head("value", numeric=False),
        Head("role", numeric=False),
        Head("bits"),
        Head("clipped, %"),
    )
    lines = [
        Line(
            (
                Cell(one.value, index),
                Cell(one.role),
                Cell(str(one.bits), one.bits),
                Cell(f"{100 * one.clipped:.3f}", one.clipped),
            )
        )
        for index, one in enumerate(report.stored)
    ]
    return Table("Stored values and how often their format clips them", heads, tuple(lines))


def figure_table(report: Report) -> Table:
    """The figures of the target that costs rest on."""
    heads = (
        Head("figure", numeric=False),
        Head("value"),
        Head("of", numeric=False),
        Head("standing", numeric=False),
        Head("source", numeric=False),
    )
    lines = [
        Line(
            (
                Cell(one.quantity),
                Cell(f"{one.value:g} {'' if one.unit == '1' else one.unit}".strip(), one.value),
                Cell(one.scope),
                Cell(one.status),
                Cell(one.source, style="long"),
            )
        )
        for one in report.figures
    ]
    return Table("Figures of the target", heads, tuple(lines))


def cost_table(report: Report) -> Table:
    """Totals of a text, a video and a query, and every layer, lower bounds marked `>`."""
    heads = (
        Head("part", numeric=False),
        Head("arrays"),
        Head("cells used, %"),
        Head("MACs in arrays"),
        Head("conversions"),
        Head("latency"),
        Head("energy", "> marks a lower bound: some of its parts have no figure"),
    )
    cost = report.cost
    found = [(layer["layer"], layer["cost"], layer) for layer in cost["layers"]]
    found += [("one text", cost["text"], None), ("one video", cost["video"], None)]
    found.append((f"a query x {cost['gallery']:,}", cost["query"], None))
    lines = [_cost_line(*one, index) for index, one in enumerate(found)]
    return Table("Cost of layers, texts, videos and a query", heads, tuple(lines))


def _cost_line(
    name: str, cost: Mapping[str, Any], layer: Mapping[str, Any] | None, index: int
) -> Line:
    arrays, used = (None, None) if layer is None else (layer["arrays"], layer["utilisation"])
    return Line(
        (
            Cell(name, index),
            Cell(NOTHING if arrays is None else f"{arrays:,}", _sortable(arrays)),
            Cell(percent(used), _sortable(used)),
            Cell(f"{cost['macs']:,}", cost["macs"]),
            Cell(f"{cost['conversions']:,}", cost["conversions"]),
            Cell(latency(cost), _sortable(cost["latency_ns"]["value"])),
            Cell(energy(cost), _sortable(cost["energy_pj"]["value"])),
        ),
        "result" if layer is None else "",
    )
