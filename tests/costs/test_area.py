"""Areas by plain arithmetic: the target's figures first, reference areas for the rest."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.base.toml_files import read_toml, validated
from cimtool.costs.area import FILE, ReferenceAreas, cell_logs, occupied_area, unit_area
from cimtool.costs.rates import rates_at
from cimtool.costs.silicon import ArrayKind, prediction
from cimtool.hardware.geometry import ChipSpec
from cimtool.hardware.placement import Floorplan
from cimtool.hardware.target import load_target


def plan(arrays: int, chips: int | None = None) -> Floorplan:
    return Floorplan(arrays, 1, arrays, ChipSpec(), chips, {})


def test_units_scale_by_the_area_of_the_node_and_by_their_bits() -> None:
    # 45 nm has 1, 32 nm 0.46; 40 nm is between them.
    at_40 = 0.46 + 8 / 13 * 0.54
    multiplier = unit_area("multipliers", 8, 45)
    assert multiplier.value == pytest.approx(6350e-6 / 16 / at_40)
    assert (multiplier.low, multiplier.high) == pytest.approx(
        (multiplier.value / 2, multiplier.value * 2)
    )
    buffer = unit_area("buffer", 1024, 32)
    at_28 = 0.46 - 4 / 12 * 0.25
    each = [83000 / 524288, 244967 / 1048576 * 0.46 / at_28, 36045 / 98304 * 0.46 / at_28]
    assert buffer.value == pytest.approx(1024e-6 * math.prod(each) ** (1 / 3))
    assert (buffer.low, buffer.high) == pytest.approx((1024e-6 * min(each), 1024e-6 * max(each)))


def test_a_published_area_is_taken_for_each_macro_that_is_begun() -> None:
    rates = rates_at(load_target("dcim-28nm-isscc22"), None)
    found = occupied_area(rates, plan(65))
    macros, digital, buffer = found.parts
    assert macros.mm2.value == macros.mm2.own == pytest.approx(2 * 0.9408)
    assert (digital.part, digital.basis) == ("digital unit", "assumed size")
    lane = unit_area("multipliers", 8, 28).value + unit_area("adders", 32, 28).value
    assert digital.mm2.value == pytest.approx(256 * lane)
    assert buffer.mm2.value == pytest.approx(unit_area("buffer", 8 << 20, 28).value)
    assert found.total.value == pytest.approx(sum(one.mm2.value for one in found.parts))
    assert found.known_share == pytest.approx(2 * 0.9408 / found.total.value)


def test_the_area_of_a_chip_holds_all_of_it() -> None:
    found = occupied_area(rates_at(load_target("dirc-rag-40nm"), None), plan(16))
    assert [one.part for one in found.parts] == ["chips"]


def test_a_macro_without_an_area_has_that_of_published_ones_by_its_cells() -> None:
    rates = rates_at(load_target("hermes-pcm-14nm"), None)
    found = occupied_area(rates, plan(10, chips=3))
    arrays, converters, digital, buffer, others = found.parts
    cell = math.exp(np.mean(list(cell_logs("resistive").values())))
    macro = 1e-6 * 10 * 256 * 512 * cell * 0.17
    share = (0.28 * 0.13 * 0.146) ** (1 / 3)
    assert converters.mm2.value == pytest.approx(macro * share)
    assert arrays.mm2.value == pytest.approx(macro * (1 - share))
    assert arrays.mm2.low < arrays.mm2.value < arrays.mm2.high
    lane = unit_area("multipliers", 8, 14).value + unit_area("adders", 32, 14).value
    assert digital.mm2.value == pytest.approx(rates.prices.lanes * lane)
    # The other chips have the same, which is off.
    assert others.mm2.value == pytest.approx(2 * (digital.mm2.value + buffer.mm2.value))
    assert found.leaking.value == pytest.approx(digital.mm2.value + buffer.mm2.value)


def test_an_area_by_a_figure_has_a_width() -> None:
    macro, *_ = occupied_area(rates_at(load_target("dcim-28nm-isscc22"), None), plan(64)).parts
    assert macro.basis == "figure of the target"
    ends = macro.mm2.low / macro.mm2.value, macro.mm2.high / macro.mm2.value
    assert ends == pytest.approx((1 / 1.02, 1.02))
    # Of a simulated design twice as much or half of it.
    rates = rates_at(load_target("isaac-rram-128"), None)
    adc = rates.figure("adc_area")
    assert adc is not None
    area = rates.area(adc, 3)
    assert (area.low, area.value, area.high) == (1800, 3600, 7200)


def test_isaacs_tiles_are_some_twenty_square_millimetres() -> None:
    """53 tiles of 12 x 8 arrays are 19.7 mm2 by the paper's 0.372 mm2 a tile."""
    found = occupied_area(rates_at(load_target("isaac-rram-128"), None), plan(53 * 96))
    assert found.parts[0].mm2.value == pytest.approx(19.7, rel=0.15)


def test_a_converters_own_area_is_used_where_the_macro_has_none() -> None:
    target = load_target("isaac-rram-128")
    figures = tuple(one for one in target.figures if one.quantity != "area")
    found = occupied_area(rates_at(target.model_copy(update={"figures": figures}), None), plan(10))
    assert found.parts[1].mm2.own == pytest.approx(10 * 1200e-6)


def test_arrays_that_need_no_supply_leak_in_their_published_energies_alone() -> None:
    isaac = occupied_area(rates_at(load_target("isaac-rram-128"), None), plan(80))
    around = sum(one.mm2.value for one in isaac.parts if one.part in ("digital unit", "buffer"))
    assert isaac.leaking.value == pytest.approx(around)
    sram = occupied_area(rates_at(load_target("dcim-28nm-isscc22"), None), plan(64))
    assert sram.leaking == sram.total


def test_an_array_without_limits_has_no_area() -> None:
    found = occupied_area(rates_at(load_target("ideal"), None), plan(1))
    assert (found.total.value, found.total.missing, found.known_share) == (None, ("arrays",), 0)


def test_most_published_macros_are_inside_the_interval_of_all_others() -> None:
    inside = []
    for kind in get_args(ArrayKind):
        logs = cell_logs(kind)
        assert len(logs) >= 6
        for left, log in logs.items():
            others = [one for name, one in logs.items() if name != left]
            centre = float(np.mean(others))
            inside.append(prediction([one - centre for one in others]).holds(log - centre))
    assert len(inside) == 30
    assert np.mean(inside) >= 0.85


@pytest.mark.parametrize(
    ("table", "key", "value", "said"),
    [
        ("macros", "area", -1.0, r"macros\[0\].area"),
        ("macros", "source", None, r"macros\[0\].source is missing"),
        ("units", "source", None, r"units\[0\].source is missing"),
        ("converter_shares", "value", 0.0, r"converter_shares\[0\].value"),
    ],
)
def test_an_area_that_is_not_whole_is_one_sentence(
    table: str, key: str, value: Any, said: str
) -> None:
    values = read_toml(FILE)
    entry = values[table][0]
    entry.pop(key) if value is None else entry.update({key: value})
    with pytest.raises(CimError, match=said) as found:
        validated(ReferenceAreas, values, str(FILE))
    assert "\n" not in str(found.value)
