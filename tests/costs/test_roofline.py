"""The time and energy of a query by the size of the gallery, and other machines beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cimtool import api
from cimtool.costs.estimate import Estimate
from cimtool.costs.roofline import (
    SIZES,
    RooflinePoint,
    bounds_of,
    other_machines,
    roofline,
    roofline_svg,
)
from cimtool.costs.totals import Cost
from cimtool.ir.program import Graph


def test_parts_grow_with_the_gallery_and_arrays_do_not(small_bundle: Path) -> None:
    found = api.cost(small_bundle, gallery=50)
    points = roofline(found)
    assert [one.items for one in points] == sorted({*SIZES, 50})
    assert next(one for one in points if one.items == 50).shown
    first, last = points[0], points[-1]
    assert last.times["digital"] > 1e6 * (first.times["digital"] / 10)
    # Beyond the buffer of 1 MiB items come from DRAM, at 25.6 GB/s.
    assert "memory" not in first.times
    large = api.cost(small_bundle, gallery=SIZES[-1])
    assert large.query is not None
    read = large.query.digital.tallies["dram"].size
    assert last.times["memory"] == pytest.approx(read / 8 / 25.6)
    assert last.bound == max(last.times, key=lambda name: last.times[name])
    picture = roofline_svg(found, "small")
    assert picture is not None
    assert picture.count("curve s0") == 2
    assert "bound by" in picture


def test_a_roofline_counts_the_projector_once_and_a_score_for_each_size(
    small_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, walked, walk = api.cost(small_bundle, gallery=50), [], Estimate.walk

    def counted(self: Estimate, graph: Graph, items: int = 0) -> Cost:
        walked.append(graph.name)
        return walk(self, graph, items)

    monkeypatch.setattr(Estimate, "walk", counted)
    points = roofline(found)
    assert sorted(walked) == ["score"] * len(points) + ["text"]
    monkeypatch.undo()
    other = api.cost(small_bundle, gallery=SIZES[3])
    assert other.query == found.with_gallery(SIZES[3]).query


def test_without_a_gallery_nothing_is_drawn(small_bundle: Path) -> None:
    found = api.cost(small_bundle)
    assert roofline(found) == other_machines(found) == ()
    assert roofline_svg(found, "small") is None


def test_bounds_are_named_where_they_change() -> None:
    def point(items: int, **times: float) -> RooflinePoint:
        return RooflinePoint(items, times, 1.0, 1.0, {}, True)

    points = [point(1, arrays=3, digital=1), point(10, arrays=3, digital=2)]
    points += [point(100, arrays=3, digital=4), point(1000, digital=4)]
    assert bounds_of(points) == [(1, "arrays"), (100, "digital")]


def test_a_machine_streams_the_gallery_and_the_weights_at_full_power(small_bundle: Path) -> None:
    found = api.cost(small_bundle, gallery=1000)
    gpu, cpu = other_machines(found)
    assert found.gallery_bytes is not None
    weights = sum(p.macs * p.weight_bits / 8 for p in found.placements if p.graph == "text")
    moved = found.gallery_bytes + weights
    assert (gpu.bound, cpu.bound) == ("memory", "memory")
    assert gpu.energy_pj == pytest.approx(1000 * 400 * moved / 1555)
    assert cpu.energy_pj == pytest.approx(1000 * 225 * moved / 204.8)
    assert gpu.status == "derived"
