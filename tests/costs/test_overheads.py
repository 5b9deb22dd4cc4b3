"""Links, host, clock, control and leakage, by plain arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.base.toml_files import read_toml, validated
from cimtool.bundle.bundle import read_bundle
from cimtool.costs import render
from cimtool.costs.bundle_cost import bundle_cost
from cimtool.costs.charges import digital_cost
from cimtool.costs.operations import Operations
from cimtool.costs.overheads import around, clock_and_control, leakage_density, with_leakage
from cimtool.costs.prices import FILE, Prices, Reference
from cimtool.costs.totals import Cost, PartShare, Quantity, product
from cimtool.hardware.target import load_target


def prices_at(node: float, voltage: float) -> Prices:
    target = load_target("isaac-rram-128")
    process = target.process.model_copy(update={"node": node, "voltage": voltage})
    return Prices(target.model_copy(update={"process": process}), None)


def test_clock_and_control_are_published_shares_of_the_digital_unit() -> None:
    found = clock_and_control(Quantity(90.0, (), 45.0, 180.0, own=90.0))
    low, high = 0.11 / 0.89, 0.25 / 0.75
    assert found.value == pytest.approx(90 * math.sqrt(low * high))
    assert (found.low, found.high) == pytest.approx((45 * low, 180 * high))
    assert found.own == 0  # no figure of the target gives it
    cost = digital_cost(Operations.of("additions", 10, 8), prices_at(45, 0.9))
    assert cost.parts["clock and control"].energy == clock_and_control(cost.parts["digital"].energy)
    # Moves alone have none.
    assert list(digital_cost(Operations.of("dram", 10, 8), prices_at(45, 0.9)).parts) == ["memory"]


def test_leakage_is_density_by_area_by_time() -> None:
    density = leakage_density(40)
    sources = [8.63, 12.6, 0.354, 0.648]
    assert density.value == pytest.approx(math.prod(sources) ** 0.25)
    assert (density.low, density.high) == pytest.approx((min(sources), max(sources)))
    cost = Cost(latency_ns=Quantity(1000.0, ("arrays",), 500.0, 2000.0))
    found = with_leakage(cost, Quantity(2.0), 40).parts["leakage"].energy
    assert found.value == pytest.approx(density.value * 2.0 * 1000.0)  # mW x ns = pJ
    below = math.hypot(math.log(2), math.log(density.value / density.low))
    assert found.low == pytest.approx(found.value * math.exp(-below))
    assert found.missing == ()
    unknown = with_leakage(cost, Quantity(None, ("arrays",)), 40)
    assert unknown.energy_pj.missing == ("leakage",)
    assert with_leakage(Cost(), Quantity(2.0), 40) == Cost()
    assert with_leakage(cost, Quantity(0.0), 40) == cost


def test_a_density_is_interpolated_between_nodes_and_held_outside() -> None:
    at_40, at_65 = leakage_density(40).value, leakage_density(65).value
    between = math.sqrt(40 * 65)  # half-way, in logarithms
    assert leakage_density(between).value == pytest.approx(math.sqrt(at_40 * at_65))
    assert leakage_density(7) == leakage_density(40)
    assert leakage_density(180).value == leakage_density(130).value
    assert leakage_density(130).value == pytest.approx(math.sqrt(0.0294 * 0.025))


def test_numbers_cross_from_chip_to_chip_as_often_as_arrays_are_on_another(
    small_bundle: Path,
) -> None:
    found = bundle_cost(read_bundle(small_bundle), 1)
    work, graph = Operations.of("wires", 100, 8), found.program.score
    assert around(graph, work, replace(found.floorplan, chips=None)) == work
    assert around(graph, work, replace(found.floorplan, chips=1)) == work
    four = around(graph, work, replace(found.floorplan, chips=4))
    assert four.tallies["links"].size == 600
    # A host sends the row of an item, of float32 numbers.
    sent = around(found.program.text, work, found.floorplan).tallies["host"]
    (known,) = found.program.text.inputs.values()
    assert sent.size == 32 * known.shape[-1]


def test_totals_and_tables_have_the_new_parts(small_bundle: Path) -> None:
    found = api.cost(small_bundle, gallery=40)
    values = render.cost_json(found)
    parts = values["query"]["parts"]
    assert {"clock and control", "links", "leakage", "buffers"} <= set(parts)
    total = sum(one["energy_pj"]["value"] for one in parts.values())
    assert values["query"]["energy_pj"]["value"] == pytest.approx(total)


def test_a_product_of_independent_quantities_is_no_wider_than_its_ends() -> None:
    found = product([Quantity(2.0, (), 1.0, 4.0), Quantity(3.0, (), 3.0, 3.0)])
    assert (found.low, found.value, found.high) == pytest.approx((3, 6, 12))
    both = product([Quantity(2.0, (), 1.0, 4.0)] * 2)
    assert both.low == pytest.approx(4 * math.exp(-math.hypot(math.log(2), math.log(2))))


@pytest.mark.parametrize(
    ("table", "old", "new", "said"),
    [
        ("leakages", "source", None, r"leakages\[0\].source is missing"),
        ("leakages", "value", -1.0, r"leakages\[0\].value"),
        ("control_shares", "source", None, r"control_shares\[0\].source is missing"),
        ("prices", "value", -0.1, r"prices\[0\].value"),
    ],
)
def test_a_price_without_a_source_or_below_zero_is_one_sentence(
    table: str, old: str, new: Any, said: str
) -> None:
    values = read_toml(FILE)
    entry = values[table][0]
    entry.pop(old) if new is None else entry.update({old: new})
    with pytest.raises(CimError, match=said) as found:
        validated(Reference, values, str(FILE))
    assert "\n" not in str(found.value)


def test_a_price_of_a_file_without_a_source_ends_the_command(
    small_bundle: Path, tmp_path: Path
) -> None:
    file = tmp_path / "digital.toml"
    file.write_text(
        '[[digital.prices]]\nkind = "links"\nvalue = 1.0\nbits = 1\nstatus = "confirmed"\n'
    )
    with pytest.raises(CimError, match=r"digital.prices\[0\].source is missing") as found:
        api.cost(small_bundle, digital=file)
    assert "\n" not in str(found.value)


def test_a_price_of_a_file_is_charged_for_links(small_bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "digital.toml"
    file.write_text(
        '[[digital.prices]]\nkind = "host"\nvalue = 10.0\nbits = 1\n'
        'source = "data sheet"\nstatus = "confirmed"\n'
    )
    found = api.cost(small_bundle, digital=file)
    (known,) = found.program.text.inputs.values()
    share: PartShare = found.text.parts["links"]
    assert share.energy.value == pytest.approx(10 * 32 * known.shape[-1])
    assert share.energy.low < share.energy.value < share.energy.high
