"""Counts and totals that can be worked out by hand; what no figure covers is said to be missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import read_bundle
from cimtool.costs.bundle_cost import bundle_cost
from cimtool.costs.estimate import Estimate, ScoredQuery, estimate
from cimtool.costs.overheads import leakage_density
from cimtool.costs.prices import Prices
from cimtool.costs.sampling import SamplingWay
from cimtool.costs.schedule_tasks import WaveKey, in_order
from cimtool.costs.silicon import converter_width, error_width
from cimtool.demo.data import DemoFiles
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.figures import Figure
from cimtool.hardware.placement import floorplan
from cimtool.hardware.settings import resolve
from cimtool.hardware.target import Target, load_target
from cimtool.ir.program import Program
from cimtool.ir.surrogate import Polynomial
from cimtool.report.formats import TIMES
from cimtool.training.polynomial import polynomial_text

MACS = 1024 * 2048 + 2048 * 2048 + 2 * 2048 * 1024
FullSize = Callable[[Target], Program]


def estimated(full_size: FullSize, target: Target, point: str | None = None) -> Estimate:
    settings = resolve(target, None, {})
    program = full_size(target)
    return estimate(program, Configuration(target, settings), ScoredQuery(1024), point)


def with_figures(target: Target, **values: tuple[float, str]) -> Target:
    figures = tuple(
        Figure(
            quantity=quantity, value=value, unit=unit, source="here", scope="array",
            status="derived",
        )
        for quantity, (value, unit) in values.items()
    )  # fmt: skip
    return target.model_copy(update={"figures": (*target.figures, *figures)})


def in_arrays(found: Estimate, what: str = "energy", *parts: str) -> float | None:
    """The energy or busy time of a text's arrays, or of other `parts`; None for none."""
    shares = [getattr(found.text.parts[name], what).value for name in parts or ("arrays",)]
    return None if None in shares else sum(shares)


def test_hermes_both_projectors(full_size: FullSize) -> None:
    found = estimated(full_size, load_target("hermes-pcm-14nm"))
    assert (found.floorplan.chips, found.floorplan.chips_filled, found.floorplan.loads) == (
        5,
        5.0,
        0,
    )
    assert found.floorplan.cores == 320
    assert found.text.macs == MACS
    # 4, 8, 8 and 8 row groups, one conversion of each column of each.
    assert found.text.conversions == 2048 * 4 + 2048 * 8 + 2 * 1024 * 8
    in_arrays_of = [found.in_arrays(graph).conversions for graph in found.program.graphs]
    assert found.conversions == sum(in_arrays_of) == 2 * found.text.conversions
    assert found.text.drive_cycles == 4
    assert in_arrays(found, "time") == pytest.approx(4 * 133)
    assert in_arrays(found) == pytest.approx(1000 * 13.4 * MACS / 65536)
    four = estimated(full_size, load_target("hermes-pcm-14nm"), "four-phase")
    assert in_arrays(four, "time") == pytest.approx(4 * 521)
    assert in_arrays(four) == pytest.approx(1000 * 52.9 * MACS / 65536)


def test_neurram_fills_thirteen_chips_and_a_third(full_size: FullSize) -> None:
    plan = estimated(full_size, load_target("neurram-rram-130nm")).floorplan
    assert plan.chips_filled == pytest.approx(40 / 3)
    assert (plan.chips, plan.cores, plan.resident) == (14, 640, True)


@pytest.mark.thorough("more of the same kind")
def test_isscc23_is_loaded_2560_times(full_size: FullSize) -> None:
    found = estimated(full_size, load_target("dcim-28nm-isscc23"))
    assert (found.floorplan.loads, found.floorplan.chips, found.floorplan.arrays) == (2560, 1, 8)
    assert found.floorplan.rounds == {"text": 1280, "video": 1280}
    # 20,480 banks of 8 in turn, 4 cycles each at 182 MHz, both projectors alike.
    assert found.text.drive_cycles == 1280 * 4
    assert in_arrays(found, "time") == pytest.approx(1280 * 4 * 1000 / 182)
    assert found.text.cells_written == MACS * 8
    # Its weights come from DRAM, each time.
    read = found.text.digital.tallies["dram"]
    assert (read.count, read.size) == (MACS, 8 * MACS)
    assert found.text.coverage == 1


