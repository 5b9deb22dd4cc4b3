"""The fast kernels give the integers of the readable operations, whatever the bits."""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cimtool.arrays import IntArray
from cimtool.hardware import kernels
from cimtool.hardware.crossbar import Crossbar, encode_inputs, encode_weights
from cimtool.hardware.kernels import absolute_bound, prepare, product_kind, step_errors
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import MatMul, Mvm
from cimtool.ir.format import adc
from cimtool.ir.types import integer

INPUTS = ("unsigned", "twos-complement", "offset", "bipolar")


def limits(hardware: Crossbar) -> tuple[int, int]:
    half = 1 << hardware.input_bits - 1
    if hardware.input_encoding == "unsigned":
        return 0, 2 * half - 1
    return 1 - half, half - 1


def layer(rng: np.random.Generator, hardware: Crossbar, rows: int, columns: int) -> CrossbarMvm:
    top = (1 << hardware.weight_bits - 1) - 1
    weight = rng.integers(-top, top, (rows, columns), endpoint=True)
    if rng.integers(3) == 0:
        weight = np.where(rng.random(weight.shape) < 0.9, top, weight)
    steps = tuple(
        None if rng.integers(4) == 0 else int(rng.integers(8)) for _ in range(hardware.slices)
    )
    return CrossbarMvm(weight, rng.integers(-999, 999, columns), np.ones(columns), hardware, steps)


def assert_fast_is_readable(op: CrossbarMvm, x: IntArray) -> None:
    known = integer(("n", x.shape[1]), *limits(op.crossbar), 1.0)
    np.testing.assert_array_equal(prepare(op, (known,))(x), op.run(x))


