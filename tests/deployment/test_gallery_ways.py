"""Ways of a query side by side: what calibration items tell is what a programmed gallery takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cimtool import api
from cimtool.costs.totals import Quantity
from cimtool.deployment.gallery_ways import between, gallery_ways
from cimtool.training.demo_data import DemoFiles


@pytest.fixture(scope="module", params=["hybrid", "in-memory"])
def bundle(
    request: pytest.FixtureRequest, small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("ways") / request.param
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        output=folder, target="hermes-pcm-14nm", score_mapping=request.param,
    )  # fmt: skip
    return folder


def test_a_way_takes_what_a_programmed_gallery_takes(
    bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    with np.load(small_trunk.eval) as held:
        items = np.tile(held["video"], (5, 1))
    programmed = api.program(bundle, {"video": items}, output=tmp_path / "held")
    cost = api.cost(programmed.bundle.folder)
    expected = cost.score
    assert expected is not None
    ways = gallery_ways(bundle, api.cost(bundle, gallery=len(items)))
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
    assert not gallery_ways(programmed.bundle.folder, cost)


def test_few_bits_take_least(bundle: Path) -> None:
    ways = {one.way: one for one in gallery_ways(bundle, api.cost(bundle, gallery=100_000))}
    assert any("components" in name for name in ways)
    whole = ways["shortlist of 100: whole mu"]
    few = ways["shortlist of 100: items of 2 bits of 2 components with queries of 4"]
    assert few.cells is not None
    assert whole.cells is not None
    assert few.cells < whole.cells
    assert not gallery_ways(bundle, api.cost(bundle))


def test_a_line_through_two_quantities() -> None:
    first, second = Quantity(1.0, (), 0.5, 2.0, 1.0), Quantity(3.0, ("x",), 1.5, 5.0, 2.0)
    assert between(first, second, 2.0) == Quantity(5.0, ("x",), 2.5, 8.0, 3.0)
    assert between(first, Quantity(None, ("all",)), 2.0) == Quantity(None, ("all",))
