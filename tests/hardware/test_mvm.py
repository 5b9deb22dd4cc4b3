"""The crossbar layer as an operation: its type, its bounds, and how it runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.types import integer

HARDWARE = Crossbar(4, 2, 2, "offset-flip", 6, "twos-complement", 5, 3, "half-up", 24)
X = integer(("n", 10), -15, 15, 0.5)


def layer(*steps: int | None, hardware: Crossbar = HARDWARE) -> CrossbarMvm:
    rng = np.random.default_rng(1)
    weight = rng.integers(-31, 32, (10, 3))
    return CrossbarMvm(weight, np.array([5, -5, 0]), np.array([0.5, 1.0, 2.0]), hardware, steps)


def test_a_lossless_layer_has_the_bounds_of_its_product() -> None:
    op = layer(None, None, None)
    assert op.exact
    known = op.infer(X)
    reach = 15 * np.abs(op.weight).sum(axis=0)
    np.testing.assert_array_equal(known.hi, reach + op.bias)
    np.testing.assert_array_equal(known.lo, op.bias - reach)
    assert known.shape == ("n", 3)
    assert known.unit.tolist() == [0.5, 1.0, 2.0]


def test_converters_widen_the_bounds_by_what_they_may_err() -> None:
    plain, rounded = layer(None, None, None), layer(None, 2, 1)
    assert not rounded.exact
    assert (rounded.infer(X).hi > plain.infer(X).hi).all()
    assert (rounded.infer(X).lo < plain.infer(X).lo).all()


@pytest.mark.parametrize("steps", [(None, 2, 1), (4, 4, 4), (0, 0, 0), (None, None, 3)])
@pytest.mark.parametrize("encoding", ["differential", "offset", "offset-flip"])
@pytest.mark.parametrize("inputs", ["twos-complement", "offset", "bipolar"])
def test_runs_stay_inside_the_bounds(
    steps: tuple[int | None, ...], encoding: str, inputs: str
) -> None:
    hardware = replace(HARDWARE, encoding=encoding, input_encoding=inputs)
    op = layer(*steps, hardware=hardware)
    known = op.infer(X)
    x = np.random.default_rng(2).choice([-15, 15, 0, 7], (200, 10))
    found = op.run(x)
    assert (found >= known.lo).all()
    assert (found <= known.hi).all()


def test_the_accumulator_is_that_of_the_hardware() -> None:
    assert layer(None, None, None).accumulator_bits == 24
