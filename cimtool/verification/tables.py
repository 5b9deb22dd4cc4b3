"""The tables of a report, for terminal, Markdown and HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cimtool.hardware.target import Target
from cimtool.ir.program import MODALITIES
from cimtool.reference.queries import RECALLS, WAY_NAMES, WAYS
from cimtool.report.formats import (
    NOT_KNOWN,
    fine_percent,
    number,
    percent,
    percent_range,
    whole,
)
from cimtool.report.table import Cell, Column, Content, Table, make_table
from cimtool.verification.causes import Causes
from cimtool.verification.drift import StageRow
from cimtool.verification.drift_findings import DriftFindings
from cimtool.verification.layers import LAYER_ROWS, SUM_ROWS, ColumnSums, LayerFinding
from cimtool.verification.pictures import sums_picture
from cimtool.verification.saturation import Saturation

ARROWS = {"text_to_video": "t>v", "video_to_text": "v>t"}


def survival_table(drift: DriftFindings) -> Table:
    """R@1 both ways and the loss, with intervals."""
    help_ = "queries whose right item is the best, %; in brackets where 95% of resamples lie"
    columns = (
        Column("stage"),
        *(Column(f"R@1\n{name}", percent, help_) for name in WAY_NAMES.values()),
        Column(
            "R@1 loss,\npoints",
            percent,
            "what the reference has more of R@1 on the same queries, the worse of both directions; "
            "it is real where its interval leaves out 0",
        ),
    )
    rows = [
        (row.stage, *(_share(row, "r1", way, True) for way in WAYS), _loss(row, drift))
        for row in drift.survivors
    ]
    styles = [_style(row, drift) for row in drift.survivors]
    return make_table("R@1 in percent, with 95% intervals", columns, rows, styles, sortable=False)


def _share(row: StageRow, figure: str, way: str, with_interval: bool) -> Content:
    """A share of a row's retrieval: `r1`, `r5`, `r10` or `map`."""
    found = row.mean_precision if figure == "map" else row.retrieval
    if found is None:
        return None
    value = getattr(found, way)
    value = value if figure == "map" else getattr(value, figure)
    interval = row.intervals.get(f"{figure}_{way}") if with_interval else None
    note = "" if interval is None else percent_range(interval.low, interval.high)
    return Cell(percent(value), value, note)


def _loss(row: StageRow, drift: DriftFindings) -> Content:
    loss = row.losses.get("r1_loss")
    if loss is None or row.stage == drift.reference.name:
        return None
    return Cell(percent(loss.value), loss.value, percent_range(loss.low, loss.high))


def _style(row: StageRow, drift: DriftFindings) -> str:
    compiled = row.stage in (drift.final.stage, "compiled model")
    cause = row.stage == drift.headline.cause
    return " ".join(["result"] * compiled + ["cause"] * cause)


def drift_table(drift: DriftFindings) -> Table:
    """The drift of every stage; shares in percent."""
    against, surrogate = drift.reference.name, drift.surrogate
    columns = (
        Column("stage"),
        Column(
            "RMSE",
            number,
            f"root mean square difference of the {drift.score} from {against}; "
            "± is that reference's own standard error, where it is sampled",
        ),
        Column(
            "centred",
            number,
            "RMSE after removing each query's mean difference, which ranks nothing",
            essential=False,
        ),
        Column(
            "% of\nspread",
            percent,
            "RMSE as a share of the mean spread of the reference within a query",
        ),
        Column("bias", number, "mean difference", essential=False),
        Column("max", number, "largest difference"),
        Column(
            "step",
            number,
            "RMSE against the row before: what this step alone changed; * is the largest",
        ),
        Column(
            "vs\nMC",
            number,
            "RMSE against Monte Carlo, whose own scatter is in it",
            essential=False,
        ),
        Column("vs\nfloat", number, f"RMSE against the float {surrogate}: all that was lost since"),
        Column(
            "top-1\n%",
            percent,
            "queries with the reference's best item, the worse of both directions",
        ),
        Column("float\ntop-1", percent, f"the same against the float {surrogate}", essential=False),
        Column(
            "rank\ncorr.",
            number,
            "Spearman's rank correlation with the reference, mean over queries",
            essential=False,
        ),
    )
    return make_table(
        f"Drift from {against}, stage by stage",
        columns,
        [_drift_cells(row, drift) for row in drift.shown],
        [_style(row, drift) for row in drift.shown],
    )


