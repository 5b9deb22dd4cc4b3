"""Raw rows in 8 bits on other machines: a core of a CPU, a GPU for one query, a GPU for batches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from cimtool.base.machine import cpu_name
from cimtool.base.toml_files import SourceText, TomlTable, read_toml, validated
from cimtool.costs.estimate import Estimate
from cimtool.costs.prices import reference
from cimtool.costs.raw_rows import row_width
from cimtool.costs.totals import Quantity, product
from cimtool.costs.ways import GalleryWay, WayKind, WayOfSize
from cimtool.hardware.figures import Sourced

FILE = Path(__file__).with_name("machines.toml")

RUNS = 9
"""Timed runs of a measurement: the median counts, the fastest and the slowest are its ends."""

MOST_BYTES = 1 << 27
"""Bytes of rows that are measured at most: more than the caches of a core hold."""

ENERGY_COUNTER = Path("/sys/class/powercap/intel-rapl:0/energy_uj")
"""The energy in uJ that the CPU's package has taken, where Linux lets one read it (RAPL)."""


class Sustained(TomlTable):
    """The least shares of a machine's peaks that were measured."""

    bandwidth: Annotated[float, Field(gt=0, le=1)]
    tops: Annotated[float, Field(gt=0, le=1)] = 1.0
    source: SourceText


class Machine(TomlTable):
    """A machine: power in W, GB/s of its memory, TOPS of 8-bit products, cores that share both.

    A core has `alone` GB/s while all others wait, and `cached` GB/s at most of rows that its
    `cache` in MiB holds. A host waits for the `launch` of a GPU's kernel, in ns.
    """

    name: str
    power: float
    bandwidth: float
    tops: float | None = None
    cores: int = 1
    alone: float | None = None
    cache: float = 0.0
    cached: float | None = None
    sustained: Sustained
    launch: Sourced | None = None
    status: str
    source: SourceText


class Machines(TomlTable):
    """The whole file of machines."""

    core: Machine
    gpu: Machine


@cache
def machines() -> Machines:
    """The machines that cimtool compares with."""
    return validated(Machines, read_toml(FILE), str(FILE))


@dataclass(frozen=True)
class MeasuredCore:
    """The time in ns in which a core of the CPU `name` takes a query past one byte of rows.

    `power` in W is that of its package if its energy counter can be read, else None. `rows` of
    `width` bytes were read in each of RUNS runs.
    """

    name: str
    byte_ns: Quantity
    power: float | None
    rows: int
    width: int

    @property
    def sentence(self) -> str:
        """The rate, and where the power is from."""
        assert self.byte_ns.value is not None
        power = (
            f"{machines().core.power / machines().core.cores:.3g} W of a core of an "
            f"{machines().core.name} are assumed: this machine shows no energy counter"
            if self.power is None
            else f"{self.power:.3g} W by the energy counter of its package"
        )
        return (
            f"measured here on one core of {self.name}: {self.rows:,} rows of {self.width} bytes "
            f"at {1 / self.byte_ns.value:.3g} GB/s by ONNX Runtime, {power}"
        )


