"""Reference prices beside published energies: the model by hand, the widths, and their coverage."""

from __future__ import annotations

import importlib
import math
import shutil
from pathlib import Path
from types import ModuleType
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit

from cimtool.base.errors import CimError
from cimtool.base.intervals import Change
from cimtool.base.toml_files import read_toml, validated
from cimtool.costs import silicon
from cimtool.costs.published import full_array
from cimtool.costs.rates import rates_at
from cimtool.costs.silicon import (
    FILE,
    ArrayKind,
    ErrorWidth,
    HeldPoint,
    PublishedChips,
    converter_ratios,
    converter_width,
    covered_share,
    error_width,
    held_points,
    leave_one_out,
    measured_width,
    prediction,
    repeated_ratios,
    repetition,
    setup_ratios,
    setup_width,
    student_quantile,
)
from cimtool.costs.totals import NOTHING, Cost, PartShare, Quantity, independent
from cimtool.hardware.target import load_target, target_names

ROOT = Path(__file__).parents[2]

OF_TARGETS = [
    one
    for one in held_points()
    if one.chip.name in ("c2c-22nm-intel", "dcim-28nm-isscc22", "colonnade-65nm")
]


def test_nine_of_ten_published_energies_are_inside_the_interval_of_all_other_chips() -> None:
    counted = [one for one in leave_one_out() if not one.held.left_out]
    chips = {one.held.chip.name for one in counted}
    assert len(chips) >= 30
    assert np.mean([one.inside for one in counted]) > 0.9
    assert covered_share(counted) > 0.9
    for kind in get_args(ArrayKind):
        of_kind = [one for one in counted if one.held.chip.kind == kind]
        assert covered_share(of_kind) > 0.85
    # Points that are left out are none of the evidence, and most are inside all the same.
    others = [one for one in leave_one_out() if one.held.left_out]
    assert len(others) > 30
    assert np.mean([one.inside for one in others]) > 0.6


def test_coverage_does_not_come_from_the_points_that_are_left_out() -> None:
    built = [one for one in held_points() if not one.chip.simulated]
    inside: dict[str, list[bool]] = {}
    for held in built:
        ratios: dict[str, list[float]] = {}
        for one in built:
            if one.chip.kind == held.chip.kind and one.chip.name != held.chip.name:
                ratios.setdefault(one.chip.name, []).append(one.log_ratio)
        others = prediction([float(np.mean(many)) for many in ratios.values()])
        inside.setdefault(held.chip.name, []).append(others.holds(held.log_ratio))
    assert len(inside) == 60
    assert np.mean([np.mean(many) for many in inside.values()]) > 0.85


def test_a_second_figure_of_a_chip_is_inside_the_width_of_all_other_chips() -> None:
    ratios = repeated_ratios()
    inside = [
        repetition([r for name, r in ratios.items() if name != left]).holds(ratio)
        for left, ratio in ratios.items()
    ]
    assert np.mean(inside) > 0.85


def test_set_ups_of_a_chip_differ_less_than_chips_do() -> None:
    """Of HERMES, 4 phases over 1 by their published TOPS/W, and by their cycles here."""
    ratios = setup_ratios()
    assert len(ratios) >= 3
    both = [one for one in held_points() if one.chip.name == "hermes-pcm-14nm"]
    published, modelled = (
        math.log(first / second)
        for first, second in (
            [one.point.published_pj for one in both],
            [one.modelled for one in both],
        )
    )
    assert ratios["hermes-pcm-14nm"] == pytest.approx(abs(published - modelled))
    width, freedom = setup_width(), len(ratios)
    mean_square = np.mean([one**2 for one in ratios.values()])
    half = stdtrit(freedom, 0.95) * math.sqrt(mean_square)
    assert (width.low, width.high) == pytest.approx((math.exp(-half), math.exp(half)), rel=1e-2)
    for kind in get_args(ArrayKind):
        assert 1 < width.high < error_width(kind).high


