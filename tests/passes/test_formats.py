"""Formats: scales that cover, and power-of-two ones where exactness asks for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import LayerSettings, resolve
from cimtool.hardware.target import load_target
from cimtool.ir.arithmetic import Mvm, Store, plus
from cimtool.ir.format import integer_limits, round_half_up
from cimtool.ir.program import REACHES, Builder, Calibration, Graph, StoringErrors
from cimtool.ir.types import real
from cimtool.passes.base import Job
from cimtool.passes.formats import (
    COARSE_LEVELS,
    Format,
    covering,
    expected_clipping,
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


def job(weight_bits: int = 8, layers: tuple[LayerSettings, ...] = (), rows: int = 512) -> Job:
    settings = resolve(load_target("ideal"), None, {"weight_bits": weight_bits})
    settings = settings.model_copy(update={"layers": layers})
    return Job(settings, np.zeros((rows, 2)), np.zeros((rows, 2)), lambda line: None)


def input_format(residual: bool, equalise: bool = True) -> Format:
    return layer_input_format(layer(residual), "x.stored", STORED, job(), equalise)


def profiled_format(weight_bits: int, error_of_clipping: float) -> Format:
    """The format of the layer's input where these errors were seen at each of REACHES."""
    steps = TOPS * 2.0 ** REACHES[:, None] / 127
    clipped = REACHES[:, None] < 0
    seen = StoringErrors(TOPS, steps**2 / 12 + clipped * error_of_clipping)
    calibration = Calibration(mean_squares={"x": TOPS**2 / 3}, storing_errors={("x", 8): seen})
    graph = replace(layer(False), calibration=calibration)
    return layer_input_format(graph, "x.stored", STORED, job(weight_bits), equalise=True)


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


WIDTH = 16
Spread = st.lists(st.floats(-6, 0), min_size=WIDTH, max_size=WIDTH)


def spread_layer(exponents: list[float], role: str, bits: int) -> tuple[Graph, Store]:
    """A layer of random weights, and rows whose channels reach 2^exponents."""
    tops, store = 2.0 ** np.array(exponents), Store(role, bits)
    builder = Builder("text", {"x": real(("n", WIDTH), -tops, tops)})
    x = builder.add("x.stored", store, "x")
    weight = np.random.default_rng(0).normal(size=(WIDTH, 8))
    return builder.graph({"y": builder.add("fc", Mvm(weight, np.zeros(8)), x)}), store


def rounding_error(graph: Graph, fmt: Format, weight_bits: int) -> float:
    """Mean square error of the layer if its inputs and its weights are rounded, none clipped."""
    weight, (_, largest) = graph.operations(Mvm)["fc"].weight, integer_limits(weight_bits, True)
    lo, hi = graph.types["x"].real_bounds()
    rows = np.random.default_rng(1).uniform(lo, hi, (400, WIDTH))
    effective = weight * np.reshape(fmt.scale, (-1, 1))
    unit = np.abs(effective).max(axis=0) / largest
    levels = np.clip(round_half_up(effective / unit), -largest, largest)
    assert np.all(np.abs(levels).max(axis=0) == largest)
    codes = np.clip(np.rint(rows / fmt.scale), fmt.lo, fmt.hi)
    return float(np.square((codes @ levels) * unit - rows @ weight).mean())


def expected_noise(graph: Graph, fmt: Format, role: str, weight_bits: int) -> float:
    """Expected error from rounding inputs and weights, and with finer weights from clipping."""
    weight, (_, largest) = graph.operations(Mvm)["fc"].weight, integer_limits(weight_bits, True)
    top = graph.types["x"].real_bounds()[1]
    errors = np.square(fmt.scale) / 12
    if largest > COARSE_LEVELS and role == "input":
        errors = errors + expected_clipping(top, fmt.scale * fmt.hi, 512)
    if role != "input":
        largest = min(largest, COARSE_LEVELS)
    ranges = top * (1.25 if role == "input" else 1.0)
    steps = np.abs(weight * np.reshape(fmt.scale, (-1, 1))).max(axis=0) / largest
    of_weights = np.square(steps).sum() / 12 * (ranges**2 / 3 / fmt.scale**2).sum()
    return float(of_weights + (np.square(weight).sum(axis=1) * errors).sum())


