"""Formats: scales that cover, and power-of-two ones where exactness asks for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.hardware.settings import resolve
from cimtool.hardware.target import load_target
from cimtool.ir.arithmetic import Mvm, Store, plus
from cimtool.ir.program import REACHES, Builder, Calibration, Graph, StoringErrors
from cimtool.ir.types import real
from cimtool.passes.formats import (
    Format,
    covering,
    layer_input_format,
    next_power_of_two,
    shared_scales,
    value_format,
)


@given(st.floats(1e-30, 1e30))
def test_the_next_power_of_two_is_the_smallest_not_below(x: float) -> None:
    power = next_power_of_two(x)
    assert np.frexp(power)[0] == 0.5
    assert power / 2 < x <= power


def test_powers_of_two_stay() -> None:
    assert [next_power_of_two(2.0**k) for k in (-40, 0, 7)] == [2.0**-40, 1.0, 128.0]


@given(st.floats(1e-12, 1e12), st.integers(2, 16), st.booleans(), st.booleans())
def test_the_largest_integer_covers_the_largest_value(
    top: float, bits: int, signed: bool, exact: bool
) -> None:
    fmt = covering(top, bits, signed, exact)
    reach = fmt.hi * float(fmt.scale)
    assert top * (1 - 1e-12) <= reach < 2 * top * (1 + 1e-12)
    if not exact:
        assert reach == pytest.approx(top)
    else:
        assert np.frexp(float(fmt.scale))[0] == 0.5


def test_nothing_has_a_scale_too() -> None:
    assert float(covering(0.0, 8, True, False).scale) == 1 / 127


def test_normal_values_are_steps_of_a_power_of_two_up_to_one() -> None:
    fmt = value_format(real(("n",), -1.0, 1.0), Store("normal", 21))
    assert (fmt.lo, fmt.hi, float(fmt.scale)) == (-(2**20), 2**20, 2.0**-20)


TOPS = np.array([1.0, 1 / 16])
STORED = Store("input", 8)


def layer(residual: bool) -> Graph:
    """A layer that hardly reads the second, narrow channel of x; with `residual` x goes past it."""
    builder = Builder("text", {"x": real(("n", 2), -TOPS, TOPS)})
    x = builder.add("x.stored", STORED, "x")
    y = builder.add("fc", Mvm(np.array([[1.0, 0.5], [1e-4, 1e-4]]), np.zeros(2)), x)
    return builder.graph({"y": builder.add("sum", plus(1, 1), x, y) if residual else y})


def input_format(residual: bool, equalise: bool = True) -> Format:
    settings = resolve(load_target("ideal"), None, {})
    return layer_input_format(layer(residual), "x.stored", STORED, settings, equalise)


def profiled_format(weight_bits: int, error_of_clipping: float) -> Format:
    """The format of the layer's input where these errors were seen at each of REACHES."""
    steps = TOPS * 2.0 ** REACHES[:, None] / 127
    clipped = REACHES[:, None] < 0
    seen = StoringErrors(TOPS, steps**2 / 12 + clipped * error_of_clipping)
    calibration = Calibration(mean_squares={"x": TOPS**2 / 3}, storing_errors={("x", 8): seen})
    graph = replace(layer(False), calibration=calibration)
    settings = resolve(load_target("ideal"), None, {"weight_bits": weight_bits})
    return layer_input_format(graph, "x.stored", STORED, settings, equalise=True)


@pytest.mark.parametrize("equalise", [False, True])
def test_inputs_may_leave_their_calibrated_range_by_a_quarter(equalise: bool) -> None:
    fmt = input_format(True, equalise)
    assert np.all(fmt.hi * fmt.scale >= 1.25 * TOPS)
    assert np.all(np.frexp(fmt.scale)[0] == 0.5)
    assert float(np.max(fmt.scale)) == 2.0**-6


def test_a_value_that_goes_past_its_layers_is_kept_finely() -> None:
    scales = [np.broadcast_to(input_format(residual).scale, 2) for residual in (False, True)]
    assert scales[1][1] < scales[0][1]


def test_what_clipping_errs_decides_how_much_is_clipped() -> None:
    narrow, wide = (profiled_format(8, error) for error in (0.0, 1.0))
    assert narrow.hi * narrow.scale[0] < 1.0
    assert wide.hi * wide.scale[0] >= 1.0


def test_weights_of_few_bits_decide_how_far_channels_are_equalised() -> None:
    spread = [fmt.scale[0] / fmt.scale[1] for fmt in (profiled_format(b, 1.0) for b in (2, 16))]
    assert spread[0] != spread[1]


def test_mu_may_leave_its_calibrated_range_by_an_eighth() -> None:
    builder = Builder("text", {"x": real(("n", 2), -TOPS, TOPS)})
    graph = builder.graph({"mu": builder.add("mu", Store("mu"), "x")})
    assert 127 * shared_scales((graph, graph), 8)["mu"] == pytest.approx(1.125, rel=2e-3)
