"""Raw rows on other machines: by hand, and measured on this one."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from cimtool import api
from cimtool.base import machine
from cimtool.bundle.bundle import read_bundle
from cimtool.costs import machines, raw_rows
from cimtool.costs.bundle_cost import bundle_cost
from cimtool.costs.machines import (
    MachineWork,
    core_way,
    full_batch,
    gpu_way,
    machine_work,
    measured_core,
)

RAW = MachineWork("raw int8 rows", 100_000 * 512, 2 * 100_000 * 512)
BUNDLE = Path(__file__).resolve().parents[2] / "exports" / "reference-small@isaac-rram-128"


def test_a_core_reads_its_share_of_the_bandwidth_at_its_share_of_the_power() -> None:
    way = core_way(100_000, RAW)
    # 51.2 MB at 204.8 / 64 GB/s, at 225 / 64 W.
    assert way.latency_ns.value == pytest.approx(51.2e6 / 3.2)
    energy = way.energy_pj
    assert energy.value == pytest.approx(16e6 * 225 / 64 * 1000)
    # A factor of 2 of the power, and upwards 1 / 0.67 of the time beside it.
    up = math.exp(math.hypot(math.log(2), math.log(1 / 0.67)))
    assert (energy.low, energy.high) == pytest.approx((28.125e9, 56.25e9 * up))
    # By itself a core has 18 GB/s.
    assert (way.latency_ns.low, way.latency_ns.high) == pytest.approx((51.2e6 / 18, 16e6 / 0.67))
    assert way.queries_per_s.value == pytest.approx(62.5)


def test_rows_that_the_cache_of_a_core_holds_may_take_no_longer_than_its_loads() -> None:
    # 0.768 MB at two loads of 32 bytes a cycle of 3.4 GHz, or as others leave it DRAM.
    way = core_way(1500, MachineWork("raw int8 rows", 1500 * 512, 2 * 1500 * 512))
    share = 0.768e6 / 3.2
    assert (way.latency_ns.low, way.latency_ns.value, way.latency_ns.high) == pytest.approx(
        (0.768e6 / (2 * 32 * 3.4), share, share / 0.67)
    )
    down = math.exp(-math.hypot(math.log(2), math.log(2 * 32 * 3.4 / 3.2)))
    assert way.energy_pj.low == pytest.approx(share * 225 / 64 * 1000 * down)
    most = 16 * 2**20
    ends = [core_way(n, MachineWork("rows", n, 2 * n)).latency_ns.low for n in (most, most + 1)]
    assert ends == pytest.approx([most / 217.6, (most + 1) / 18])


def test_a_core_that_is_measured_lies_in_the_interval_of_the_one_that_is_known() -> None:
    work = MachineWork("raw int8 rows", 1500 * 384, 2 * 1500 * 384)
    known, measured = core_way(1500, work), core_way(1500, work, measured_core(384, 1500))
    assert (known.latency_ns.low or 0) < (measured.latency_ns.value or 0)


def test_a_gpu_reads_the_rows_for_one_query_or_once_for_a_batch() -> None:
    gpu = machines.machines().gpu
    way = gpu_way(gpu, 100_000, RAW)
    # 9 us (5.3 to 20) until a kernel is launched and waited for, in which the GPU does not work.
    read = 51.2e6 / 1555
    assert way.latency_ns.value == pytest.approx(9000 + read)
    assert (way.latency_ns.low, way.latency_ns.high) == pytest.approx(
        (5300 + read, 20000 + read / 0.73)
    )
    assert way.energy_pj.value == pytest.approx(read * 400 * 1000)
    # Two operations a byte: 624 TOPS take as long as 1,555 GB/s at 200.6 queries.
    batch = full_batch(gpu, RAW)
    assert batch == 201
    many = gpu_way(gpu, 100_000, RAW, batch)
    time = 201 * 2 * 51.2e6 / 624e3
    assert many.latency_ns.value == pytest.approx(9000 + time)
    assert many.energy_pj.value == pytest.approx(time * 400 * 1000 / 201)
    assert many.queries_per_s.value == pytest.approx(201e9 / (9000 + time))
    assert many.way == "raw int8 rows, GPU, batch 201"
    assert many.place == way.place != "here"


def test_rows_of_two_widths_are_the_builds_own_query(monkeypatch: pytest.MonkeyPatch) -> None:
    found = bundle_cost(read_bundle(BUNDLE), gallery=1000)
    assert machine_work(found, 1000) == MachineWork("raw int8 rows", 16_000, 32_000)
    for module in (machines, raw_rows):
        monkeypatch.setattr(module, "row_width", lambda _: None)
    work = machine_work(found, 1000)
    weights = sum(p.macs * p.weight_bits / 8 for p in found.placements if p.graph == "text")
    assert found.gallery_bytes is not None
    assert work.read == found.gallery_bytes + weights
    assert work.subject == "compiled"
    kinds = {one.kind: one for one in found.ways}
    assert kinds["raw rows"].refused == "rows of two widths have no product"
    assert kinds["GPU"].way == "compiled, GPU"
    assert kinds["GPU"].latency_ns.value == pytest.approx(9000 + work.read / 1555)


def test_a_core_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machines, "ENERGY_COUNTER", tmp_path / "none")
    monkeypatch.setattr(machine, "CPU_INFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text("processor : 0\nmodel name\t: A fine CPU\n")
    core = measured_core(64, 2000)
    assert (core.name, core.power, core.rows, core.width) == ("A fine CPU", None, 2000, 64)
    time = core.byte_ns
    assert time.value is not None
    assert 0 < (time.low or 0) <= time.value <= (time.high or 0)
    assert core.sentence.startswith(
        "measured here on one core of A fine CPU: 2,000 rows of 64 bytes at "
    )
    assert core.sentence.endswith("are assumed: this machine shows no energy counter")
    way = core_way(100_000, RAW, core)
    assert way.place == "A fine CPU"
    assert way.latency_ns.value == pytest.approx(51.2e6 * time.value)
    assert way.energy_pj.value == pytest.approx(51.2e6 * time.value * 225 / 64 * 1000)
    down = math.exp(-math.hypot(math.log(2), math.log(time.value / (time.low or 0))))
    assert way.energy_pj.low == pytest.approx((way.energy_pj.value or 0) * down)


def test_the_energy_counter_gives_the_power(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    counts = iter((1_000_000, 31_000_000))
    monkeypatch.setattr(machines, "_energy_uj", lambda: next(counts))
    monkeypatch.setattr(machine, "CPU_INFO", tmp_path / "none")
    core = measured_core(64, 2000)
    assert core.name == "this CPU"
    assert core.power is not None
    assert core.power > 0
    assert "W by the energy counter of its package" in core.sentence
    way = core_way(100_000, RAW, core)
    assert way.energy_pj.value == pytest.approx((way.latency_ns.value or 0) * core.power * 1000)


def test_a_measured_core_is_a_row_of_the_cost(small_bundle: Path) -> None:
    found = api.cost(small_bundle, gallery=3000, measure=True)
    (row,) = [one for one in found.ways if one.kind == "CPU core"]
    assert row.note.startswith("measured here on one core of ")
    assert found.to_dict()["measured_core"]["rows"] == 3000
