"""Operations that no integer program holds, each alone as a file: it computes the same."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from cimtool.base.arrays import FloatArray
from cimtool.emit import operations  # noqa: F401  (importing rules registers them)
from cimtool.emit.writer import GraphWriter
from cimtool.ir.arithmetic import Arrange, BatchMatMul
from cimtool.ir.backends import ONNX
from cimtool.ir.op import Op
from cimtool.ir.source import (
    CosineScore,
    DistanceScore,
    Elu,
    Erf,
    Exp,
    Inclusion,
    L2Normalize,
    LayerNorm,
    LeakyRelu,
    LogGamma,
    Power,
    ProbitScore,
    RmsNorm,
    Sigmoid,
    Softmax,
    Softplus,
    Sorted,
    Tanh,
)
from cimtool.ir.types import real, with_rows_of_item

NORM = LayerNorm(np.array([0.5, -2.0, 1.5]), np.array([0.1, 0.0, -0.3]), 1e-2)
CAUSAL = [[0.0, -np.inf, -np.inf], [0.0, 0.0, -1e9], [0.0, 0.0, 0.0]]
OPERATIONS = [
    *(Exp(), Tanh(), Sigmoid(), LeakyRelu(0.2), LeakyRelu(1.5), L2Normalize(), NORM),
    *(Elu(0.7), Softplus(), Erf(), RmsNorm(NORM.gamma, 0.1)),
    *(Softmax(), Softmax(np.array([[0.0, -np.inf, 0.0]])), Softmax(np.array(CAUSAL))),
    *(Sorted(), L2Normalize(4.0), Power(2.0)),
    *(Arrange(1, np.array([[2, 0]])), Arrange(3, np.arange(9).reshape(1, 9))),
    *(Arrange(3, np.array([[0, 4], [8, 4]])), Arrange(1, np.arange(3)[:, None])),
    *(DistanceScore(-2.0, 1.0), DistanceScore(-1.0), CosineScore()),
]
ROWS = np.array([[-3.0, -0.5, 0.0], [0.25, 2.0, 5.5], [7.0, 7.0, 7.0]])


def computed(op: Op, x: FloatArray, inputs: int = 1) -> FloatArray:
    """Output of a file of one operation for `x`, or for it twice, in double."""
    writer = GraphWriter("DOUBLE")
    types = (real((with_rows_of_item(getattr(op, "rows", 1), "n"), x.shape[1])),) * inputs
    writer.name_output(ONNX.of(op)(writer, op, types, *["x"] * inputs), "y")
    ports = [
        {name: ("DOUBLE", of.shape)} for name, of in (("x", types[0]), ("y", op.infer(*types)))
    ]
    model = writer.model("one", *ports)
    (found,) = ReferenceEvaluator(model).run(None, {"x": x})
    return np.asarray(found)


@pytest.mark.parametrize("op", OPERATIONS, ids=str)
def test_onnx_computes_the_same(op: Op) -> None:
    rtol = 1e-6 if isinstance(op, Erf) else 1e-7  # of float: runtimes have no other
    np.testing.assert_allclose(computed(op, ROWS), op.run(ROWS), rtol=rtol, atol=1e-9)


def test_onnx_multiplies_batches_by_their_own() -> None:
    op, x = BatchMatMul(3, 3), np.random.default_rng(8).normal(size=(12, 5))
    np.testing.assert_allclose(computed(op, x, inputs=2), op.run(x, x))


def test_onnx_computes_the_logarithm_of_the_gamma_function_by_a_series() -> None:
    x = np.concatenate([np.geomspace(1e-3, 1e3, 999), [1.0, 2.0, 30.0]])[None]
    exact = LogGamma().run(x)
    np.testing.assert_allclose(computed(LogGamma(), x), exact, rtol=1e-13, atol=1e-11)


@pytest.mark.parametrize("op", [Inclusion(), ProbitScore(10.0, -2.0)], ids=lambda op: op.name)
def test_onnx_computes_scores_of_pairs(op: Op) -> None:
    rng = np.random.default_rng(4)
    if isinstance(op, Inclusion):
        inputs = [rng.normal(size=(count, 3)) for count in (4, 4, 5, 5)]
    else:
        inputs = [rng.normal(size=(4, 5)), rng.uniform(0, 1, (4, 5))]
    names = [f"x{place}" for place in range(len(inputs))]
    types = [real(x.shape) for x in inputs]
    writer = GraphWriter("DOUBLE")
    writer.name_output(ONNX.of(op)(writer, op, types, *names), "y")
    ports = {name: ("DOUBLE", known.shape) for name, known in zip(names, types, strict=True)}
    model = writer.model("pairs", ports, {"y": ("DOUBLE", (4, 5))})
    (found,) = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
    np.testing.assert_allclose(found, op.run(*inputs), rtol=1e-10, atol=1e-12)