def test_figures_of_writing_come_before_reference_prices(full_size: FullSize) -> None:
    plain = load_target("dcim-28nm-isscc23")
    told = with_figures(plain, write_energy=(0.5, "pJ"), write_latency=(2.0, "ns"))
    before, after = estimated(full_size, plain), estimated(full_size, told)
    assert in_arrays(after, "energy", "writing") == pytest.approx(0.5 * MACS * 8)
    assert in_arrays(after, "time", "writing") == pytest.approx(2.0 * 128 * 1280)
    assert after.programming.parts["writing"].energy.own == pytest.approx(0.5 * 2 * MACS * 8)
    assert before.programming.parts["writing"].energy.own == 0
    assert before.text.energy_pj.missing == after.text.energy_pj.missing == ()


@pytest.mark.parametrize("rewritable", ["field", "factory"])
def test_only_a_target_that_is_rewritten_per_inference_takes_rounds(
    full_size: FullSize, rewritable: str
) -> None:
    target = load_target("dcim-28nm-isscc23").model_copy(update={"rewritable": rewritable})
    found = estimated(full_size, target)
    assert (found.floorplan.chips, found.floorplan.loads, found.floorplan.arrays) == (
        2560,
        0,
        20480,
    )
    assert found.text.cells_written == 0
    assert found.text.drive_cycles == 4 * 4


def test_weight_sets_hold_more_and_work_in_turn(full_size: FullSize) -> None:
    found = estimated(full_size, load_target("c2c-22nm-intel"))
    assert found.floorplan.tiles == 2 * MACS // 1024
    assert found.floorplan.loads == 2 * MACS // 8192
    assert found.text.drive_cycles == MACS // 1024


def test_isaac_has_figures_of_conversions_and_shift_and_adds_alone(full_size: FullSize) -> None:
    found = estimated(full_size, load_target("isaac-rram-128"))
    text = found.text
    # A column sum for every weight: 4 slices in 128 rows, 8 cycles of its inputs.
    assert text.conversions == text.shift_adds == MACS * 4 * 8 // 128
    own = in_arrays(found, "energy", "converters", "shift-and-add")
    assert own == pytest.approx(text.conversions * (1.667 + 0.021))
    assert text.energy_pj.own == pytest.approx(own)
    # Cells are read by the reference price, within the interval of resistive chips.
    reads, width = MACS * 4 * 8, error_width("resistive")
    cells = text.parts["arrays"].energy
    assert cells.value == pytest.approx(reads * (0.00326 * 0.0063) ** 0.5, rel=1e-3)
    ends = (cells.value * width.low, cells.value * width.high)
    assert (cells.low, cells.high) == pytest.approx(ends)
    # A simulated converter is no chip: it has the width of measured ones.
    converters = text.parts["converters"].energy
    assert converters.high == pytest.approx(converters.value * converter_width().high)
    assert (text.coverage, text.energy_pj.missing) == (1, ())
    assert in_arrays(found, "time") == pytest.approx(4 * 8 * 100)
    assert found.floorplan.chips is None
    macros = found.floorplan.arrays / 8
    assert found.area.parts[0].mm2.value == pytest.approx(macros * 0.02755)


def test_known_times_of_converters_bound_a_latency_without_one_of_arrays(
    small_bundle: Path,
) -> None:
    found = bundle_cost(read_bundle(small_bundle), 1)
    times = {name: one.parts["converters"].time.value or 0 for name, one in found.layers.items()}
    assert sum(time for layer, time in times.items() if layer.startswith("text.")) == pytest.approx(
        found.text.parts["converters"].time.value
    )
    assert found.text.latency_ns.lower_bound
    assert found.text.latency_ns.value is not None
    # The two heads work side by side.
    heads = max(times["text.mu"], times["text.logvar"])
    assert found.text.latency_ns.value >= times["text.fc1"] + times["text.fc2"] + heads > 0
    assert found.text.latency_ns.range_text(TIMES).startswith("> ")


