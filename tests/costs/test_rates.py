"""Energies and times of a layer's arrays, recomputed with plain arithmetic."""

from __future__ import annotations

import pytest

from cimtool.costs.rates import Rates, rates_at
from cimtool.hardware.input_codes import InputCode
from cimtool.hardware.placement import Placement, placed
from cimtool.hardware.settings import Settings, resolve
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