def _drift_cells(row: StageRow, drift: DriftFindings) -> Sequence[Content]:
    def off(figure: str) -> float | None:
        return getattr(row.drift, figure, None)

    step: Content = row.step_rmse
    if row.step_rmse is not None and row.stage == drift.headline.cause:
        step = Cell(f"{number(row.step_rmse)} *", row.step_rmse)
    return (
        row.stage,
        _rmse(row, drift),
        off("centred_rmse"),
        off("relative_rmse"),
        off("bias"),
        off("max_abs"),
        step,
        row.monte_carlo_rmse,
        row.float_rmse,
        off("top1_agreement"),
        row.float_top1,
        off("spearman"),
    )


def _rmse(row: StageRow, drift: DriftFindings) -> Content:
    """The RMSE; the scatter of Monte Carlo in its own row; what is not known by these words."""
    scatter = drift.scatter
    if row.drift is not None:
        return row.drift.logit_rmse
    if row.retrieval is None:
        return Cell(NOT_KNOWN, math.nan)
    if row.stage != drift.reference.name or scatter is None or scatter.rmse:
        return None
    return Cell(f"±{number(scatter.standard_error)}", math.nan)


def retrieval_table(drift: DriftFindings, intervals: bool = False) -> Table:
    """How well every stage retrieves, with `intervals` where they are known."""
    maps = drift.final.mean_precision is not None
    gaps = drift.final.cosine_gap is not None
    columns = [Column("stage")]
    for arrow in ARROWS.values():
        columns += [
            Column(f"{arrow}\nR@1", percent),
            Column(f"{arrow}\nR@5", percent, essential=False),
            Column(f"{arrow}\nR@10", percent),
            Column(f"{arrow}\nrank", "{:g}".format, essential=False),
        ]
    columns += [Column(f"{arrow}\nmAP", percent) for arrow in ARROWS.values() if maps]
    columns += [Column("cosine\ngap", number, essential=False)] * gaps
    rows = []
    for row in drift.shown:
        cells: list[Content] = [row.stage]
        for way in WAYS:
            cells += [_share(row, f"r{k}", way, intervals) for k in RECALLS]
            cells.append(getattr(getattr(row.retrieval, way, None), "median_rank", None))
        cells += [_share(row, "map", way, intervals) for way in WAYS if maps]
        rows.append([*cells, *[row.cosine_gap] * gaps])
    return make_table(
        "Retrieval in percent (rank: the median), t>v text to video, v>t video to text",
        columns,
        rows,
        [_style(row, drift) for row in drift.shown],
    )


def layer_table(causes: Causes) -> Table:
    """Every layer, its worst column and a picture of its column sums."""
    columns = (
        Column("layer"),
        Column("weights", whole),
        Column(
            "SQNR",
            "{:.1f}".format,
            "signal to quantisation noise of its output, with all errors that arrive",
            unit="dB",
        ),
        Column(
            "own", "{:.1f}".format, "the same, of its own weights and converters alone", unit="dB"
        ),
        Column(
            "clipped",
            fine_percent,
            "column sums beyond the codes of the converter, of the worst slice",
            unit="%",
        ),
        Column("of", help="the slice that is clipped most"),
        Column(
            "range used",
            percent,
            "the part of the converter's codes that is used, of that slice",
            unit="%",
        ),
        Column("column sums, slice by slice", help="each from its lowest sum to its highest"),
    )
    return make_table(
        f"On up to {LAYER_ROWS} rows of each modality, column sums on the first {SUM_ROWS} of them",
        columns,
        [_layer_cells(one, index) for index, one in enumerate(causes.layers)],
    )


def _layer_cells(one: LayerFinding, index: int) -> Sequence[Content]:
    worst = max(one.converters, key=lambda column: (column.clipped, column.used))
    in_projector = one.layer.partition(".")[0] in MODALITIES
    pictures = "".join(sums_picture(column, one.layer) for column in one.converters)
    return (
        one.layer,
        Cell(f"{one.inputs:,} x {one.outputs:,}", one.inputs * one.outputs),
        _decibels(one.sqnr_db) if in_projector else None,
        _decibels(one.own_sqnr_db),
        _clipped(worst),
        worst.column,
        worst.used,
        Cell("", index, picture=pictures),
    )


def _decibels(value: float | None) -> Content:
    """Signal to noise; where there is no noise it is best of all."""
    return Cell("no noise", math.inf) if value is None else value


def _clipped(column: ColumnSums) -> Cell:
    if column.step is None:
        return Cell("lossless", 0.0)
    style = "bad" if column.clipped else ""
    return Cell(fine_percent(column.clipped), column.clipped, style=style)