def test_an_array_without_a_technology_has_no_price(full_size: FullSize) -> None:
    found = estimated(full_size, load_target("ideal"))
    text = found.text
    assert text.parts["arrays"].energy.value is None
    assert text.energy_pj.missing == ("MACs in arrays", "leakage")
    assert text.latency_ns.missing == ("arrays",)
    assert text.coverage == pytest.approx(1 - text.macs / text.operations)
    assert "assumed: the target states no node" in " ".join(found.rates.prices.assumptions())


@pytest.mark.thorough("more of the same kind")
def test_figures_of_another_array_or_precision_are_not_used(full_size: FullSize) -> None:
    target = load_target("colonnade-65nm")
    program = full_size(target)
    for flags, known in (
        ({}, True),
        ({"accumulator_bits": 40}, True),
        ({"array": "256x128"}, False),
        ({"dac_bits": 2}, False),
    ):
        settings = resolve(target, None, flags)
        found = estimate(program, Configuration(target, settings), ScoredQuery(1024))
        assert (found.text.energy_pj.own > 0) is known, flags
        assert found.text.parts["arrays"].energy.value is not None
        place = found.placements[0]
        assert (found.rates.mismatch(place, settings) is None) is known, flags


def test_neurram_needs_the_bits_of_its_operating_point(full_size: FullSize) -> None:
    target = load_target("neurram-rram-130nm")
    assert estimated(full_size, target, "in4/out6").text.energy_pj.own == 0
    flags = {"input_bits": 4, "activation_bits": 4, "adc_bits": 6}
    own = target.model_copy(update={"input": target.input.model_copy(update={"bits": 4})})
    build = Configuration.of(target, None, flags)
    found = estimate(full_size(own), build, ScoredQuery(1024), "in4/out6")
    assert found.text.energy_pj.own == pytest.approx(2 * MACS / 15.95)


@pytest.mark.thorough("more of the same kind")
def test_a_bit_serial_point_is_taken_as_often_as_a_layer_has_bits(full_size: FullSize) -> None:
    found = estimated(full_size, load_target("charge-65nm-princeton"), "0.85 V")
    assert in_arrays(found) == pytest.approx(64 * 2 * MACS / 400)
    # 64, 64, 32 and 32 tiles of 32 columns on the one array, 8 one-bit products each.
    assert in_arrays(found, "time") == pytest.approx(192 * 8 * 1350)


def test_rows_that_are_read_in_turn_take_their_time(full_size: FullSize) -> None:
    plain = load_target("isaac-rram-128")
    array = plain.array.model_copy(update={"rows_active": 32})
    found = estimated(full_size, plain.model_copy(update={"array": array}))
    assert in_arrays(found, "time") == pytest.approx(4 * 4 * 8 * 100)
    assert found.text.drive_cycles == 4 * 4 * 8


def test_a_query_costs_one_text_and_the_score_of_every_item(small_bundle: Path) -> None:
    none, one, ten = (api.cost(small_bundle, gallery=m) for m in (None, 1, 10))
    assert none.query is None
    assert none.montecarlo is None
    assert one.query is not None
    assert ten.query is not None
    counts = [found.query.digital.multiplications for found in (one, ten)]
    # Six products of width 16, the item's mu^2 and mu s, which are not stored, and the polynomial.
    assert 8 * 16 < (counts[1] - counts[0]) / 9 < 8 * 16 + 2 * 16
    assert ten.query.macs == ten.text.macs


def test_what_is_read_of_a_gallery_is_what_is_stored_of_it(small_bundle: Path) -> None:
    found = api.cost(small_bundle, gallery=1_000_000)
    assert found.query is not None
    assert found.query.digital.tallies["dram"].size == 8 * (found.gallery_bytes or 0)


