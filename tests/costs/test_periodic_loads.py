"""Galleries that are loaded for each query: few loads tell what all take."""

from __future__ import annotations

import pytest
from quantities import known

from cimtool import api
from cimtool.costs.bundle_cost import BundleCost
from cimtool.costs.estimate import Estimate
from cimtool.costs.periodic_loads import loading_period, settled, settled_time
from cimtool.costs.totals import Quantity
from cimtool.costs.wider_gallery import WiderGallery
from cimtool.demo.data import DemoFiles
from cimtool.galleries.gallery_ways import ArrayWay, gallery_ways


def step_time(items: int) -> Quantity:
    """10 ns a period of 8 items from the third on, 7 ns before; a ns an item beyond a period."""
    periods, rest = divmod(items, 8)
    value = 7.0 * min(periods, 2) + 10.0 * max(periods - 2, 0) + rest
    return Quantity(value, ("arrays",), value / 2, value * 2)


def test_the_time_of_many_periods_is_that_of_few_and_their_steps() -> None:
    found = settled(step_time, 1000, 8)
    assert found is not None
    assert (found.periods, found.steps) == (2, (10, 5, 20))
    for items in (999, 1000, 12_345):
        told = settled_time(step_time, items, 8, found)
        assert told == step_time(items)
        assert told.missing == ("arrays",)
    assert settled_time(step_time, 20, 8, found) == step_time(20)
    # It never settles if each period takes longer than the last.
    assert settled(lambda items: Quantity(float(items) ** 2), 1000, 8) is None
    assert settled_time(lambda items: Quantity(2.0 * items), 7, 8, None).value == 14


@pytest.fixture(scope="module")
def loaded(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> BundleCost:
    folder = tmp_path_factory.mktemp("loaded") / "bundle"
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        output=folder, target="dcim-28nm-isscc22", accumulator_bits=48,
    )  # fmt: skip
    return api.cost(folder, gallery=1000)


def wider(found: BundleCost, items: int) -> list[WiderGallery]:
    made = [getattr(way.at, "__self__", None) for way in gallery_ways(found.bundle, found)]
    return [one.pair.at(items) for one in made if isinstance(one, ArrayWay)]


@pytest.mark.parametrize(
    "items",
    [
        4096,
        pytest.param(5001, marks=pytest.mark.thorough("more of the same kind")),
        pytest.param(7919, marks=pytest.mark.thorough("more of the same kind")),
        pytest.param(9215, marks=pytest.mark.thorough("more of the same kind")),
    ],
)
def test_few_loads_tell_what_a_full_schedule_takes(loaded: BundleCost, items: int) -> None:
    seen = 0
    for one in wider(loaded, items):
        assert one.periodic
        held = [place for place in one.placements if place.layer in one.pair.held]
        seen += items > 3 * loading_period(held, one.floorplan)
        graph = one.pair.graph_of(one)
        told = one.walk(graph).latency_ns
        whole = Estimate.latency(one, graph, items, told)
        assert (told.value, told.low, told.high) == pytest.approx(
            (whole.value, whole.low, whole.high), rel=1e-9
        )
    assert seen


def test_a_loaded_gallery_is_a_row_and_a_batch_shares_its_loads(loaded: BundleCost) -> None:
    one = {way.kind: way for way in loaded.ways}["shortlist"]
    many = {way.kind: way for way in api.cost(loaded.bundle.folder, gallery=1000, batch=16).ways}
    assert one.note.endswith("loaded for each query")
    assert many["shortlist"].note.endswith("loaded for each batch")
    assert one.chips == 1
    # DRAM is nearly all of it, and is read once for all.
    assert known(many["shortlist"].energy_pj) < known(one.energy_pj) / 4
    assert known(many["shortlist"].latency_ns) > known(one.latency_ns)


def test_ten_to_the_eighth_items_take_no_longer_to_estimate(loaded: BundleCost) -> None:
    (few, *_), (many, *_) = wider(loaded, 10**6), wider(loaded, 10**8)
    times = [known(one.walk(one.pair.graph_of(one)).latency_ns) for one in (few, many)]
    assert times[1] == pytest.approx(100 * times[0], rel=0.01)