def test_widths_are_prediction_intervals_by_hand() -> None:
    ratios = [0.5, -1.0, 2.0, 0.1]
    half = stdtrit(3, 0.95) * np.std(ratios, ddof=1) * math.sqrt(1.25)
    found = prediction(ratios)
    ends = (math.exp(0.4 - half), math.exp(0.4 + half))
    assert (found.low, found.high) == pytest.approx(ends, rel=1e-2)
    assert found.chips == 4
    assert prediction([2.0, 2.1, 2.2]).low == 1  # prices are not shifted
    assert repetition([0.3, -0.3]).high == pytest.approx(math.exp(0.3 * stdtrit(2, 0.95)), rel=1e-2)
    for freedom in range(4, 40):
        assert student_quantile(freedom) == pytest.approx(stdtrit(freedom, 0.95), rel=1e-3)


@pytest.mark.parametrize("held", OF_TARGETS, ids=lambda one: f"{one.chip.name}-{one.point.supply}")
def test_an_array_is_modelled_as_its_target_is_without_figures(held: HeldPoint) -> None:
    """The price of the point is that of `Rates.energies` of one full array, by prices alone."""
    target = load_target(held.chip.name)
    names = {one.name for one in target.operating_points if one.voltage == held.point.supply}
    rates = rates_at(target.model_copy(update={"figures": ()}), names.pop())
    place, settings = full_array(rates)
    energies = rates.energies(place, settings)
    found = sum((energies[part].value or 0) for part in ("arrays", "converters"))
    assert held.modelled == pytest.approx(found / place.macs, rel=1e-6)


def test_an_analog_point_by_hand() -> None:
    (one,) = (one for one in held_points() if one.chip.name == "Biswas, CICC 2022")
    prices = silicon._prices(45, 0.8)
    cell, conversion = prices.unit("cell_reads").value, prices.unit("conversions", 6).value
    assert one.modelled == pytest.approx(cell + conversion / 32)
    assert one.point.published_pj == pytest.approx(2 / one.point.efficiency)
    assert one.log_ratio == pytest.approx(math.log(one.point.published_pj / one.modelled))


def test_no_price_is_held_against_the_chip_that_it_is_derived_from() -> None:
    assert not {"puma-rram-128", "isaac-rram-128"} & {one.chip.name for one in held_points()}


def test_own_figures_have_the_width_of_chips_and_simulated_ones_that_of_prices() -> None:
    measured = rates_at(load_target("dcim-28nm-isscc22"), None)
    assert measured.width("efficiency") == measured_width()
    assert measured.width("adc_energy") == error_width("digital")
    simulated = rates_at(load_target("isaac-rram-128"), None)
    assert (
        simulated.width("adc_energy")
        == converter_width()
        == prediction([*converter_ratios().values()])
    )
    assert simulated.width("column_energy") == error_width("resistive")


def test_a_time_is_as_wide_as_published_throughputs_are_met() -> None:
    measured = rates_at(load_target("hermes-pcm-14nm"), None).time(133.0)
    assert (measured.low, measured.value, measured.high) == pytest.approx(
        (133 / 1.02, 133, 133 * 1.02)
    )
    simulated = rates_at(load_target("isaac-rram-128"), None).time(100.0)
    assert (simulated.low, simulated.high) == (50, 200)


@pytest.mark.parametrize("name", [name for name in target_names() if name != "ideal"])
def test_no_energy_of_an_array_has_zero_width(name: str) -> None:
    target = load_target(name)
    for point in target.operating_points:
        rates = rates_at(target, point.name)
        place, settings = full_array(rates)
        for energy in rates.energies(place, settings).values():
            if energy is not None and energy.value:
                assert energy.low < energy.value < energy.high


quantities = st.lists(st.tuples(*[st.floats(0.01, 100)] * 3).map(sorted), min_size=1, max_size=5)


