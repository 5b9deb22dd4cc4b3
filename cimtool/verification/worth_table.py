"""The figures that a verdict rests on, as a table with a row per comparison."""

from __future__ import annotations

from collections.abc import Iterator

from cimtool.base.intervals import Change
from cimtool.report.document import Sentence
from cimtool.report.formats import percent, percent_range, whole
from cimtool.report.table import Cell, Column, Content, Table, make_table
from cimtool.verification.drift import BaselineLoss
from cimtool.verification.worth import LEAST_QUERIES, LargerGallery, Standing, Worth, standing_of

WorthRow = tuple[list[Content], bool]
"""The cells of a row, and whether the first screen has it."""


def worth_table(worth: Worth, title: str = "", footnote: str = "") -> tuple[Table, ...]:
    """The compiled model beside raw rows, its float score and sampling; a `footnote` says on what.

    No table if nothing is known or if the float score is broken.
    """
    lines = [] if worth.broken else [*_ranked(worth), *_sampled(worth)]
    if not lines:
        return ()
    columns = (
        Column("compared with"),
        Column("its own", whole),
        Column("compiled", whole, "K is for errors whose mean square falls as 1/K"),
        Column("change [95%]", whole, "in points, with its 95% interval, of the worse direction"),
        Column("it is", help="the compiled model; not shown: the queries cannot tell"),
    )
    cells, kept = zip(*lines, strict=True)
    said = "; ".join(filter(None, (footnote, _ways(worth))))
    made = make_table(title, columns, cells, footnotes=[said] if said else (), sortable=False)
    return (made.named("worth", "verdict").keeping(kept),)


def _ways(worth: Worth) -> str:
    """The direction that each row is of; empty for items of one modality."""
    rows = (("raw rows", worth.of_raw), ("float score", worth.of_float))
    ways = {name: one.way for name, one in rows if one is not None and one.way}
    if len(set(ways.values())) == 1:
        return f"worse way: {next(iter(ways.values()))}"
    return ", ".join(f"{name} {way}" for name, way in ways.items())


def larger_gallery(worth: Worth) -> list[Sentence]:
    """The sentence on R@1 in a larger gallery, if one was asked for."""
    return [] if worth.larger is None else [Sentence(worth.larger.sentence, "detail")]


def _ranked(worth: Worth) -> Iterator[WorthRow]:
    """The comparisons of R@1 or mAP."""
    if worth.of_raw is not None:
        yield _loss(f"raw rows in int8, {worth.of_raw.metric} %", worth.of_raw), True
    if worth.larger is not None:
        yield _larger(worth.larger, worth.against_raw), True
    if worth.of_float is not None:
        yield _loss(f"float score, {worth.of_float.metric} %", worth.of_float), True


def _loss(name: str, one: BaselineLoss) -> list[Content]:
    loss = one.loss
    change = _points(loss.reversed, one.queries >= LEAST_QUERIES)
    standing = _cell_of(standing_of(loss, one.queries))
    return [name, percent(one.of_baseline), percent(one.of_stage), change, standing]


def _cell_of(standing: Standing) -> str:
    return standing.upper() if standing == "worse" else standing


def _points(gain: Change, sure: bool) -> Cell:
    ends = percent_range(gain.low, gain.high) if sure else ""
    return Cell(f"{100 * gain.value:+.1f}", gain.value, ends)


def _larger(one: LargerGallery, standing: Standing | None) -> list[Content]:
    """R@1 of texts, extrapolated; without raw rows it has its own interval."""
    name, sure, found = f"R@1 % in {one.items:,} items", one.queries >= LEAST_QUERIES, one.compiled
    if one.raw is None or one.gain is None:
        ends = percent_range(found.low, found.high) if sure else ""
        return [name, None, Cell(percent(found.value), found.value, ends), None, None]
    change = _points(one.gain, sure)
    figures = percent(one.raw.value), percent(found.value)
    return [name, *figures, change, _cell_of(standing or "not shown")]


def _sampled(worth: Worth) -> Iterator[WorthRow]:
    """The K of the same error; that of whole scores leads only if it stands otherwise."""
    one = worth.sampled
    if one is None:
        return
    sure, differs = one.queries >= LEAST_QUERIES, one.standing_whole != one.standing
    for name, found, standing, leads in (
        ("as exact as K samples", one.centred, one.standing, True),
        ("the same, by whole scores", one.whole, one.standing_whole, differs),
    ):
        cell: Content = "no error"
        if found.value < float("inf"):
            ends = f"[{_samples(found.low)}, {_samples(found.high)}]"
            cell = Cell(
                _samples(found.value), found.value, ends if sure and found.high >= 1 else ""
            )
        yield [name, f"{one.samples:,}", cell, None, _cell_of(standing)], leads


def _samples(k: float) -> str:
    """K to two digits; below 1 no K errs as much."""
    return "< 1" if k < 1 else f"{float(f'{k:.2g}'):,.0f}"
