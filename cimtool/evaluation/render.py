"""An evaluation for a terminal: a table with a row a metric, a column a subject, and sentences."""

from __future__ import annotations

from cimtool.evaluation.run import Evaluation
from cimtool.reference.bootstrap import Change
from cimtool.reference.queries import RANK_METRICS, RECALLS, WAY_NAMES
from cimtool.report.table import Cell, Column, Content, Table, make_table


def evaluation_table(found: Evaluation) -> Table:
    """Each metric of each subject, and of each after the first what it is less the first's."""
    columns = [Column("")]
    for number, one in enumerate(found.scores):
        columns.append(Column(f"{one.name} ({one.kind}, {one.head})", str))
        columns += [Column("less the first", str)] * (number > 0)
    known = found.scores[0].metrics
    rows = [(label, *_cells(found, name)) for name, label in _labels().items() if name in known]
    return make_table("Retrieval", columns, rows, footnotes=sentences(found))


def _labels() -> dict[str, str]:
    """The label of every metric that there may be, by its name."""
    metrics = {
        **{f"r{k}": f"R@{k}, %" for k in RECALLS},
        "median_rank": "median rank",
        "mean_rank": "mean rank",
        "map": "mAP, %",
        "map50": "mAP@50, %",
    }
    labels = {
        f"{name}_{way}": f"{said}: {label}"
        for way, said in WAY_NAMES.items()
        for name, label in metrics.items()
    }
    return {**labels, "cosine_gap": "cosine gap"}


def _cells(found: Evaluation, name: str) -> list[Content]:
    cells: list[Content] = []
    for number, one in enumerate(found.scores):
        interval = one.intervals[name]
        cells.append(_cell(Change(one.metrics[name], interval.low, interval.high), name, ""))
        cells += [_cell(one.differences[name], name, "+") for _ in range(number > 0)]
    return cells


def _cell(value: Change, name: str, sign: str) -> Cell:
    """A metric or, with a `sign`, a difference; `*` marks one whose interval leaves out 0."""
    text, low, high = (_number(x, name, sign) for x in (value.value, value.low, value.high))
    star = " *" if sign and value.is_real else ""
    return Cell(text, value.value, f"[{low}, {high}]{star}")


def _number(value: float, name: str, sign: str) -> str:
    digits, scale = (4, 1) if name == "cosine_gap" else (1, 1 if name in RANK_METRICS else 100)
    return f"{round(scale * value, digits) + 0.0:{sign}.{digits}f}"  # + 0.0: no -0.0 is printed


def warnings(found: Evaluation) -> list[str]:
    """Sentences that a reader must see before the metrics, each after its subject."""
    return [f"{one.name}: {text}" for one in found.scores for text in one.warnings]


def sentences(found: Evaluation) -> list[str]:
    """The queries, the resamples and all notes but `warnings`."""
    right = (
        "right is what has an item's label, and an item does not find itself"
        if found.leave_one_out
        else "right is what belongs to a query by text_to_video"
    )
    texts, videos = found.queries.values()
    said = [
        f"{found.data}: {texts:,} texts and {videos:,} videos are queries; {right}.",
        f"In brackets: 95% of {found.resamples:,} resamples of the queries.",
    ]
    if len(found.scores) > 1:
        said.append("* a difference to the first, on the same queries, whose interval leaves out 0")
    first = warnings(found)
    return [*said, *(note for note in found.notes if note not in first)]