def column_table(causes: Causes) -> Table:
    """Every slice of every layer."""
    columns = (
        Column("layer"),
        Column("column"),
        Column("ADC bits", whole),
        Column("step", whole, "the converter's step, in units of a column sum"),
        Column("conversions", whole, "column sums that were looked at"),
        Column("clipped", fine_percent, unit="%"),
        Column("range used", percent, unit="%"),
        Column("lowest", whole),
        Column("highest", whole),
    )
    rows = [
        (
            one.layer,
            column.column,
            column.adc_bits,
            None if column.step is None else 2**column.step,
            column.conversions,
            _clipped(column),
            column.used,
            column.lowest,
            column.highest,
        )
        for one in causes.layers
        for column in one.converters
    ]
    return make_table("Column sums by layer and slice", columns, rows)


def sensitivity_table(causes: Causes) -> Table:
    """Every part alone in integers, and every part left in real numbers."""
    found = causes.sensitivity
    columns = (
        Column("part"),
        Column("kind"),
        Column("bits", whole, "of a stored value"),
        Column("alone: RMSE", number, "only this part in integers, all others in real numbers"),
        Column("alone: top-1 %", percent),
        Column("all but this: RMSE", number, "only this part in real numbers, all others compiled"),
        Column("all but this: top-1 %", percent),
    )
    return make_table(
        f"Parts on {found.texts} texts x {found.videos} videos; all compiled: RMSE "
        f"{number(found.rmse)} from the lowered model",
        columns,
        [tuple(vars(one).values()) for one in found.parts],
        ["cause" if one.part == found.costliest else "" for one in found.parts],
    )


def margin_table(drift: DriftFindings) -> Table:
    """Who leads or trails by more than the error."""
    columns = (
        Column("queries"),
        Column(
            "sigma",
            number,
            f"standard deviation of the error of a difference of two {drift.score}s",
        ),
        Column(
            "leads",
            percent,
            "the right item leads by more than 3 sigma: the error cannot undo it",
            unit="%",
        ),
        Column("open", percent, "within 3 sigma: the error may decide", unit="%"),
        Column("trails", percent, "trails by more than 3 sigma: lost before the error", unit="%"),
    )
    rows = [
        (WAY_NAMES[one.way], one.sigma, one.leads, one.open, one.trails) for one in drift.margins
    ]
    return make_table("The right item's lead in the reference", columns, rows)


def curve_table(drift: DriftFindings, way: str) -> Table:
    """R@K against the size of the gallery."""
    found = [one for one in drift.curves if one.way == way]
    columns = [Column("gallery", whole)]
    columns += [Column(f"{one.stage}, R@{one.k}", percent) for one in found]
    sizes = found[0].sizes if found else ()
    rows = [(size, *(one.recall[index] for one in found)) for index, size in enumerate(sizes)]
    return make_table(f"R@K {WAY_NAMES[way]} by gallery, in percent", columns, rows)


def domain_table(saturation: Saturation) -> Table:
    """Pairs outside the domain of the compiled score."""
    columns = (
        Column("stage"),
        Column("statistic"),
        Column("domain", number),
        Column("seen", number),
        Column("pairs outside", fine_percent, unit="%"),
        Column("right pairs outside", whole),
    )
    rows = [
        (
            one.stage,
            one.statistic,
            _span(one.lo, one.hi),
            _span(one.seen_lo, one.seen_hi),
            one.outside,
            Cell(
                f"{one.right_outside:,} of {one.right:,}",
                one.right_outside,
                style="bad" if one.right_outside else "",
            ),
        )
        for one in saturation.domains
    ]
    return make_table("Pairs against the domain that calibration fixed", columns, rows)


def _span(lo: float, hi: float) -> Cell:
    return Cell(f"{lo:.4g} to {hi:.4g}", hi - lo)


def stored_table(saturation: Saturation) -> Table:
    """How often each stored value of the projectors is clipped by its format."""
    columns = (
        Column("value"),
        Column("role"),
        Column("bits", whole),
        Column("clipped", fine_percent, unit="%"),
    )
    rows = [tuple(vars(one).values()) for one in saturation.stored]
    return make_table("Stored values and how often their format clips them", columns, rows)


def figure_table(target: Target) -> Table:
    """The figures of the target that costs rest on."""
    columns = (
        Column("figure"),
        Column("value", whole),
        Column("of"),
        Column("standing"),
        Column("source"),
    )
    rows = [
        (
            one.quantity,
            Cell(f"{one.value:g} {'' if one.unit == '1' else one.unit}".strip(), one.value),
            one.scope,
            one.status,
            Cell(one.source, style="long"),
        )
        for one in target.figures
    ]
    return make_table("Figures of the target", columns, rows)
