"""Curves that no CIM hardware has: their values and their bounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cimtool.ir.op import Op
from cimtool.ir.source import CosineScore, DistanceScore, Exp, LayerNorm, LeakyRelu, Sigmoid, Tanh
from cimtool.ir.types import real

CURVES = [Exp(), Tanh(), Sigmoid(), LeakyRelu(0.2), LeakyRelu(1.5)]
ROWS = np.array([[-3.0, -0.5, 0.0], [0.25, 2.0, 5.5]])

each_curve = pytest.mark.parametrize("op", CURVES, ids=str)


@each_curve
def test_bounds_hold_and_are_reached(op: Op) -> None:
    known = op.infer(real(("n", 3), ROWS.min(axis=0), ROWS.max(axis=0)))
    found = op.run(ROWS)
    np.testing.assert_array_equal(known.lo, found.min(axis=0))
    np.testing.assert_array_equal(known.hi, found.max(axis=0))
    assert known.shape == ("n", 3)


@each_curve
def test_unknown_bounds_stay_harmless(op: Op) -> None:
    known = op.infer(real(("n", 3)))
    assert known.lo <= op.run(ROWS).min()
    assert known.hi >= op.run(ROWS).max()


def test_the_sigmoid_is_that_of_the_definition_and_does_not_overflow() -> None:
    np.testing.assert_allclose(Sigmoid().run(ROWS), 1 / (1 + np.exp(-ROWS)), rtol=1e-14)
    np.testing.assert_array_equal(Sigmoid().run(np.array([-1e9, 1e9])), [0, 1])


def test_a_leaky_relu_multiplies_what_is_below_zero() -> None:
    np.testing.assert_array_equal(LeakyRelu(0.5).run(ROWS), [[-1.5, -0.25, 0], [0.25, 2, 5.5]])


NORM = LayerNorm(np.array([0.5, -2.0, 1.5, 0.0]), np.array([0.1, 0.0, -0.3, 4.0]), 1e-2)
SPREAD = np.array([[-3.0, -0.5, 0.0, 1.0], [0.25, 2.0, 5.5, 0.3], [7.0, 7.0, 7.0, 7.0]])


def test_a_layer_norm_is_torchs() -> None:
    gamma, beta = map(torch.from_numpy, (NORM.gamma, NORM.beta))
    wanted = torch.nn.functional.layer_norm(torch.from_numpy(SPREAD), (4,), gamma, beta, NORM.eps)
    np.testing.assert_allclose(NORM.run(SPREAD), wanted.numpy(), atol=1e-14)


def test_a_layer_norm_stays_in_its_bounds_which_one_number_far_off_reaches() -> None:
    known = NORM.infer(real(("n", 4)))
    alone = 1e6 * np.vstack([np.eye(4), -np.eye(4)])
    found = NORM.run(alone)
    np.testing.assert_allclose(known.lo, found.min(axis=0), rtol=1e-9)
    np.testing.assert_allclose(known.hi, found.max(axis=0), rtol=1e-9)


def test_a_layer_norm_divides_centred_rows_by_the_root_of_their_squares() -> None:
    centred = SPREAD - SPREAD.mean(axis=1, keepdims=True)
    wanted = np.square(centred).sum(axis=1) + 4 * NORM.eps
    np.testing.assert_allclose(NORM.squared_norms(SPREAD), wanted)


VALUES = np.array([[0.5, 2.0], [3.0, 7.25]])


@pytest.mark.parametrize(
    ("op", "wanted"),
    [
        (DistanceScore(-2.0, 1.0), [[0.0, -3.0], [-5.0, -13.5]]),
        (DistanceScore(-1.0), -VALUES),
        (CosineScore(), VALUES),
    ],
    ids=str,
)
def test_values_and_bounds(op: Op, wanted: object) -> None:
    np.testing.assert_array_equal(op.run(VALUES), wanted)
    known = real(("n", "m"), VALUES.min(), VALUES.max())
    bounds = op.infer(known)
    assert (bounds.lo, bounds.hi) == (np.min(wanted), np.max(wanted))