def test_samples_are_stored_or_redrawn(small_bundle: Path) -> None:
    found = api.cost(small_bundle, gallery=10, samples=7)
    sampled = found.montecarlo
    assert sampled is not None
    stored, redrawn = sampled.stored, sampled.redrawn
    # Seven of the query alone, or of the ten items too.
    assert (stored.random_normals, redrawn.random_normals) == (7 * 16, 11 * 7 * 16)
    assert stored.multiplications == 7 * 16 + 10 * 49 * 16
    assert redrawn.multiplications == 11 * 7 * 16 + 10 * 49 * 16
    assert stored.sigmoids == redrawn.sigmoids == 490
    # Samples of 8 bits; a mean and a standard deviation; the features of the score.
    assert (stored.gallery_bytes, redrawn.gallery_bytes) == (10 * 7 * 16, 10 * 2 * 16)
    assert found.gallery_bytes is not None
    assert 10 * 2 * 16 < found.gallery_bytes < 10 * 4 * 16
    assert stored.cells_written == 0
    # Four 2-bit cells a weight.
    assert redrawn.cells_written == 10 * 7 * 16 * 4
    # Products are in the digital unit, as the score's; all of it has a price.
    for way in (stored, redrawn):
        assert way.energy_pj.missing == way.latency_ns.missing == ()
        assert way.energy_pj.low < way.energy_pj.value < way.energy_pj.high
    normals, sigmoids = (found.rates.prices.unit(kind) for kind in ("normals", "sigmoids"))
    assert stored.energy_pj.value > 7 * 16 * normals.value + 490 * sigmoids.value
    assert redrawn.energy_pj.value > 11 * 7 * 16 * normals.value + 490 * sigmoids.value
    # The bundle's converters are not the target's: theirs are scaled along the reference ladder.
    assert found.settings.adc_bits == 4
    conversions = found.text.parts["converters"].energy
    assert conversions.value < 1.667 * found.text.conversions
    assert conversions.own == conversions.value


