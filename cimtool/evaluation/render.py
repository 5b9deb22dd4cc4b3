"""An evaluation as a table for a terminal: a line a figure, a column a subject."""

from __future__ import annotations

from cimtool.evaluation.run import Evaluation, Score
from cimtool.reference.queries import RECALLS, WAYS

ARROWS = {"text_to_video": "text to video", "video_to_text": "video to text"}
Cells = list[str]


def table_rows(found: Evaluation) -> list[Cells]:
    """Headings, then a line a figure; each subject after the first also less the first."""
    head = ["", *(f"{one.name} ({one.kind}, {one.head})" for one in found.scores[:1])]
    for one in found.scores[1:]:
        head += [f"{one.name} ({one.kind}, {one.head})", "less the first"]
    known = found.scores[0].figures
    return [head, *([label, *_cells(found, name)] for label, name in _lines() if name in known)]


def _lines() -> list[tuple[str, str]]:
    """The label and the name of every figure that there may be."""
    found = []
    for way in WAYS:
        figures = {f"R@{k}, %": f"r{k}" for k in RECALLS} | {
            "median rank": "median_rank",
            "mean rank": "mean_rank",
            "mAP, %": "map",
            "mAP@50, %": "map50",
        }
        found += [(f"{ARROWS[way]}: {label}", f"{name}_{way}") for label, name in figures.items()]
    return [*found, ("cosine gap", "cosine_gap")]


def _cells(found: Evaluation, name: str) -> Cells:
    first, *others = found.scores
    cells = [_figure(first, name)]
    for one in others:
        cells += [_figure(one, name), _difference(one, name)]
    return cells


def _figure(score: Score, name: str) -> str:
    own = score.intervals[name]
    value, low, high = (_number(x, name) for x in (score.figures[name], own.low, own.high))
    return f"{value} [{low}, {high}]"


def _difference(score: Score, name: str) -> str:
    own = score.differences[name]
    value, low, high = (_number(x, name, "+") for x in (own.value, own.low, own.high))
    return f"{value} [{low}, {high}]" + (" *" if own.is_real else "")


def _number(value: float, name: str, sign: str = "") -> str:
    if name == "cosine_gap":
        return _rounded(value, 4, sign)
    return _rounded(value if "rank" in name else 100 * value, 1, sign)


def _rounded(value: float, digits: int, sign: str) -> str:
    return f"{round(value, digits) + 0.0:{sign}.{digits}f}"  # + 0.0: no -0.0 is printed


def sentences(found: Evaluation) -> list[str]:
    """What the figures are of, and all notes."""
    right = (
        "right is what has an item's label, and an item does not find itself"
        if found.leave_one_out
        else "right is what belongs to a query by text_to_video"
    )
    texts, videos = found.queries
    said = [
        f"{found.data}: {texts:,} texts and {videos:,} videos are queries; {right}.",
        f"In brackets: 95% of {found.resamples:,} resamples of the queries.",
    ]
    if len(found.scores) > 1:
        said.append("* a difference to the first, on the same queries, whose interval leaves out 0")
    return [*said, *found.notes]
