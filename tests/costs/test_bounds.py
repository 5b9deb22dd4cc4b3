"""The part that bounds a query by the size of the gallery."""

from __future__ import annotations

from pathlib import Path

import pytest

from cimtool import api
from cimtool.costs.bounds import SIZES, QueryBound, bound_table, bounds_text, query_bounds
from cimtool.costs.estimate import Estimate
from cimtool.costs.totals import Cost
from cimtool.ir.program import Graph


def test_parts_grow_with_the_gallery_and_arrays_do_not(small_bundle: Path) -> None:
    found = api.cost(small_bundle, gallery=50)
    points = query_bounds(found)
    assert [one.items for one in points] == sorted({*SIZES, 50})
    first, last = points[0], points[-1]
    assert last.times["digital"] > 1e6 * (first.times["digital"] / 10)
    assert last.times.get("arrays") == first.times.get("arrays")
    # Beyond the buffer of 1 MiB items come from DRAM, at 25.6 GB/s.
    assert "memory" not in first.times
    large = api.cost(small_bundle, gallery=SIZES[-1])
    assert large.query is not None
    read = large.query.digital.tallies["dram"].size
    assert last.times["memory"] == pytest.approx(read / 8 / 25.6)
    assert last.bound == max(last.times, key=lambda name: last.times[name])
    (table,) = bound_table(points)
    assert len(table.rows) == len(points)


def test_the_projector_is_counted_once_and_a_score_for_each_size(
    small_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, walked, walk = api.cost(small_bundle, gallery=50), [], Estimate.walk

    def counted(self: Estimate, graph: Graph, items: int = 0) -> Cost:
        walked.append(graph.name)
        return walk(self, graph, items)

    monkeypatch.setattr(Estimate, "walk", counted)
    points = query_bounds(found)
    assert sorted(walked) == ["score"] * len(points) + ["text"]
    monkeypatch.undo()
    other = api.cost(small_bundle, gallery=SIZES[3])
    assert other.query == found.with_gallery(SIZES[3]).query


def test_without_a_gallery_nothing_is_said(small_bundle: Path) -> None:
    assert query_bounds(api.cost(small_bundle)) == ()
    assert bound_table(()) == []


def test_bounds_are_named_where_they_change() -> None:
    points = [QueryBound(1, {"arrays": 3, "digital": 1}), QueryBound(10, {"arrays": 3})]
    points += [QueryBound(100, {"arrays": 3, "digital": 4}), QueryBound(1000, {"digital": 4})]
    assert bounds_text(points) == "a query is bound by arrays, from 100 items on by digital"