@pytest.mark.parametrize("role", ["input", "activation"])
@given(Spread, st.integers(2, 16), st.integers(2, 16), st.sampled_from([4, 8, 12]))
def test_channels_are_equalised_for_the_levels_of_their_own_weights(
    role: str, exponents: list[float], bits: int, other: int, stored: int
) -> None:
    graph, store = spread_layer(exponents, role, stored)
    own, others = (
        layer_input_format(graph, "x.stored", store, job(b), equalise=True) for b in (bits, other)
    )
    least = expected_noise(graph, own, role, bits)
    assert least <= expected_noise(graph, others, role, bits) * (1 + 1e-9)


@pytest.mark.parametrize(("bits", "stored"), [(3, 8), (4, 8), (6, 8), (10, 8), (10, 12), (12, 12)])
def test_a_layer_errs_less_than_if_its_channels_were_equalised_for_8_bits(
    bits: int, stored: int
) -> None:
    graph, store = spread_layer(list(np.linspace(-6, 0, WIDTH)), "input", stored)
    own, of_8_bits = (
        layer_input_format(graph, "x.stored", store, job(b), equalise=True) for b in (bits, 8)
    )
    errors = [rounding_error(graph, fmt, bits) for fmt in (own, of_8_bits)]
    assert errors[0] < 0.95 * errors[1]


def test_a_layer_with_bits_of_its_own_is_equalised_for_them() -> None:
    graph, store = spread_layer(list(np.linspace(-6, 0, WIDTH)), "input", 8)
    own = LayerSettings(pattern="text.fc", weight_bits=4)
    found, wanted, of_8_bits = (
        layer_input_format(graph, "x.stored", store, one, equalise=True).scale
        for one in (job(8, (own,)), job(4), job(8))
    )
    assert np.array_equal(found, wanted)
    assert not np.array_equal(found, of_8_bits)


def test_hidden_channels_are_equalised_no_further_for_finer_weights() -> None:
    graph, store = spread_layer(list(np.linspace(-6, 0, WIDTH)), "activation", 8)
    scales = [
        layer_input_format(graph, "x.stored", store, job(bits), equalise=True).scale
        for bits in (8, 12, 16)
    ]
    assert np.array_equal(scales[0], scales[1])
    assert np.array_equal(scales[0], scales[2])


@pytest.mark.parametrize("reach", [1.0, 1.25, 2.0])
def test_clipping_errs_as_it_does_of_an_exponential_tail(reach: float) -> None:
    rows, tail = 40, 0.5
    seen = tail * np.log(rows + 1)
    unseen = np.random.default_rng(0).exponential(tail, 1_000_000)
    excess = np.square(np.maximum(unseen - reach * seen, 0)).mean()
    found = expected_clipping(np.array([seen, 0.0]), np.array([reach * seen, 1.0]), rows)
    assert found[0] == pytest.approx(excess, rel=0.1)
    assert found[1] == 0


def test_with_fewer_calibration_rows_more_is_expected_to_be_clipped() -> None:
    few, many = (expected_clipping(np.ones(1), np.ones(1), rows) for rows in (32, 512))
    assert few > many


def test_mu_may_leave_its_calibrated_range_by_an_eighth() -> None:
    builder = Builder("text", {"x": real(("n", 2), -TOPS, TOPS)})
    graph = builder.graph({"mu": builder.add("mu", Store("mu"), "x")})
    settings = Configuration.of("ideal", None, {"feature_bits": 8}).settings
    assert 127 * shared_scales((graph, graph), settings)["mu"] == pytest.approx(1.125, rel=2e-3)
