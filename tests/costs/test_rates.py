"""Energies and times of a layer's arrays, recomputed with plain arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cimtool.base.errors import CimError
from cimtool.costs.rates import Rates, rates_at
from cimtool.costs.totals import NOTHING
from cimtool.hardware.input_codes import InputCode
from cimtool.hardware.placement import Placement, placed
from cimtool.hardware.settings import Settings, resolve
from cimtool.hardware.skipping import Activity
from cimtool.hardware.target import Target, derived, load_target


def isaac_like(**keys: object) -> Target:
    """ISAAC without figures, with other tables."""
    base = load_target("isaac-rram-128")
    return derived(base, {"name": "mine", "title": "mine", "figures": [], **keys})


def layer_of(target: Target, shape: tuple[int, int]) -> tuple[Placement, Settings, Rates]:
    """A layer of 8-bit signed inputs on a target."""
    settings = resolve(target, None, {})
    inputs = InputCode.named(settings.input_encoding, "encoding")(8, settings.dac_bits)
    place = placed("text", "text.fc", shape, settings.crossbar(inputs), settings)
    return place, settings, rates_at(target, None)


def test_sums_of_ternary_digits_take_an_addition_more() -> None:
    cells = {"encoding": "ternary", "cell_bits": 1, "cells_per_weight": 12, "signed_cols": 10}
    place, settings, rates = layer_of(isaac_like(array=cells), (128, 10))
    sums = 10 * 6 * 8  # of 6 digits a weight in 8 cycles
    assert place.column_sums == sums
    bits = 8 + 8 + 7
    shift, addition = (rates.prices.unit(kind) for kind in ("shifts", "additions"))
    assert shift is not None
    assert addition is not None
    found = rates.energies(place, settings)["shift-and-add"]
    assert found is not None
    expected = [one.of(sums * bits).value or 0 for one in (shift, addition)]
    assert found.value == pytest.approx(sum(expected))
    assert expected[1] > 0


def test_work_that_is_skipped_costs_nothing() -> None:
    figures = {"read_latency": (100, "ns"), "adc_energy": (2, "pJ"), "column_energy": (3, "pJ")}
    own = [
        {"quantity": q, "value": v, "unit": u, "scope": "array", "status": "derived", "source": "-"}
        for q, (v, u) in figures.items()
    ]
    target = isaac_like(figures=own)
    place, settings, rates = layer_of(target, (256, 32))
    assert place.column_sums == 32 * 4 * 2 * 8
    less = replace(place, activity=Activity(driven=0.5, busiest=0.75, empty=64))
    assert less.column_sums == less.conversions == (32 * 4 * 2 - 64) * 8 // 2
    found = rates.energies(less, settings)
    assert (found["arrays"] or NOTHING).value == pytest.approx(3 * less.column_sums)
    assert (found["converters"] or NOTHING).value == pytest.approx(2 * less.column_sums)
    assert rates.latency(less, settings) == pytest.approx(0.75 * 8 * 100)
    assert less.worked == 0.5 * (1 - 64 / 256)
    analog = replace(less, cycles=1)
    assert analog.column_sums == 32 * 4 * 2 - 64  # one conversion after all cycles is not skipped


def test_a_product_of_known_energy_is_charged_for_what_is_not_skipped() -> None:
    target = load_target("dcim-28nm-isscc22")
    settings = resolve(target, None, {})
    inputs = InputCode.named("twos-complement", "encoding")(8, settings.dac_bits)
    place = placed("text", "text.fc", (64, 12), settings.crossbar(inputs), settings)
    rates = rates_at(target, None)
    whole, less = (
        rates.energies(one, settings)["arrays"]
        for one in (place, replace(place, activity=Activity(driven=0.25)))
    )
    assert whole is not None
    assert less is not None
    assert less.value == pytest.approx((whole.value or 0) / 4)


def test_the_point_of_the_converters_bits_is_taken() -> None:
    points: list[dict[str, object]] = [
        {
            "name": f"{bits} bits",
            "precision": "-",
            "input_bits": 1,
            "weight_bits": 2,
            "adc_bits": bits,
        }
        for bits in (8, 6)
    ]
    common = {"quantity": "adc_energy", "unit": "pJ", "scope": "array", "status": "derived"}
    figures = [common | {"value": value, "source": "-", "at": f"{value} bits"} for value in (8, 6)]
    target = isaac_like(operating_points=points, figures=figures)
    for bits, value in ((8, 8.0), (6, 6.0), (7, 8.0)):
        rates = rates_at(target, None, resolve(target, None, {"adc_bits": bits}))
        assert rates.value("adc_energy") == value
    assert rates_at(target, "6 bits", resolve(target, None, {})).value("adc_energy") == 6.0


def clocked(*figures: dict[str, object]) -> Target:
    own = {"scope": "array", "status": "derived", "source": "-"}
    return isaac_like(figures=[own | one for one in figures])


def test_a_drive_cycle_takes_clocks_of_the_core() -> None:
    clock: dict[str, object] = {"quantity": "clock", "value": 500, "unit": "MHz"}
    clocks: dict[str, object] = {"quantity": "drive_clocks", "value": 15, "unit": "1"}
    read: dict[str, object] = {"quantity": "read_latency", "value": 7, "unit": "ns"}
    for figures, cycle in (((clock,), 2), ((clock, clocks), 30), ((clock, clocks, read), 7)):
        place, settings, rates = layer_of(clocked(*figures), (128, 32))
        assert rates.latency(place, settings) == pytest.approx(8 * cycle)
    with pytest.raises(CimError, match=r"figures\[0\] \(drive_clocks\): expected the clock"):
        clocked(clocks)


def test_a_point_of_one_ternary_digit_is_taken_as_often_as_a_weight_has_digits() -> None:
    target = load_target("sf-rram-28nm")
    place, settings, rates = layer_of(target, (512, 85))
    found = rates.energies(place, settings)["arrays"]
    assert found is not None
    # 5.85 nJ are 512 x 512 digits in one drive cycle; here 2 cycles of 6 digits a weight.
    assert found.value == pytest.approx(5850 / 512**2 * 512 * 85 * 2 * 6)
    assert rates.latency(place, settings) == pytest.approx(2 * 30)
