"""Weights are rounded to the numbers of their code, and units and exponents err least."""

from __future__ import annotations

import numpy as np
import pytest
from crossbars import PLAIN, changed
from hypothesis import given
from hypothesis import strategies as st

from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.weight_codes import WeightCode
from cimtool.ir.format import round_half_up
from cimtool.passes.rounding import LayerRows, least_error_weights
from cimtool.passes.weight_grids import WeightGrid, weight_gain, weight_grid

CODES = [("twos-complement", 4), ("mxint", 4), ("mxint", 8), ("mxfp", 4), ("mxfp", 6)]


def rounded(
    effective: np.ndarray, encoding: str, bits: int, gptq: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Integer weights in a code, and the units of their columns."""
    code = WeightCode.named(encoding, "encoding")(bits, 1)
    least = np.full(effective.shape[1], 1e-30)
    scale = np.maximum(np.abs(effective).max(axis=0) / code.largest, least)
    scale, grid = weight_grid(effective, code, scale, least)
    if not gptq:
        return grid.nearest(effective / scale).astype(np.int64), scale
    x = np.random.default_rng(3).integers(-40, 41, (90, len(effective)))
    rows = LayerRows(x, None, True)
    weight, units = least_error_weights(effective / scale, scale, rows, grid, least / scale)
    return weight, scale * units


@pytest.mark.parametrize(("encoding", "bits"), CODES)
@given(st.integers(1, 90), st.integers(0, 2**32 - 1), st.booleans())
def test_rounded_weights_fit_their_code(
    encoding: str, bits: int, rows: int, seed: int, gptq: bool
) -> None:
    rng = np.random.default_rng(seed)
    effective = rng.standard_t(2, (rows, 5)) * 2.0 ** rng.integers(-20, 3, (rows, 1))
    effective[:, 0] = 0
    weight, _ = rounded(effective, encoding, bits, gptq)
    crossbar = changed(PLAIN, encoding=encoding, weight_bits=bits)
    StoredWeights(weight, crossbar).slices  # noqa: B018  it checks that cells hold the weights


@pytest.mark.parametrize(("precision", "limit", "values"), [
    (3, 7, range(8)),
    (2, 12, (0, 1, 2, 3, 4, 6, 8, 12)),
])  # fmt: skip
def test_the_nearest_number_of_a_grid(precision: int, limit: int, values: range) -> None:
    grid = WeightGrid(np.ones((1, 1)), limit, precision)
    target = np.linspace(-20, 20, 4001)[:, None]
    held = np.array(sorted({*values, *(-value for value in values)}))
    found = grid.nearest(target)
    assert set(found.flat) == set(held)
    np.testing.assert_allclose(np.abs(found - target), np.abs(target - held).min(1, keepdims=True))


def test_whole_weights_are_rounded_half_up() -> None:
    target = np.random.default_rng(0).integers(-40, 41, (9, 7)) / 4
    found = WeightGrid(np.ones((1, 1)), 7, 3).nearest(target)
    np.testing.assert_array_equal(found, np.clip(round_half_up(target), -7, 7))


@pytest.mark.parametrize("encoding", ["mxint", "mxfp"])
def test_blocks_of_different_size_err_less_with_exponents(encoding: str) -> None:
    rng = np.random.default_rng(1)
    effective = rng.normal(size=(128, 6)) * np.repeat([1, 0.5, 0.25, 0.125], 32)[:, None]
    errors = {}
    for name in ("twos-complement", encoding):
        weight, scale = rounded(effective, name, 4)
        errors[name] = np.square(weight * scale - effective).sum()
    assert errors[encoding] < 0.5 * errors["twos-complement"]


def test_a_gain_brings_weights_back_to_their_size() -> None:
    rng = np.random.default_rng(5)
    target = rng.normal(size=(70, 4)) * 6
    weight = np.rint(target * np.array([0.6, 0.8, 1.0, 1.0])).astype(np.int64)
    weight[:, 3] = 0  # nothing of it is left: its unit stays
    gain = weight_gain(target, weight)
    np.testing.assert_allclose(gain[:3], [1 / 0.6, 1.25, 1.0], rtol=0.02)
    assert gain[3] == 1.0
    slope = (target * weight * gain).sum(axis=0) / np.square(target).sum(axis=0)
    np.testing.assert_allclose(slope[:3], 1.0, atol=2.0**-11)