def measured_core(width: int, items: int) -> MeasuredCore:
    """Time products of a query with up to `items` raw rows of `width` bytes on one core."""
    from cimtool.emit.row_products import row_products
    from cimtool.emit.runtime import Session

    rows = max(1, min(items, MOST_BYTES // width))
    drawn = np.random.default_rng(0)
    held = drawn.integers(-127, 128, (width, rows), dtype=np.int8)
    query = {"query": drawn.integers(1, 256, (1, width), dtype=np.uint8)}
    session = Session(row_products(held), threads=1)
    repeats = max(1, (1 << 22) // (rows * width))
    session.run(query)
    before, start = _energy_uj(), time.perf_counter_ns()
    times = sorted(_time_ns(lambda: session.run(query), repeats) for _ in range(RUNS))
    after, spent = _energy_uj(), time.perf_counter_ns() - start
    counted = before is not None and after is not None and after > before
    power = 1000 * (after - before) / spent if counted else None  # type: ignore[operator]
    middle, low, high = (one / (rows * width) for one in (times[RUNS // 2], times[0], times[-1]))
    return MeasuredCore(cpu_name(), Quantity(middle, (), low, high), power, rows, width)


def _time_ns(run: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(repeats):
        run()
    return (time.perf_counter_ns() - start) / repeats


def _energy_uj() -> int | None:
    try:
        return int(ENERGY_COUNTER.read_text())
    except (OSError, ValueError):
        return None


@dataclass(frozen=True)
class MachineWork:
    """The work of one query on a machine: `read` bytes, and arithmetic `operations`.

    `subject` is what it computes: raw rows, or the compiled model if its rows have two widths.
    """

    subject: str
    read: float
    operations: float


def machine_work(found: Estimate, items: int) -> MachineWork:
    """The work of a query among `items`: a product and a read of each number of raw rows.

    Rows of two widths have no product; the machine then reads the encoded items and the weights of
    a text.
    """
    width = row_width(found)
    if width is not None:
        return MachineWork("raw int8 rows", items * width, 2 * items * width)
    sized = found.with_gallery(items)
    query = sized.query
    assert query is not None
    weights = sum(place.held_bits for place in found.placements if place.graph == "text") / 8
    operations = 2 * (query.macs + query.digital.multiplications)
    return MachineWork("compiled", weights + (sized.gallery_bytes or 0), operations)


def machine_ways(found: Estimate, measured: MeasuredCore | None = None) -> Iterator[WayOfSize]:
    """The ways on other machines; a core that was `measured` replaces the one known.

    Of a batch of one, a GPU also has the batch that fills it.
    """
    gpu = machines().gpu

    def gpu_batch(items: int) -> GalleryWay:
        work = machine_work(found, items)
        many = full_batch(gpu, work) if found.batch == 1 else found.batch
        return gpu_way(gpu, items, work, many)

    yield WayOfSize("CPU core", lambda items: core_way(items, machine_work(found, items), measured))
    yield WayOfSize("GPU", lambda items: gpu_way(gpu, items, machine_work(found, items)))
    yield WayOfSize("GPU in batches", gpu_batch)


def core_way(items: int, work: MachineWork, measured: MeasuredCore | None = None) -> GalleryWay:
    """A query for which one core reads its bytes from its memory, at its share of power."""
    own, spread = machines().core, reference().spread
    power = Quantity(own.power / own.cores).times(1, 1 / spread, spread)
    if measured is None:
        assert own.alone is not None
        share = work.read * own.cores / own.bandwidth
        slow = share / own.sustained.bandwidth
        fast, least = work.read / own.alone, share
        if own.cached is not None and work.read <= own.cache * 2**20:
            fast = least = work.read / own.cached
        latency = Quantity(share, (), fast, slow)
        # A core that has the memory to itself has the chip's power to itself too, but in its cache
        # it waits for no other.
        energy = product((power, Quantity(share, (), least, slow)))
        note, place = f"{own.name}: {own.source}; {own.sustained.source}", own.name
    else:
        latency = measured.byte_ns.times(work.read)
        energy = product((latency, power if measured.power is None else Quantity(measured.power)))
        note, place = measured.sentence, measured.name
    name = f"{work.subject}, CPU core"
    return GalleryWay(
        "CPU core", name, items, place, energy_pj=energy.times(1000), latency_ns=latency,
        chips=1, note=note,
    )  # fmt: skip


def full_batch(machine: Machine, work: MachineWork) -> int:
    """The fewest queries at once whose arithmetic takes as long as one read of the bytes."""
    assert machine.tops is not None
    return max(
        1, math.ceil(work.read / machine.bandwidth / (work.operations / machine.tops / 1000))
    )


def gpu_way(machine: Machine, items: int, work: MachineWork, batch: int = 1) -> GalleryWay:
    """A query, one of a `batch`, for all of which a GPU reads the bytes once.

    The time is that of a launch, and the longer of reading and of the arithmetic, which are at full
    power.
    """
    assert machine.tops is not None
    assert machine.launch is not None
    read, arithmetic = work.read / machine.bandwidth, batch * work.operations / machine.tops / 1000
    held, spread = machine.sustained, reference().spread
    fast, slow = max(read, arithmetic), max(read / held.bandwidth, arithmetic / held.tops)
    busy, launch = Quantity(fast, (), fast, slow), machine.launch
    latency = busy + Quantity(launch.value, (), *launch.interval)
    power = Quantity(machine.power).times(1, 1 / spread, spread)
    kind: WayKind = "GPU" if batch == 1 else "GPU in batches"
    name = f"{work.subject}, GPU" + (f", batch {batch:,}" if batch > 1 else "")
    note = (
        f"{machine.name}: peak rates at full power ({machine.source}; slower: {held.source}; "
        f"launch: {launch.source})"
    )
    return GalleryWay(
        kind, name, items, machine.name,
        energy_pj=product((power, busy)).times(1000 / batch), latency_ns=latency,
        batch=batch, chips=1, note=note,
    )  # fmt: skip
