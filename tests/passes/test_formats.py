"""Formats: scales that cover, and power-of-two ones where exactness asks for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cimtool.hardware.configuration import Configuration
from cimtool.hardware.settings import LayerSettings, resolve
from cimtool.hardware.target import load_target
from cimtool.ir.arithmetic import Mvm, Store, plus
from cimtool.ir.format import integer_limits, round_half_up
from cimtool.ir.program import Builder, Calibration, Graph
from cimtool.ir.tails import Tails
from cimtool.ir.types import real
from cimtool.passes.base import Job
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


def job(weight_bits: int = 8, layers: tuple[LayerSettings, ...] = (), rows: int = 512) -> Job:
    settings = resolve(load_target("ideal"), None, {"weight_bits": weight_bits})
    settings = settings.model_copy(update={"layers": layers})
    return Job(settings, np.zeros((rows, 2)), np.zeros((rows, 2)), lambda line: None)


def input_format(residual: bool, equalise: bool = True) -> Format:
    return layer_input_format(layer(residual), "x.stored", STORED, job(), equalise)


def with_tails(graph: Graph, excess: float = 0.1) -> Graph:
    """A graph of whose input a tenth of the numbers lies above 0.8 of the largest."""
    top = graph.types["x"].real_bounds()[1]
    tails = Tails(0.1, 0.8 * top, excess * top)
    calibration = Calibration(mean_squares={"x": top**2 / 3}, tails={"x": tails})
    return replace(graph, calibration=calibration)


def tailed_format(weight_bits: int, excess: float, equalise: bool = True) -> Format:
    graph = with_tails(layer(False), excess)
    return layer_input_format(graph, "x.stored", STORED, job(weight_bits), equalise)


@pytest.mark.parametrize("equalise", [False, True])
def test_without_tails_a_format_covers_what_was_seen_and_no_more(equalise: bool) -> None:
    fmt = input_format(False, equalise)
    assert np.all(fmt.hi * fmt.scale >= TOPS)
    assert fmt.hi * fmt.scale[0] <= TOPS[0] * (1 + 2.0**-8)


def test_a_value_that_is_added_has_scales_that_shifts_bring_together() -> None:
    fmt = input_format(True)
    assert np.all(np.frexp(fmt.scale / fmt.scale[0])[0] == 0.5)
    assert len(set(fmt.scale)) == 2


def test_a_value_that_goes_past_its_layers_is_kept_finely() -> None:
    scales = [np.broadcast_to(input_format(residual).scale, 2) for residual in (False, True)]
    assert scales[1][1] < scales[0][1]


def test_a_longer_tail_takes_a_wider_range() -> None:
    short, long = (tailed_format(8, excess) for excess in (0.01, 0.2))
    assert short.hi * short.scale[0] < TOPS[0] < 1.5 * TOPS[0] < long.hi * long.scale[0]


def test_one_scale_for_all_channels_clips_the_widest_where_others_gain() -> None:
    """With 31 narrow channels that matter as much, the wide one's tail is cut."""
    tops = np.full(WIDTH, 1 / 16)
    tops[0] = 1.0
    builder = Builder("text", {"x": real(("n", WIDTH), -tops, tops)})
    x = builder.add("x.stored", Store("input", 3), "x")
    weight = np.eye(WIDTH) / (tops + 0.01)[:, None]
    graph = builder.graph({"y": builder.add("fc", Mvm(weight, np.zeros(WIDTH)), x)})
    store = Store("input", 3)
    seen, tailed = (
        layer_input_format(one, "x.stored", store, job(), equalise=False)
        for one in (graph, with_tails(graph))
    )
    assert float(tailed.scale[0]) < float(seen.scale[0])


def test_weights_of_few_bits_decide_how_far_channels_are_equalised() -> None:
    spread = [fmt.scale[0] / fmt.scale[1] for fmt in (tailed_format(b, 0.1) for b in (2, 16))]
    assert spread[0] != spread[1]


WIDTH = 16
Spread = st.lists(st.floats(-6, 0), min_size=WIDTH, max_size=WIDTH)


def spread_layer(exponents: list[float], role: str, bits: int) -> tuple[Graph, Store]:
    """A layer of random weights, and rows whose channels reach 2^exponents."""
    tops, store = 2.0 ** np.array(exponents), Store(role, bits)
    builder = Builder("text", {"x": real(("n", WIDTH), -tops, tops)})
    x = builder.add("x.stored", store, "x")
    weight = np.random.default_rng(0).normal(size=(WIDTH, 8))
    graph = builder.graph({"y": builder.add("fc", Mvm(weight, np.zeros(8)), x)})
    return with_tails(graph), store


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


