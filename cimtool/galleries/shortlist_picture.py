"""A picture of what a search for a shortlist found: recall against cells, for several lengths."""

from __future__ import annotations

from collections.abc import Iterator

from cimtool.galleries.shortlists import Places, Recall, ShortlistSearch
from cimtool.report import svg
from cimtool.report.charts import Points, curves

LENGTHS = (1, 10, 50)
"""Lengths of shortlists that are drawn, beside the one that was taken: four signs tell apart."""

HEIGHT = 330.0
"""Units that a picture of the file is high."""


def search_svg(search: ShortlistSearch, title: str) -> str:
    """The most that shortlists of some lengths hold, by the cells that an item takes of them.

    Two pictures: the share of queries whose best item is held, and the share of their best ten.
    Every point is a setting that none of fewer cells is better than.
    """
    taken = search.chosen
    said = f"taken: {taken.bits}; a shortlist of {taken.length}, {taken.cells:,} cells an item"
    asked = f"shares of the {sum(search.queries)} calibration queries"
    lengths = sorted({taken.length, *(one for one in LENGTHS if one <= search.most)})
    pictures = [
        curves(
            [Points(f"L = {length}", list(_front(search, length, ten))) for length in lengths],
            "cells an item",
            name,
            f"{name} against cells an item",
        )
        for name, ten in (("best item held", False), ("best ten held", True))
    ]
    parts = [
        svg.text(16, 24, title, style="title"),
        svg.text(16, 44, said, style="soft"),
        svg.text(16, 64, asked, style="soft"),
        *(svg.group(16, 80 + i * HEIGHT, 1, [one]) for i, one in enumerate(pictures)),
    ]
    return svg.file_text(svg.WIDTH + 32, 80 + 2 * HEIGHT, title, f"{said}; {asked}", parts)


def _front(search: ShortlistSearch, length: int, ten: bool) -> Iterator[tuple[float, float]]:
    """Cells and recall of the trials that none of fewer cells is better than."""
    best = -1.0
    found = [(one.cells, Recall.of(Places.joined(one.places), length)) for one in search.trials]
    values = ((cells, one.best_ten if ten else one.best.value) for cells, one in found)
    for cells, value in sorted(values, key=lambda pair: (pair[0], -pair[1])):
        if value > best:
            best = value
            yield cells, value
