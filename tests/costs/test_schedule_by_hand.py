"""Batches on small chips, every figure worked out beside it: one chip, half a chip, two chips.

The model has 24-32-32 and two heads of 16, 8 weights of 8 bits in each row of an array of 32: 4, 4,
2 and 2 arrays a side. A product takes 4 cycles of 10 ns, a row is written in 5 ns, DRAM gives a
byte in 1 ns for 1 pJ a bit. The digital unit takes no time that counts.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from quantities import known

from cimtool import api
from cimtool.bundle.bundle import read_bundle
from cimtool.costs.bundle_cost import bundle_cost
from cimtool.costs.estimate import Estimate
from cimtool.demo.data import DemoFiles
from tests.kits.hand_chip import hand_chip

PRODUCT = 4 * 10
ALONE = 3 * PRODUCT
"""fc1, fc2 and both heads, which work side by side."""

BITS = {"fc1": 24 * 32 * 8, "fc2": 32 * 32 * 8, "mu": 32 * 16 * 8, "logvar": 32 * 16 * 8}
WRITE_CELL = 0.5

FIGURES = (
    ("clock", 100, "MHz", "array"),
    ("mac_energy", 0.1, "pJ", "array"),
    ("write_latency", 5, "ns", "array"),
    ("write_energy", WRITE_CELL, "pJ", "array"),
)

OnChip = Callable[..., Estimate]


@pytest.fixture(scope="module")
def on_chip(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> OnChip:
    """Makes the estimate of the small model on a chip of so many arrays, for a batch."""
    folder = tmp_path_factory.mktemp("by-hand")

    def made(arrays: int, rewritable: str, batch: int, buffer: int = 1024) -> Estimate:
        name = f"{arrays}-{rewritable}-{buffer}"
        if not (folder / name).exists():
            digital = {"clock": 1e6, "lanes": 1000000, "bandwidth": 1, "buffer": buffer}
            file = folder / f"{name}.toml"
            file.write_text(hand_chip(arrays, rewritable, 28, digital, {"dram": 1}, FIGURES))
            api.compile(
                small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
                drift="given", target=str(file), output=folder / name,
            )  # fmt: skip
        return bundle_cost(read_bundle(folder / name), 1, batch=batch)

    return made


def load_energy(*layers: str) -> float:
    """One load of these layers: their bits from DRAM, and as many cells written."""
    return sum(BITS[layer] for layer in layers) * (1 + WRITE_CELL)


def switched(found: Estimate) -> float:
    """The energy of a text without leakage, which grows with the time."""
    return known(found.text.energy_pj) - known(found.text.parts["leakage"].energy)


def figures(found: Estimate, kind: str = "text") -> tuple[float | str | None, ...]:
    one = found.schedules[kind]
    return (
        one.latency_ns.value,
        one.makespan_ns.value,
        one.bound_ns,
        one.per_second.value,
        one.bottleneck,
    )


def near(*values: float | str) -> list[object]:
    return [one if isinstance(one, str) else pytest.approx(one, rel=1e-4) for one in values]


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize(("arrays", "rewritable", "chips"), [
    (24, "per-inference", 1), (12, "field", 2),
])  # fmt: skip
def test_one_chip_or_two_hold_all_and_items_follow_each_other(
    on_chip: OnChip, batch: int, arrays: int, rewritable: str, chips: int
) -> None:
    found = on_chip(arrays, rewritable, batch)
    assert (found.floorplan.chips, found.floorplan.loads, found.floorplan.kept) == (chips, 0, ())
    # Another item begins as soon as the first layer is free.
    takes = ALONE + (batch - 1) * PRODUCT
    for kind in ("text", "video"):
        wanted = near(ALONE, takes, takes, 1e9 / PRODUCT, f"{kind}.fc1")
        assert list(figures(found, kind)) == wanted
        assert {one.part: one.share for one in found.schedules[kind].occupancy}[
            f"{kind}.mu"
        ] == pytest.approx(1, rel=1e-4)
    assert found.text.latency_ns.value == pytest.approx(ALONE, rel=1e-4)
    # Nothing is loaded: of the energy only leakage falls, with the time of an item.
    leaked = known(found.text.parts["leakage"].energy) * (1 - takes / (batch * ALONE))
    batched = known(found.schedules["text"].energy_pj)
    assert batched == pytest.approx(known(found.text.energy_pj) - leaked, rel=1e-4)
    assert found.text.cells_written == 0


def test_half_a_chip_keeps_what_saves_most_bits(on_chip: OnChip) -> None:
    plan = on_chip(12, "per-inference", 1).floorplan
    # An array holds 24 x 8 weights of fc1, 32 x 8 of the others. Ten arrays stay, two are loaded.
    assert plan.kept == ("text.fc2", "text.logvar", "text.mu", "video.logvar")
    assert (plan.streaming, plan.rounds) == (2, {"text": 2, "video": 5})


def test_half_a_chip_one_item(on_chip: OnChip) -> None:
    found = on_chip(12, "per-inference", 1)
    # Each of fc1's four tiles is read in 192 ns, which hides its 160 ns of writing and all products
    # but the last; then fc2 and the heads, which stay.
    read = BITS["fc1"] / 4 / 8
    takes = 4 * read + PRODUCT + 2 * PRODUCT
    # The next item's first tile is read when the last one's has been.
    assert list(figures(found)) == near(takes, takes, takes, 1e9 / (4 * read), "DRAM channel")
    assert found.text.latency_ns.value == pytest.approx(takes, rel=1e-4)
    # Of a video only logvar stays: 4, 4 and 2 tiles in turn. fc2 waits for all of fc1, but its
    # first two tiles are there by then, and so on.
    wide = BITS["fc2"] / 4 / 8
    video = 4 * read + 4 * wide + 2 * wide + PRODUCT
    assert found.video.latency_ns.value == pytest.approx(video, rel=1e-4)
    assert found.text.cells_written == BITS["fc1"]
    loads = load_energy("fc1")
    resident = on_chip(24, "per-inference", 1)
    assert switched(found) - loads == pytest.approx(switched(resident))


def test_half_a_chip_eight_items(on_chip: OnChip) -> None:
    found = on_chip(12, "per-inference", 8)
    one, eight = known(found.text.energy_pj), found.schedules["text"]
    assert (eight.batch, eight.waves) == (8, 1)
    # Leakage is for an eighth of the time of all.
    leaked = known(found.text.parts["leakage"].energy)
    times = known(eight.makespan_ns) / (8 * known(found.text.latency_ns))
    saved = load_energy("fc1") * 7 / 8 + leaked * (1 - times)
    assert eight.energy_pj.value == pytest.approx(one - saved)
    # Two arrays take turns: each is loaded (192 ns) and multiplied with all items (8 x 40 ns),
    # twice; the second one is loaded after the first. Then the last item's fc2 and heads.
    read, products = BITS["fc1"] / 4 / 8, 8 * PRODUCT
    last = read + 2 * (read + products)
    assert eight.makespan_ns.value == pytest.approx(last + 2 * PRODUCT, rel=1e-4)
    # No schedule undercuts the turns of one of the arrays, and fc2 and a head of one item.
    assert eight.bound_ns == pytest.approx(2 * (read + products) + 2 * PRODUCT, rel=1e-4)
    # Eight items every two turns of an array.
    assert eight.per_second.value == pytest.approx(8e9 / (2 * (read + products)), rel=1e-4)
    assert eight.bottleneck == "loaded arrays"


def test_a_wave_is_as_many_items_as_the_buffer_holds(on_chip: OnChip) -> None:
    found = on_chip(12, "per-inference", 1000, buffer=1)
    (work,) = [found.work(found.program.text)]
    each = 8192 // work.item_bits
    assert 1 < each < 1000
    schedule = found.schedules["text"]
    assert schedule.waves == -(-1000 // each)
    leaked = known(found.text.parts["leakage"].energy)
    times = known(schedule.makespan_ns) / (1000 * known(found.text.latency_ns))
    saved = load_energy("fc1") * (1 - schedule.waves / 1000) + leaked * (1 - times)
    assert schedule.energy_pj.value == pytest.approx(known(found.text.energy_pj) - saved)


def test_a_batch_takes_a_moment_to_schedule_however_large(on_chip: OnChip) -> None:
    for arrays, batch in ((24, 10**12), (12, 10**12)):
        found = on_chip(arrays, "per-inference", batch).schedules["text"]
        takes = known(found.makespan_ns)
        assert takes >= found.bound_ns > 1e12
        assert takes == pytest.approx(batch * 1e9 / known(found.per_second))
