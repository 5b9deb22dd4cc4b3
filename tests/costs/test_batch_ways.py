"""Ways for a batch of queries, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from quantities import known

from cimtool import api
from cimtool.costs.bundle_cost import BundleCost
from cimtool.costs.raw_rows import raw_query
from cimtool.costs.schedule import TICKS
from cimtool.costs.schedule_batch import key_of
from cimtool.costs.ways import GalleryWay

ITEMS = 1_000_000


def rows(found: BundleCost) -> dict[str, GalleryWay]:
    return {one.kind: one for one in found.ways}


def at(bundle: Path, batch: int) -> BundleCost:
    return api.cost(bundle, gallery=ITEMS, batch=batch)


def test_raw_rows_in_dram_are_read_once_for_a_batch(small_bundle: Path) -> None:
    one, many = at(small_bundle, 1), at(small_bundle, 8)
    raw = raw_query(one)
    assert raw is not None
    read, digital = raw.parts["memory"], raw.parts["digital"]
    # Eight times the products, beside one read of the rows.
    time = max(8 * known(digital.time), known(read.time))
    way = rows(many)["raw rows"]
    assert way.batch == 8
    assert way.latency_ns.value == pytest.approx(time)
    assert way.queries_per_s.value == pytest.approx(8e9 / time)
    leaked = known(raw.parts["leakage"].energy)
    expected = known(raw.energy_pj) - 7 / 8 * known(read.energy)
    expected += leaked * (time / 8 / known(raw.latency_ns) - 1)
    assert way.energy_pj.value == pytest.approx(expected)


def test_rows_in_sram_are_read_for_each_query(small_bundle: Path) -> None:
    one, many = (api.cost(small_bundle, gallery=1000, batch=batch) for batch in (1, 8))
    assert rows(many)["raw rows"].energy_pj.value == pytest.approx(
        rows(one)["raw rows"].energy_pj.value
    )


def test_the_build_has_the_schedule_of_a_batch(small_bundle: Path) -> None:
    found = at(small_bundle, 8)
    way, schedule = rows(found)["digital"], found.schedules["query"]
    assert way.latency_ns == schedule.makespan_ns
    assert way.energy_pj == schedule.energy_pj
    assert known(way.energy_pj) < known(rows(at(small_bundle, 1))["digital"].energy_pj)


def test_sampling_and_the_gpu_have_the_same_batch(small_bundle: Path) -> None:
    one, many = rows(at(small_bundle, 1)), rows(at(small_bundle, 8))
    assert many["GPU in batches"].way == "raw int8 rows, GPU, batch 8"
    assert many["GPU in batches"].latency_ns == many["GPU"].latency_ns
    assert many["GPU in batches"].energy_pj.value == pytest.approx(known(many["GPU"].energy_pj) / 8)
    assert known(many["Monte Carlo"].energy_pj) < known(one["Monte Carlo"].energy_pj)
    # A core answers one query after another.
    assert many["CPU core"].energy_pj == one["CPU core"].energy_pj


def test_a_buffer_of_few_queries_takes_several_waves(small_bundle: Path) -> None:
    found = at(small_bundle, 64)
    width = int(found.program.text.inputs["x"].shape[-1])
    small = found.target.digital.model_copy(update={"buffer": 1})
    rates = replace(found.rates, target=found.target.model_copy(update={"digital": small}))
    tight = replace(found, rates=rates)
    held = 8192 // (8 * width)
    assert held < 64
    waves = -(-64 // held)
    raw = raw_query(tight)
    assert raw is not None
    read = known(raw.parts["memory"].energy)
    leaked, way = raw.parts["leakage"].energy, rows(tight)["raw rows"]
    share = known(way.latency_ns) / (64 * known(raw.latency_ns))
    expected = known(raw.energy_pj) - read * (1 - waves / 64) + known(leaked) * (share - 1)
    assert way.energy_pj.value == pytest.approx(expected)


def test_a_graph_of_the_digital_unit_alone_takes_the_sum_of_its_tasks(small_bundle: Path) -> None:
    found = at(small_bundle, 1)
    work = found.work(found.program.score, ITEMS)
    assert work.digital_alone
    assert not found.work(found.program.text).digital_alone
    length = work.pattern(key_of(work, 1)).length / TICKS
    assert found.score is not None
    assert found.score.latency_ns.value == pytest.approx(length)
