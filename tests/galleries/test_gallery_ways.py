"""Ways of a query side by side: what calibration items tell is what a programmed gallery takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cimtool import api
from cimtool.bundle.matcher import open_bundle
from cimtool.costs.totals import Quantity
from cimtool.demo.data import DemoFiles
from cimtool.galleries.gallery_ways import between, gallery_ways


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


@pytest.mark.thorough("other ways of a gallery; one is in the first tier", quick=("hybrid",))
def test_a_way_takes_what_a_programmed_gallery_takes(
    bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with np.load(small_trunk.eval) as held:
        items = np.tile(held["video"], (5, 1))
    programmed = api.program(bundle, {"video": items}, output=tmp_path / "held")
    cost = api.cost(programmed.bundle.folder)
    expected = cost.score
    assert expected is not None
    ways = gallery_ways(open_bundle(bundle), api.cost(bundle, gallery=len(items)))
    assert ways[0].way == "digital"
    hybrid = programmed.gallery.shortlist is not None
    name = "shortlist of 100: whole mu" if hybrid else "score in the memory"
    (found,) = [one for one in ways if one.way == name]
    assert found.cells == programmed.use.cells // len(items)
    assert (found.arrays, found.chips) == (programmed.use.arrays, programmed.use.chips)
    assert found.conversions == pytest.approx(expected.conversions, rel=0.02)
    for one, other in (
        (found.energy_pj, expected.energy_pj), (found.latency_ns, expected.latency_ns)
    ):  # fmt: skip
        assert one.value is not None
        assert one.value == pytest.approx(other.value, rel=0.05)
    assert not gallery_ways(open_bundle(programmed.bundle.folder), cost)


@pytest.mark.thorough("other ways of a gallery; one is in the first tier")
def test_conversions_of_the_score_grow_by_the_item(small_trunk: DemoFiles, tmp_path: Path) -> None:
    # The largest values lie in the second half of these items, and take further bits.
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.train,
        output=tmp_path / "b", target="isaac-rram-128", score_mapping="hybrid",
    )  # fmt: skip
    counts = []
    for items in (1, 3):
        ways = gallery_ways(open_bundle(tmp_path / "b"), api.cost(tmp_path / "b", gallery=items))
        counts += [one.conversions for one in ways if one.way == "score in the memory"]
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
    ways = {
        one.way: one for one in gallery_ways(open_bundle(bundle), api.cost(bundle, gallery=100_000))
    }
    assert any("components" in name for name in ways)
    whole = ways["shortlist of 100: whole mu"]
    few = ways["shortlist of 100: items of 2 bits of 2 components with queries of 4"]
    assert few.cells is not None
    assert whole.cells is not None
    assert few.cells < whole.cells
    assert not gallery_ways(open_bundle(bundle), api.cost(bundle))


def test_a_line_through_two_quantities() -> None:
    first, second = Quantity(1.0, (), 0.5, 2.0, 1.0), Quantity(3.0, ("x",), 1.5, 5.0, 2.0)
    assert between(first, second, 2.0) == Quantity(5.0, ("x",), 2.5, 8.0, 3.0)
    assert between(first, Quantity(None, ("all",)), 2.0) == Quantity(None, ("all",))