@given(quantities)
def test_independent_errors_add_in_squares(ends: list[list[float]]) -> None:
    many = [Quantity(value, (), low, high) for low, value, high in ends]
    total, linear = independent(many), sum(many, NOTHING)
    assert total.value == linear.value
    below = math.sqrt(sum((one.value - one.low) ** 2 for one in many))
    assert total.low == pytest.approx(total.value - below, abs=1e-9)
    assert linear.low - 1e-9 <= total.low <= total.value <= total.high <= linear.high + 1e-9


def test_parts_of_one_array_are_off_together_and_others_are_not() -> None:
    both = Quantity(3.0, (), 1.0, 6.0)
    of = {name: PartShare(both) for name in ("arrays", "converters", "memory")}
    energy = Cost(parts=of).energy_pj
    assert (energy.value, energy.low) == (9, pytest.approx(9 - math.hypot(4, 2)))
    assert energy.high == pytest.approx(9 + math.hypot(6, 3))
    found = Cost(parts=of).energy_by_price
    assert found == {"arrays": Change(6, 2, 12), "memory": Change(3, 1, 6)}


def test_a_width_keeps_an_interval_that_is_wider_and_what_is_unknown() -> None:
    width = ErrorWidth(0.5, 2.0, 9)
    assert width.widen(NOTHING) == NOTHING
    found = width.widen(Quantity(10.0, (), 1.0, 11.0, own=10.0))
    assert (found.low, found.value, found.high, found.own) == (1, 10, 20, 10)


def test_a_reader_is_told_the_widths() -> None:
    said = silicon.interval_sentence(load_target("isaac-rram-128"))
    width = error_width("resistive")
    assert f"resistive arrays {width.low:.2g} to {width.high:.2g} times (7 chips)" in said


@pytest.fixture
def published_costs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("published_costs")


PAGE = (ROOT / "benchmarks" / "cost.md").read_text()


def test_the_page_has_every_point_and_every_width(published_costs: ModuleType) -> None:
    section = PAGE.partition("### Held against silicon")[2].partition("###")[0]
    rows = [line for line in section.splitlines() if line.count("|") == 9]
    told = [row for row in rows if not row.startswith(("| chip ", "|---"))]
    printed = [published_costs.held_row(one) for one in leave_one_out()]
    assert sorted(told) == sorted(
        row.removesuffix(" inside |") + " |" if row.endswith(" inside |") else row
        for row in printed
    )
    for width in (*map(error_width, get_args(ArrayKind)), converter_width(), measured_width()):
        assert f"| {width.low:.2g} to {width.high:.2g} | {width.chips} |" in section
    counted = [one for one in leave_one_out() if not one.held.left_out]
    inside, chips = sum(one.inside for one in counted), {one.held.chip.name for one in counted}
    assert f"| all | | {len(chips)} | {inside} of {len(counted)} points; " in section
    assert f"of {len(chips)} chips with {len(counted)} published energies" in section


def test_the_page_has_the_table_of_published_figures_as_it_is_printed(
    published_costs: ModuleType,
) -> None:
    block = PAGE.partition("<!-- published -->\n")[2].partition("\n<!-- end of published -->")[0]
    assert block.splitlines() == list(published_costs.published(target_names()))
    assert len(block.splitlines()) > 40


CHIP = """
[[chips]]
name = "one"
kind = "sram"
node = 28
source = "paper"
status = "confirmed"
points = [{ rows = 64, outputs = 8, input_bits = 4, weight_bits = 4, adc_bits = 5, efficiency = 9 }]
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('source = "paper"\n', "", r"source"),
        ("efficiency = 9", "efficiency = -9", r"efficiency"),
        ("efficiency = 9", "efficiency = 9, energy = 1", "either efficiency or energy"),
        (", adc_bits = 5", "", "adc_bits"),
        ('"sram"', '"optical"', "kind"),
    ],
)
def test_a_point_that_is_not_whole_is_one_sentence(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    file = tmp_path / "silicon.toml"
    shutil.copy(FILE, file)
    assert old in CHIP
    file.write_text(CHIP.replace(old, new) + file.read_text())
    with pytest.raises(CimError, match=said) as found:
        validated(PublishedChips, read_toml(file), str(file))
    assert "\n" not in str(found.value)