@pytest.mark.thorough("two bundles more")
def test_a_polynomial_in_ed_alone_costs_one_product_of_six(
    small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    poly, data = tmp_path / "poly.json", small_trunk.eval
    line = Polynomial(1, (-0.1, 0.0), 0.25, a=0.1, b=0.0)
    poly.write_text(polynomial_text(line))
    made = api.compile(
        small_trunk.projectors, poly, calibration=small_trunk.calibration, drift="given",
        target="isaac-rram-128", output=tmp_path / "bundle", adc_bits=4,
    )  # fmt: skip
    assert list(made.program.text.outputs) == ["mu", "ed_self"]

    def an_item(bundle: Path) -> float:
        one, ten = (api.cost(bundle, gallery=m).query for m in (1, 10))
        assert one is not None
        assert ten is not None
        return (ten.digital.multiplications - one.digital.multiplications) / 9

    assert 16 <= an_item(tmp_path / "bundle") < 16 + 8
    assert an_item(small_bundle) > 6 * 16
    report = api.verify(tmp_path / "bundle", data, report=tmp_path / "report")
    assert sum(count.differing for count in report.checks.bits) == 0


def test_mistakes(small_bundle: Path) -> None:
    with pytest.raises(CimError, match='point "x": target isaac-rram-128 has no such'):
        api.cost(small_bundle, operating_point="x")
    with pytest.raises(CimError, match="gallery is 0; expected at least 1"):
        api.cost(small_bundle, gallery=0)
    with pytest.raises(CimError, match=r"gallery is 1000+; expected at most 10\^12"):
        api.cost(small_bundle, gallery=10**300)
    with pytest.raises(CimError, match="samples is 0; expected at least 1"):
        api.cost(small_bundle, gallery=1, samples=0)


SRAM_TARGET = "dcim-28nm-isscc22"
"""Loads its weights for each inference; a MAC of 8 bits takes 2 / 36.5 pJ."""

OnSram = Callable[..., Path]


@pytest.fixture(scope="module")
def on_sram(small_trunk: DemoFiles, tmp_path_factory: pytest.TempPathFactory) -> OnSram:
    """Makes the small model for SRAM arrays, with a mapping of the score, and programs it."""
    folder = tmp_path_factory.mktemp("sram")

    def made(mapping: str, **programmed: int) -> Path:
        bundle = folder / mapping
        if not bundle.exists():
            api.compile(
                small_trunk.projectors, small_trunk.poly, calibration=small_trunk.calibration,
                drift="given", target=SRAM_TARGET, output=bundle, score_mapping=mapping,
            )  # fmt: skip
        place = folder / f"{mapping}, programmed"
        if not programmed:
            return bundle
        if not place.exists():
            api.program(bundle, small_trunk.eval, output=place, **programmed)
        return place

    return made


def by_hand(found: Estimate, scored: int, memory: str, samples: int = 10, d: int = 16) -> float:
    """Energy in pJ of scoring so many items of 8-bit samples that are stored in a memory."""
    pairs, prices = scored * samples**2, found.rates.prices
    sizes = {
        "normals": samples * d,
        "sigmoids": pairs,
        "multiplications": (samples * d + pairs * d) * 8 * 8,
        "additions": samples * d * 8 + pairs * 16 + pairs * d * 16,
        memory: scored * samples * d * 8,
    }
    if not memory:  # products are in arrays
        sizes["multiplications"] = samples * d * 8 * 8
        sizes["additions"] = samples * d * 8 + pairs * 16
        del sizes[memory]
    return of_sizes(prices, sizes)


CLOCKED = 1 + (0.11 / 0.89 * 0.25 / 0.75) ** 0.5
"""Arithmetic with its clock and control, by two published shares."""


def leaked(found: Estimate, way: SamplingWay) -> float:
    """Leakage in pJ of the bundle's area for the time of sampling."""
    density = leakage_density(found.rates.prices.node).value
    return density * found.area.leaking.value * way.latency_ns.value


def of_sizes(prices: Prices, sizes: dict[str, int]) -> float:
    """Energy in pJ of operations by their sizes, arithmetic with its clock and control."""
    energies = {kind: prices.unit(kind).of(size).value for kind, size in sizes.items()}
    return sum(
        energy * (1 if kind in ("sram", "dram") else CLOCKED) for kind, energy in energies.items()
    )


@pytest.mark.parametrize("mapping", ["digital", "hybrid", "in-memory"])
@pytest.mark.parametrize(("items", "memory"), [(40, "sram"), (100_000, "dram")])
def test_a_score_that_is_digital_is_sampled_digitally(
    on_sram: OnSram, mapping: str, items: int, memory: str
) -> None:
    found = api.cost(on_sram(mapping), gallery=items)
    assert found.score is not None
    assert found.montecarlo is not None
    stored = found.montecarlo.stored
    expected = by_hand(found, items, memory) + leaked(found, stored)
    assert stored.energy_pj.value == pytest.approx(expected)
    # Both columns read their gallery from the same memory.
    assert found.score.digital.tallies[memory].size >= 8 * (found.gallery_bytes or 0)
    assert (found.score.cells_written, stored.cells_written) == (0, 0)
    assert stored.energy_pj.value > found.score.energy_pj.value


def test_samples_in_arrays_are_loaded_as_the_gallery_is(on_sram: OnSram) -> None:
    found = api.cost(on_sram("in-memory", chips=1000))
    sampled, score = found.montecarlo, found.score
    assert sampled is not None
    assert score is not None
    assert score.cells_written > 0
    # 40 items of 10 samples: 400 columns of 16 weights of 8 cells, 6 columns an array of 64.
    cells = 40 * 10 * 16 * 8
    assert sampled.arrays == 67
    assert (sampled.stored.cells_written, sampled.redrawn.cells_written) == (cells, cells)
    prices = found.rates.prices
    write, dram = prices.write_pj(None), prices.unit("dram")
    assert write is not None
    assert dram is not None
    products = 10 * (40 * 10 * 16) * 2 / 36.5
    around, loads = by_hand(found, 40, ""), write.value * cells + dram.of(cells).value
    leak = leaked(found, sampled.stored)
    assert sampled.stored.energy_pj.value == pytest.approx(products + around + loads + leak)
    # The compiled score loads those matrices of its items from DRAM that do not stay.
    places = [one for one in found.placements if one.graph == found.program.score.name]
    kept = found.floorplan.kept
    stored = [one for one in places if one.shares is None and one.layer not in kept]
    bits = sum(one.macs * one.weight_bits for one in stored)
    assert bits > 0
    assert score.parts["memory"].energy.value == pytest.approx(dram.of(bits).value)


def test_products_that_share_loaded_cells_come_with_the_same_load(on_sram: OnSram) -> None:
    found = replace(api.cost(on_sram("in-memory", chips=1000)))
    plan = floorplan(found.placements, found.target)  # nothing stays
    vars(found)["floorplan"] = plan
    work = found.work(found.program.score, 40)
    shared = {place.layer: place.shares for place in found.placements if place.shares}
    assert shared == {"score.mus.mu": "score.mu.mu"}
    nodes, tasks = in_order(work), work.tasks(WaveKey(3, 2))
    known = set(work.graph.inputs)
    for node in nodes:
        assert known.issuperset(node.inputs)
        known.add(node.name)
    assert sorted(node.name for node in nodes) == sorted(node.name for node in work.graph.nodes)
    loads = [position for position, task in enumerate(tasks) if task.name == "load"]
    tiles = sum(place.arrays for place in work.streamed)
    assert len(loads) == -(-tiles // (plan.streaming // 2))
    # Of every load with tiles of the owner, both products wait for it, and free its arrays.
    needs: dict[str, set[int]] = {}
    for task in tasks:
        needs.setdefault(task.name, set()).update(set(task.after) & set(loads))
    for layer, owner in shared.items():
        assert needs[layer] == needs[owner] != set()
    for position, later in zip(loads, loads[2:], strict=False):
        products = [p for p, task in enumerate(tasks) if position in task.after]
        assert set(tasks[later].after) == set(products)


def test_what_samples_are_drawn_from_is_read_from_where_the_gallery_is(on_sram: OnSram) -> None:
    found = api.cost(on_sram("in-memory", chips=1000))
    assert found.montecarlo is not None
    # A mean and a deviation of 8 bits for each of 40 x 16 values: 1,280 bytes, of a buffer's 1 MiB.
    kept, columns = 40 * 16 * 2 * 8, 40 * 10
    prices, drawn = found.rates.prices, (1 + 40) * 10 * 16
    sizes = {
        "normals": drawn,
        "sigmoids": 40 * 100,
        "multiplications": drawn * 8 * 8,
        "additions": drawn * 8 + 40 * 100 * 16,
        "dram": kept,
    }
    around = of_sizes(prices, sizes)
    write = prices.write_pj(None).value * columns * 16 * 8
    products = 10 * columns * 16 * 2 / 36.5
    redrawn = found.montecarlo.redrawn
    expected = products + around + write + leaked(found, redrawn)
    assert redrawn.energy_pj.value == pytest.approx(expected, rel=1e-6)
    assert prices.unit("dram").of(kept).value > 0.05 * redrawn.energy_pj.value


def test_samples_of_a_shortlist_are_those_of_its_items(on_sram: OnSram) -> None:
    found = api.cost(on_sram("hybrid", shortlist=4))
    sampled, program = found.montecarlo, found.program
    assert sampled is not None
    assert program.shortlist is not None
    before = found.walk(program.shortlist, 40)
    assert before.energy_pj.value is not None
    expected = before.energy_pj.value - before.parts["leakage"].energy.value
    expected += by_hand(found, 4, "sram") + leaked(found, sampled.stored)
    assert sampled.stored.energy_pj.value == pytest.approx(expected)
    assert sampled.stored.sigmoids == 4 * 100
    assert sampled.stored.gallery_bytes == 40 * 10 * 16
    assert sampled.redrawn.random_normals == (1 + 4) * 10 * 16
    assert (before.cells_written, sampled.stored.cells_written) == (0, 0)


def test_cells_of_a_shortlist_are_written_before_samples_too(
    on_sram: OnSram, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    rows = np.load(small_trunk.eval)
    np.savez(tmp_path / "many.npz", **{name: np.tile(rows[name], (10, 1)) for name in rows})
    held = tmp_path / "held"
    api.program(on_sram("hybrid"), tmp_path / "many.npz", output=held, shortlist=4, chips=1000)
    found = api.cost(held)
    assert found.montecarlo is not None
    assert found.score is not None
    assert found.program.shortlist is not None
    # mu of 400 items, 6 an array: more than the 64 arrays hold.
    (place,) = (one for one in found.placements if one.graph == found.program.shortlist.name)
    loads, samples = place.rows * 400 * 8, 4 * 10 * 16 * 8
    assert place.rows >= 16
    assert found.score.cells_written == loads
    assert found.montecarlo.stored.cells_written == loads
    # Redrawn samples of the 4 items would be written besides.
    assert found.montecarlo.redrawn.cells_written == loads + samples