def expected_noise(graph: Graph, fmt: Format, weight_bits: int) -> float:
    """Expected error from rounding weights, and from rounding and clipping inputs."""
    weight, (_, largest) = graph.operations(Mvm)["fc"].weight, integer_limits(weight_bits, True)
    tails = graph.calibration.tails["x"]
    errors = np.square(fmt.scale) / 12 + tails.clipped(fmt.scale * fmt.hi)
    steps = np.abs(weight * np.reshape(fmt.scale, (-1, 1))).max(axis=0) / largest
    means = graph.calibration.mean_squares["x"]
    of_weights = np.square(steps).sum() / 12 * (means / fmt.scale**2).sum()
    return float(of_weights + (np.square(weight).sum(axis=1) * errors).sum())


@pytest.mark.thorough("one place stands for the other", quick=("activation",))
@pytest.mark.parametrize("role", ["input", "activation"])
@given(Spread, st.integers(2, 16), st.integers(2, 16), st.sampled_from([4, 8, 12]))
def test_channels_are_equalised_for_the_levels_of_their_own_weights(
    role: str, exponents: list[float], bits: int, other: int, stored: int
) -> None:
    graph, store = spread_layer(exponents, role, stored)
    own, others = (
        layer_input_format(graph, "x.stored", store, job(b), equalise=True) for b in (bits, other)
    )
    assert expected_noise(graph, own, bits) <= expected_noise(graph, others, bits) * (1 + 1e-9)


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


def stored_mu(tails: Tails | None) -> Graph:
    builder = Builder("text", {"x": real(("n", 2), -TOPS, TOPS)})
    graph = builder.graph({"mu": builder.add("mu", Store("mu"), "x")})
    return replace(graph, calibration=Calibration(tails={"x": tails} if tails else {}))


def test_mu_covers_what_was_seen_where_no_tails_are_known() -> None:
    settings = Configuration.of("ideal", None, {"feature_bits": 8}).settings
    graph = stored_mu(None)
    assert 127 * shared_scales((graph, graph), settings)["mu"] == pytest.approx(1.0, rel=2e-3)


@pytest.mark.parametrize("bits", [4, 8, 12])
def test_mu_has_the_scale_of_least_expected_error_over_all_dimensions(bits: int) -> None:
    settings = Configuration.of("ideal", None, {"feature_bits": bits}).settings
    texts, videos = (Tails(0.1, 0.5 * TOPS, excess * TOPS) for excess in (0.1, 0.02))
    scale = shared_scales((stored_mu(texts), stored_mu(videos)), settings)["mu"]
    _, largest = integer_limits(bits, True)

    def error(unit: float) -> float:
        limit = np.asarray(unit * largest)
        return 4 * unit**2 / 12 + float(sum(t.clipped(limit).sum() for t in (texts, videos)))

    assert error(scale) <= 1.02 * min(error(scale * 2.0 ** (k / 16)) for k in range(-32, 33))


@given(st.integers(0, 10**6), st.sampled_from([4, 6, 8]), st.booleans(), st.booleans())
@settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_the_search_finds_what_trying_all_finds(
    monkeypatch: pytest.MonkeyPatch, seed: int, weight_bits: int, tailed: bool, residual: bool
) -> None:
    rng = np.random.default_rng(seed)
    top = np.exp(rng.normal(size=6))
    builder = Builder("text", {"x": real(("n", 6), -top, top)})
    x = builder.add("x.stored", STORED, "x")
    weight = rng.standard_t(3, (6, 5)) * np.exp(rng.normal(size=(6, 1)))
    y = builder.add("fc", Mvm(weight, np.zeros(5)), x)
    z = builder.add("fc2", Mvm(weight[:, ::-1] ** 2, np.zeros(5)), x)
    outputs = {"y": y, "z": z} | ({"x": builder.add("past", plus(1), x)} if residual else {})
    graph = builder.graph(outputs)
    if tailed:
        graph = with_tails(graph, float(rng.uniform(0.01, 0.3)))

    def found() -> Format:
        return layer_input_format(graph, "x.stored", STORED, job(weight_bits), True)

    chosen = found()
    with monkeypatch.context() as all_tried:
        all_tried.setattr("cimtool.passes.formats.LEAST_OF_WEIGHTS", -np.inf)
        whole = found()
    assert (chosen.lo, chosen.hi) == (whole.lo, whole.hi)
    assert np.array_equal(chosen.scale, whole.scale)
