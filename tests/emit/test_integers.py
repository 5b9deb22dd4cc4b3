from __future__ import annotations

import numpy as np
import pytest

from cimtool.base.arrays import IntArray
from cimtool.emit.onnx import file_bytes, onnx_model
from cimtool.emit.runtime import OptimizationLevel, Session
from cimtool.ir.arithmetic import Clip
from cimtool.ir.integer import Requant
from cimtool.ir.program import Builder
from cimtool.ir.types import integer

ROWS = 333
EDGES = [0, 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1, 2**32, 3 * 2**31, 2**40]


def values_below(magnitude: int, seed: int) -> IntArray:
    """Rows of every size up to a magnitude, and those around which 32-bit words change sign."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, magnitude.bit_length(), ROWS)
    x = rng.integers(0, 2**sizes) * rng.choice([-1, 1], ROWS)
    edges = [sign * edge for edge in EDGES if edge <= magnitude for sign in (-1, 1)]
    return np.concatenate([x, edges]).astype(np.int64)


@pytest.mark.parametrize("level", ["disable", "all"])
@pytest.mark.parametrize(
    ("lo", "hi"),
    [
        (-127, 127),
        (0, 255),
        (0, 2**62),
        (-(2**62), 0),
        (-(2**62), 2**62),
        (326631424, 2502688768),
        (-(2**31), 2**31 - 1),
        (-(2**31), 2**31),
        (-3_000_000_000, 3_000_000_000),
        (-(2**40), 2**33),
    ],
)
@pytest.mark.parametrize("magnitude", [100, 2**31 - 1, 2**32, 2**40, 2**61])
def test_onnx_runtime_limits_as_the_operation_does(
    magnitude: int, lo: int, hi: int, level: OptimizationLevel
) -> None:
    builder = Builder("limits", {"x": integer(("n",), -magnitude, magnitude, 1.0)})
    name = builder.add("y", Clip(np.asarray(lo), np.asarray(hi)), "x")
    graph = builder.graph({"y": name})
    x = values_below(magnitude, seed=magnitude.bit_length())
    session = Session(file_bytes(onnx_model(graph)), level)
    found = session.run({"x": x})["y"]
    np.testing.assert_array_equal(found, graph.run({"x": x})["y"])
    np.testing.assert_array_equal(found, np.clip(x, lo, hi))


def test_limits_may_differ_by_channel() -> None:
    builder = Builder("limits", {"x": integer(("n", 3), -(2**40), 2**40, 1.0)})
    lo, hi = np.array([-5, 0, -(2**33)]), np.array([5, 3_000_000_000, 2**50])
    graph = builder.graph({"y": builder.add("y", Clip(lo, hi), "x")})
    x = np.stack([values_below(2**40, seed) for seed in range(3)], axis=1)
    found = Session(file_bytes(onnx_model(graph))).run({"x": x})["y"]
    np.testing.assert_array_equal(found, np.clip(x, lo, hi))


def test_requantised_values_beyond_32_bits_are_limited() -> None:
    builder = Builder("limits", {"x": integer(("n",), -(2**40), 2**40, 1.0)})
    requant = Requant(np.asarray(3), np.asarray(2), -127, 127, np.asarray(1.0))
    graph = builder.graph({"y": builder.add("y", requant, "x")})
    x = values_below(2**40, seed=9)
    found = Session(file_bytes(onnx_model(graph))).run({"x": x})["y"]
    np.testing.assert_array_equal(found, np.clip((x * 3 + 2) >> 2, -127, 127))
