"""Energies and times of a layer's arrays, recomputed with plain arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
    inputs = InputCode.named("twos-complement", "encoding")(8, settings.dac_bits)
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