@settings(deadline=None, max_examples=150)
@given(
    st.builds(
        Crossbar,
        rows=st.one_of(st.none(), st.integers(1, 9)),
        cell_bits=st.integers(1, 8),
        dac_bits=st.integers(1, 9),
        encoding=st.sampled_from(["differential", "offset", "offset-flip"]),
        weight_bits=st.integers(2, 16),
        input_encoding=st.sampled_from(INPUTS),
        input_bits=st.integers(2, 16),
        adc_bits=st.integers(1, 12),
        rounding=st.sampled_from(["half-up", "half-even", "floor"]),
        accumulator_bits=st.sampled_from([32, 62]),
    ),
    st.integers(1, 21),
    st.integers(1, 5),
    st.integers(0, 2**32 - 1),
)
def test_conversions_are_those_of_the_contract(
    hardware: Crossbar, rows: int, columns: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    op = layer(rng, hardware, rows, columns)
    lo, hi = limits(hardware)
    x = rng.integers(lo, hi, (6, rows), endpoint=True)
    x[:2] = [[lo], [hi]]
    assert_fast_is_readable(op, x)


def plain(**changed: object) -> Crossbar:
    hardware = Crossbar(128, 2, 1, "offset-flip", 8, "twos-complement", 8, 5, "half-up", 32)
    return replace(hardware, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize("rounding", ["half-up", "half-even", "floor"])
@pytest.mark.parametrize("encoding", ["differential", "offset", "offset-flip"])
@pytest.mark.parametrize("dac_bits", [1, 8])
def test_many_rows_in_several_blocks(rounding: str, encoding: str, dac_bits: int) -> None:
    rng = np.random.default_rng(5)
    hardware = plain(rounding=rounding, encoding=encoding, dac_bits=dac_bits)
    op = layer(rng, hardware, 300, 60)
    assert_fast_is_readable(op, rng.integers(-127, 128, (300, 300)))


@pytest.mark.parametrize("encoding", ["offset", "offset-flip", "differential"])
@pytest.mark.parametrize("input_encoding", INPUTS)
def test_partial_sums_may_be_wider_than_the_result(encoding: str, input_encoding: str) -> None:
    """Small weights of many bits: what the offset adds leaves 32 bits, the layer's sum does not."""
    hardware = plain(
        rows=None, cell_bits=8, dac_bits=8, encoding=encoding, weight_bits=16,
        input_encoding=input_encoding, input_bits=9, adc_bits=16,
    )  # fmt: skip
    weight = np.tile([[3, -2, 0]], (1024, 1))
    op = CrossbarMvm(weight, np.zeros(3, np.int64), np.ones(3), hardware, (8,) * hardware.slices)
    lo, hi = limits(hardware)
    assert_fast_is_readable(op, np.array([[lo] * 1024, [hi] * 1024, [lo, hi] * 512]))


def test_lossless_layers_are_one_product() -> None:
    rng = np.random.default_rng(0)
    hardware = plain(adc_bits=None)
    weight = rng.integers(-127, 128, (300, 7))
    op = CrossbarMvm(weight, np.arange(7), np.ones(7), hardware, (None,) * hardware.slices)
    x = rng.integers(-127, 128, (5, 300))
    known = integer(("n", 300), -127, 127, 1.0)
    np.testing.assert_array_equal(prepare(op, (known,))(x), x @ weight + np.arange(7))
    np.testing.assert_array_equal(op.run(x), x @ weight + np.arange(7))


@pytest.mark.parametrize("bits", [6, 12, 20, 26, 29])
def test_products_are_exact_beyond_float32_and_float64(bits: int) -> None:
    top, width = 1 << bits, 9
    known = integer(("n", width), -top, top, 1.0)
    rng = np.random.default_rng(bits)
    x, y = (rng.choice([-top, top, top - 1], (4, width)) for _ in "xy")
    exact = x.astype(object) @ y.T.astype(object)
    np.testing.assert_array_equal(prepare(MatMul(), (known, known))(x, y), exact)
    op = Mvm(y.T.copy(), np.zeros(4, np.int64), np.ones(4))
    np.testing.assert_array_equal(prepare(op, (known,))(x), exact)


def test_real_products_keep_their_own_arithmetic() -> None:
    op = Mvm(np.eye(2), np.zeros(2))
    assert prepare(op, ()) == op.run


def test_the_number_is_chosen_by_a_bound_that_cannot_wrap() -> None:
    assert product_kind((1 << 24) - 1) is np.float32
    assert product_kind(1 << 24) is np.float64
    assert product_kind(1 << 53) is np.int64
    wide = integer(("n", 16), -(2**30), 2**30, 1.0)
    assert absolute_bound(wide, (wide.lo, wide.hi), 16) == 2**64
    uneven = integer(("n", 2), np.array([-9, 0]), np.array([1, 5]), 1.0)
    assert absolute_bound(uneven, (np.array([-1, 2]), np.array([3, 4])), 2) == 27 + 20


@pytest.mark.parametrize("rounding", ["half-up", "half-even", "floor"])
def test_step_errors_are_those_of_the_conversions(rounding: str) -> None:
    rng = np.random.default_rng(3)
    hardware = plain(rounding=rounding, adc_bits=4, rows=None)
    cells = encode_weights(rng.integers(-127, 128, (30, 4)), hardware)[1]
    cycles = list(encode_inputs(rng.integers(-127, 128, (6, 30)), hardware))
    sums = np.stack([cycle.digits @ cells.digits for cycle in cycles])
    weights = np.array([cycle.sign << cycle.shift for cycle in cycles])
    found = step_errors(sums.astype(np.float32), 5, hardware, weights)
    for step in range(5):
        code = adc(sums, step, *hardware.adc_limits, hardware.rounding)
        error = (weights[:, None, None] * ((code << step) - sums)).sum(axis=0)
        assert found[step] == np.square(error).sum()


def test_kernels_run_where_numba_cannot_keep_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_njit = numba.njit

    def njit(**options: object) -> object:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return plain_njit(**options)

    monkeypatch.setattr(numba, "njit", njit)
    assert kernels._jit(lambda x: x + 1)(1) == 2
