"""Ways of a query in arrays: what few items tell is what a programmed gallery takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cimtool import api
from cimtool.bundle.matcher import open_bundle
from cimtool.costs.bundle_cost import BundleCost
from cimtool.costs.ways import ENOUGH, GalleryWay
from cimtool.demo.data import DemoFiles
from cimtool.galleries.gallery_ways import gallery_ways, stand_ins


@pytest.fixture(scope="module", params=["hybrid", "in-memory"])
def bundle(
    request: pytest.FixtureRequest, small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("ways") / request.param
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        output=folder, target="hermes-pcm-14nm", score_mapping=request.param, accumulator_bits=40,
    )  # fmt: skip
    return folder


def ways_of(found: BundleCost) -> list[GalleryWay]:
    items = found.gallery or 0
    return [way.at(items) for way in gallery_ways(found.bundle, found, found.pairs)]


@pytest.mark.thorough("other ways of a gallery; one is in the first tier", quick=("hybrid",))
def test_a_way_takes_what_a_programmed_gallery_takes(
    bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with np.load(small_trunk.eval) as held:
        items = np.tile(held["video"], (5, 1))
    programmed = api.program(bundle, {"video": items}, output=tmp_path / "held")
    cost = api.cost(programmed.bundle.folder)
    expected = cost.query
    assert expected is not None
    ways = ways_of(api.cost(bundle, gallery=len(items)))
    hybrid = programmed.gallery.shortlist is not None
    kind, stored = ("shortlist", "items of whole mu") if hybrid else ("in the memory", "the whole")
    (found,) = [one for one in ways if one.kind == kind and one.note.startswith(stored)]
    assert found.cells == programmed.use.cells // len(items)
    assert (found.arrays, found.chips) == (programmed.use.arrays, cost.floorplan.chips)
    conversions = expected.conversions - cost.text.conversions
    assert found.conversions == pytest.approx(conversions, rel=0.02)
    for one, other in (
        (found.energy_pj, expected.energy_pj), (found.latency_ns, expected.latency_ns)
    ):  # fmt: skip
        assert one.value is not None
        assert one.value == pytest.approx(other.value, rel=0.05)
    # The programmed bundle has its own way of this kind, and no other in arrays.
    (own,) = [one for one in cost.ways if one.kind == kind]
    # The parts of both are the same; their sums are taken in different orders.
    known = expected.energy_pj
    ends = {
        name: pytest.approx(getattr(known, name), rel=1e-12) for name in ("value", "low", "high")
    }
    assert own.energy_pj == replace(known, **ends)
    assert ("`cimtool verify` measures the share of best items" in own.unmeasured) == hybrid
    assert not ways_of(cost)


@pytest.mark.thorough("a second way of a gallery", quick=())
def test_stand_ins_take_what_calibration_items_take(
    small_trunk: DemoFiles, bundle: Path, tmp_path: Path
) -> None:
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        drift="given", output=tmp_path / "digital", target="hermes-pcm-14nm", accumulator_bits=40,
    )  # fmt: skip
    known, estimated = (
        {(one.kind, one.note.partition(";")[0]): one for one in ways_of(found)}
        for found in (
            api.cost(bundle, gallery=100_000), api.cost(tmp_path / "digital", gallery=100_000)
        )
    )  # fmt: skip
    assert set(estimated) < set(known)
    assert len(estimated) == 3
    for key, one in estimated.items():
        assert one.note.endswith("; estimated from the bits of features")
        assert one.energy_pj.value == pytest.approx(known[key].energy_pj.value, rel=0.15)
        assert one.cells == pytest.approx(known[key].cells, rel=0.15)


def test_stand_ins_reach_both_ends_of_every_range(small_bundle: Path) -> None:
    program = open_bundle(small_bundle).program
    found = stand_ins(program, ends=True)
    assert set(found) == set(program.score.inputs)
    for name, values in found.items():
        known = program.score.inputs[name]
        assert np.all((known.lo <= values) & (values <= known.hi))
        if values.ndim == 2:
            for row in values:
                assert np.any(row == known.lo)
                assert np.any(row == known.hi)
    again = stand_ins(program, ends=True)
    assert all(np.array_equal(values, again[name]) for name, values in found.items())


@pytest.mark.thorough("other ways of a gallery; one is in the first tier")
def test_conversions_of_the_score_grow_by_the_item(small_trunk: DemoFiles, tmp_path: Path) -> None:
    # The largest values lie in the second half of these items, and take further bits.
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.train,
        output=tmp_path / "b", target="isaac-rram-128", score_mapping="hybrid",
    )  # fmt: skip
    counts = []
    for items in (1, 3):
        ways = ways_of(api.cost(tmp_path / "b", gallery=items))
        counts += [one.conversions or 0 for one in ways if one.kind == "in the memory"]
    assert counts[1] == 3 * counts[0] > 0


@pytest.mark.thorough("more of the same kind")
def test_exact_scores_of_a_shortlist_read_what_holds_the_whole_gallery(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        output=tmp_path / "b", target="isaac-rram-128", score_mapping="hybrid",
    )  # fmt: skip
    made = api.program(tmp_path / "b", small_trunk.eval, shortlist=10)
    small = api.cost(made.bundle.folder)
    large = replace(small, gallery=1_000_000)
    for found, memory in ((small, "sram"), (large, "dram")):
        assert found.score is not None
        assert found.gallery_bytes is not None
        read = 10 * 8 * found.gallery_bytes // (found.gallery or 1)
        assert found.score.digital.tallies[memory].size >= read
    assert small.score is not None
    assert "dram" not in small.score.digital.tallies


def test_few_bits_take_least(bundle: Path) -> None:
    ways = {one.note: one for one in ways_of(api.cost(bundle, gallery=100_000))}
    assert any("components" in name for name in ways)
    whole = ways["items of whole mu"]
    few = ways["items of 2 bits of 2 components with queries of 4"]
    assert few.cells is not None
    assert whole.cells is not None
    assert few.cells < whole.cells
    assert not ways_of(api.cost(bundle))


def test_shortlists_are_measured_on_data_and_the_cheapest_that_holds_enough_comes_first(
    bundle: Path, small_trunk: DemoFiles
) -> None:
    found = api.cost(bundle, gallery=100, data=small_trunk.eval)
    ways = [one for one in ways_of(found) if one.kind == "shortlist"]
    # A list of all items loses nothing.
    assert {one.recall.value for one in ways if one.recall} == {1.0}
    assert {(one.measured_list, one.measured_of) for one in ways} == {(40, 40)}
    digital, chosen = (
        next(one for one in found.ways if one.kind == kind) for kind in ("digital", "shortlist")
    )
    assert chosen.r1 == digital.r1
    assert chosen.energy_pj.value == min(one.energy_pj.value or 0 for one in ways)


def test_a_list_is_measured_as_its_share_of_the_items_at_hand(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        output=tmp_path / "b", target="isaac-rram-128", score_mapping="hybrid", shortlist=100,
    )  # fmt: skip
    wide, narrow, short = (
        [one for one in ways_of(found) if one.kind == "shortlist"]
        for found in (
            api.cost(tmp_path / "b", gallery=n, data=small_trunk.eval) for n in (4000, 3999, 4001)
        )
    )
    # 100 of 4,000 items are 1 of 40, of 4,001 they are fewer than one.
    assert {one.measured_list for one in (*wide, *narrow)} == {1}
    assert [(one.r1, one.recall) for one in wide] == [(one.r1, one.recall) for one in narrow]
    assert any(one.recall is not None and one.recall.value < 1 for one in wide)
    assert not any(one.unmeasured for one in wide)
    for one in short:
        assert (one.r1, one.recall, one.measured_list) == (None, None, None)
        assert one.unmeasured == (
            "of 4,001 items it is fewer than one of the 40 that it is measured on; expected a list "
            "of at least 101, or at least 41 items to measure on"
        )


def test_the_list_that_holds_enough_is_the_shortest(bundle: Path, small_trunk: DemoFiles) -> None:
    found = api.cost(bundle, gallery=100, data=small_trunk.eval)
    short = set()
    for way in gallery_ways(found.bundle, found, found.pairs):
        if way.kind != "shortlist":
            continue
        sizes = [way.at(items) for items in range(100, 4001, 100)]
        enough = [one.enough_list is not None and one.enough_list <= 100 for one in sizes]
        assert [one.recall is not None and one.recall.value >= ENOUGH for one in sizes] == enough
        assert enough[0]
        # R@1 is that of the size that was asked for.
        assert [one.r1 is not None for one in sizes] == [True] + [False] * (len(sizes) - 1)
        short.add(enough[-1])
    assert False in short


@pytest.mark.thorough("one length stands for the others", quick=("25-1000",))
@pytest.mark.parametrize(("length", "gallery"), [(1, 40), (25, 1000)])
def test_what_a_short_list_finds_is_what_a_programmed_bundle_answers(
    small_trunk: DemoFiles, tmp_path: Path, length: int, gallery: int
) -> None:
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        output=tmp_path / "b", target="isaac-rram-128", score_mapping="hybrid", shortlist=length,
    )  # fmt: skip
    found = api.cost(tmp_path / "b", gallery=gallery, data=small_trunk.eval)
    stored = "items of 2 bits of mu with queries of 4"
    (few,) = [one for one in ways_of(found) if one.note == stored]
    assert few.way == f"chip, shortlist of {length}"
    made = api.program(
        tmp_path / "b", small_trunk.eval, shortlist_bits=2, query_bits=4, shortlist=1
    )
    top = api.simulate(made.bundle.folder, small_trunk.eval)["top_index"]
    assert found.pairs is not None
    right = found.pairs.truth.text_to_video
    assert few.r1 is not None
    assert few.r1.value == pytest.approx((top[:, 0] == right).mean())
    best = found.pairs.scores.argmax(axis=1)
    assert few.recall is not None
    assert few.recall.value == (top == best[:, None]).any(axis=1).mean() < 1
