"""A grid of trainings in sentences: what is as good for less comes before what is best."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cimtool.base.intervals import Change
from cimtool.experiments.render_training import verdict
from cimtool.experiments.trained_points import TrainedPoint
from cimtool.experiments.training_grid import (
    TrainingGrid,
    TrainingPoint,
    TrainingRow,
    read_training_grid,
)
from cimtool.reference.queries import Queries
from cimtool.report.html import html
from cimtool.report.terminal import terminal
from cimtool.training.arguments import TrainingOptions

FIGURES = ("lead", "r1_text_to_video", "r1_video_to_text")


def row(width: int, share: float, behind: Change | None, points: tuple[int, ...]) -> TrainingRow:
    change = Change(share, share - 0.05, share + 0.05)
    values: dict[str, Any] = {"model.width": width} if width else {}
    return TrainingRow(values, points, dict.fromkeys(FIGURES, change), behind)


def grid(*behind: Change, raw: Change) -> TrainingGrid:
    """Widths 8, 4 and 2, the first of which is best, with what the others and raw are behind."""
    widths = [8, 4, 2][: 1 + len(behind)]
    rows = [row(8, 0.5, None, (0,))]
    rows += [row(widths[i], 0.5 - one.value, one, (i,)) for i, one in enumerate(behind, 1)]
    trained = TrainedPoint(1, 2, 10, 0, Queries(), None)
    return TrainingGrid(
        data="rows.npz",
        grid=read_training_grid({"model.width": widths}),
        common={},
        points=[TrainingPoint((), TrainingOptions())] * len(widths),
        outcomes=[replace(trained, weights=w) for w in widths],
        folders=[None] * len(widths),
        rows=rows,
        best=0,
        raw=row(0, 0.5 - raw.value, raw, ()),
        by_class=False,
        set_aside=False,
        queries={"texts": 20, "videos": 20},
        modalities=("text", "video"),
        resumed=0,
    )


CLEAR, CLOSE, BETTER = Change(0.2, 0.1, 0.3), Change(0.02, -0.01, 0.05), Change(-0.3, -0.4, -0.2)


def test_the_best_alone_where_others_are_surely_behind() -> None:
    (line,) = verdict(grid(CLEAR, raw=CLEAR))
    assert line == (
        "Best of 2 rows: row 0 (model.width=8), R@1 50.0% (45.0% to 55.0%), mean of both ways. "
        "Next is row 1 (model.width=4), 20.0 (10.0 to 30.0) points below: the interval of the "
        "difference leaves 0 out."
    )


def test_the_cheapest_that_is_as_good_comes_first() -> None:
    cheaper, best = verdict(grid(CLOSE, CLOSE, raw=CLEAR))
    assert cheaper == (
        "A cheaper row is not surely worse: row 2 (model.width=2), 2 weights in place of 8; its "
        "R@1 of 48.0% is 2.0 (-1.0 to 5.0) points below."
    )
    assert "the difference does not leave 0 out" in best
    heading, first, *_ = terminal(grid(CLOSE, raw=CLEAR).document()).splitlines()
    assert heading == "Trainings on rows.npz"
    assert first.startswith("A cheaper row is not surely worse: row 1 ")


def test_raw_embeddings_come_before_all() -> None:
    first = verdict(grid(CLOSE, raw=BETTER))[0]
    assert first == (
        "Raw embeddings by cosine, which no training made, are better than every row: R@1 80.0% of "
        "the raw ones, 50.0% of the best row, a difference of -30.0 (-40.0 to -20.0) points."
    )
    assert verdict(grid(CLEAR, raw=CLOSE))[0].startswith("No row is surely better than raw ")
    page = html(grid(CLEAR, raw=CLOSE).document())
    assert "No row is surely better than raw embeddings" in page
    assert page.count("<svg") == 2  # weights tell the rows apart
