"""Galleries that are loaded for each query: few loads tell what all take."""

from __future__ import annotations

import pytest
from quantities import known

from cimtool import api
from cimtool.costs import periodic_loads, wider_gallery
from cimtool.costs.bundle_cost import BundleCost
from cimtool.costs.periodic_loads import MOST_LOADS, loading_period, settled_periods, settled_time
from cimtool.costs.schedule import TICKS
from cimtool.costs.schedule_batch import key_of, spread
from cimtool.costs.totals import Quantity
from cimtool.costs.wider_gallery import WiderGallery
from cimtool.demo.data import DemoFiles
from cimtool.galleries.gallery_ways import ArrayWay, gallery_ways


def step_time(items: int) -> float:
    """10 ns a period of 8 items from the third on, 7 ns before; a ns an item beyond a period."""
    periods, rest = divmod(items, 8)
    return 7.0 * min(periods, 2) + 10.0 * max(periods - 2, 0) + rest


def test_the_time_of_many_periods_is_that_of_few_and_their_steps() -> None:
    assert settled_periods(step_time, 1000, 8) == 2
    for items in (7, 20, 999, 1000, 12_345):
        assert settled_time(step_time, items, 8, 2) == step_time(items)
    # A schedule that changes later has not settled; nor has one that ends before that shows.
    later = lambda items: 5.0 * items + 3.0 * max(items - 80, 0)  # noqa: E731
    assert settled_periods(later, 1000, 8) == 16
    assert settled_periods(later, 130, 8) is None
    # It never settles if each period takes longer than the last.
    assert settled_periods(lambda items: float(items) ** 2, 1000, 8) is None


@pytest.fixture(scope="module")
def loaded(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> BundleCost:
    folder = tmp_path_factory.mktemp("loaded") / "bundle"
    api.compile(
        small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
        drift="given", output=folder, target="dcim-28nm-isscc22", accumulator_bits=48,
    )  # fmt: skip
    return api.cost(folder, gallery=1000)


def wider(found: BundleCost, items: int) -> list[WiderGallery]:
    made = [getattr(way.at, "__self__", None) for way in gallery_ways(found.bundle, found)]
    return [one.pair.at(items) for one in made if isinstance(one, ArrayWay)]


BATCH = 32


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
        assert ends(told) == pytest.approx(ends(full_time(one, 1)), rel=1e-9)
        assert ends(one.wave_time(BATCH, ())) == pytest.approx(
            ends(full_time(one, BATCH)), rel=1e-9
        )
    assert seen


@pytest.mark.parametrize("wave", [1, BATCH])
def test_tiles_tell_to_a_thousandth_where_loads_do_not_repeat_soon(
    wave: int, loaded: BundleCost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(periodic_loads, "MOST_LOADS", 200)
    seen = 0
    for one in wider(loaded, 9001):
        few, many = wider_gallery.excerpts(one.stored, one.floorplan)
        assert many == 2 * few
        time, full = one.wave_time(wave, ()), full_time(one, wave)
        if many < 9001:
            seen += 1
            assert not wider_gallery.repeats_soon(one.stored, one.floorplan)
            assert ends(time) == pytest.approx(ends(full), rel=1e-3 * MOST_LOADS / 200)
            assert ends(time) != ends(full)
        else:
            assert ends(time) == pytest.approx(ends(full), rel=1e-9)
    assert seen


def ends(time: Quantity) -> tuple[float, float, float]:
    return known(time), time.low or 0.0, time.high or 0.0


def full_time(one: WiderGallery, wave: int) -> Quantity:
    """The time of a wave by the schedule of all items."""
    work = one.work(one.pair.graph_of(one), one.gallery or 0)
    key = key_of(work, wave)
    return spread(lambda end: work.pattern(key._replace(end=end)).length / TICKS, ())


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
