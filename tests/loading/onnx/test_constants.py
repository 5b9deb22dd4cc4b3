"""Constants of a file are those that ONNX Runtime computes, or are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from cimtool.base.errors import CimError
from cimtool.loading.onnx.constants import FOLDS, ConstantFolder, constant_inputs
from cimtool.loading.onnx.graph import OnnxNode

Case = tuple[list[Any], dict[str, Any]]
"""Inputs of a node, None where one is left out, and its attributes."""

Make = Callable[[np.random.Generator], Case]

TRIALS = 60
"""Nodes of each operator."""
WHOLE = ("int8", "uint8", "int16", "int32", "int64", "uint64")
REAL = ("float32", "float64")


def computed(
    kind: str, inputs: list[Any], attributes: dict[str, Any], outputs: int, opset: int
) -> list[np.ndarray] | None:
    """The results of ONNX Runtime without its optimisations; None where it has none."""
    names = ["" if one is None else f"i{k}" for k, one in enumerate(inputs)]
    held = {name: one for name, one in zip(names, inputs, strict=True) if name}
    made = [f"o{k}" for k in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(kind, names, made, **attributes)],
        "g",
        [],
        [helper.make_empty_tensor_value_info(name) for name in made],
        [numpy_helper.from_array(one, name) for name, one in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return list(session.run(None, {}))
    except Exception:  # the runtime has many kinds of its own
        return None


def folded(
    kind: str, inputs: list[Any], attributes: dict[str, Any], outputs: int, opset: int
) -> tuple[np.ndarray, ...]:
    names = tuple("" if one is None else f"i{k}" for k, one in enumerate(inputs))
    held = {
        key: value.encode() if isinstance(value, str) else value
        for key, value in attributes.items()
    }
    made = tuple(f"o{k}" for k in range(outputs))
    node = OnnxNode("n", "n", kind, "", names, made, held)
    arrays = constant_inputs(node, dict(zip(names, inputs, strict=True)))
    assert arrays is not None
    return ConstantFolder(0, opset).fold(node, arrays, "a file")


def numbers(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Small random numbers of a type, halves among real ones."""
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if np.dtype(kind).kind == "u":
        return rng.integers(0, 9, shape).astype(kind)
    if np.dtype(kind).kind == "i":
        return rng.integers(-9, 9, shape).astype(kind)
    found = np.where(
        rng.random(shape) < 0.3, rng.integers(-9, 9, shape) / 2, rng.normal(size=shape)
    )
    return np.asarray(found, kind)


def extents(rng: np.random.Generator, least: int = 0, most: int = 3) -> tuple[int, ...]:
    return tuple(int(one) for one in rng.integers(1, 5, rng.integers(least, most + 1)))


def spread(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that spreads to another."""
    own = [1 if rng.random() < 0.3 else one for one in shape]
    return tuple(own[rng.integers(0, len(own) + 1) :])


def some(rng: np.random.Generator, rank: int) -> list[int]:
    """Some axes, each from either end."""
    chosen = rng.permutation(rank)[: rng.integers(1, rank + 1)]
    return [int(axis) - rank * int(rng.integers(2)) for axis in chosen]


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def alone(*kinds: str, positive: bool = False, **attributes: Sequence[Any]) -> Make:
    def make(rng: np.random.Generator) -> Case:
        x = numbers(rng, extents(rng), str(rng.choice(kinds)))
        chosen = {name: values[rng.integers(len(values))] for name, values in attributes.items()}
        return [np.asarray(np.abs(x) + 1, x.dtype) if positive else x], chosen

    return make


def pairs(*kinds: str, nonzero: bool = False, count: int = 2, **attributes: Sequence[Any]) -> Make:
    def make(rng: np.random.Generator) -> Case:
        kind, shape = str(rng.choice(kinds)), extents(rng)
        given = [
            numbers(rng, shape, kind),
            *(numbers(rng, spread(rng, shape), kind) for _ in range(count - 1)),
        ]
        if nonzero:
            given[1][given[1] == 0] = 3
        chosen = {name: values[rng.integers(len(values))] for name, values in attributes.items()}
        return given, chosen

    return make


def cast(rng: np.random.Generator) -> Case:
    types = [
        getattr(TensorProto, name.upper())
        for name in ("int8", "uint8", "int32", "int64", "bool", "float", "double", "float16")
    ]
    x = numbers(rng, extents(rng), str(rng.choice([*WHOLE, *REAL, "bool"])))
    if x.dtype.kind == "f" and rng.random() < 0.5:
        x = np.asarray(x * x.dtype.type(100))
    return [x], {"to": int(rng.choice(types))}


def concat(rng: np.random.Generator) -> Case:
    shape = [*extents(rng, 1)]
    axis = int(rng.integers(-len(shape), len(shape)))
    parts = []
    for _ in range(rng.integers(1, 4)):
        shape[axis] = int(rng.integers(1, 4))
        parts.append(numbers(rng, tuple(shape), "float32"))
    return parts, {"axis": axis}


def constant_of_shape(rng: np.random.Generator) -> Case:
    value = numbers(rng, (1,), str(rng.choice([*WHOLE, *REAL])))
    given = {"value": numpy_helper.from_array(value)} if rng.random() < 0.7 else {}
    return [whole(*extents(rng))], given


def expand(rng: np.random.Generator) -> Case:
    shape = extents(rng)
    return [numbers(rng, spread(rng, shape), "int32"), whole(*spread(rng, shape))], {}


def flatten(rng: np.random.Generator) -> Case:
    x = numbers(rng, extents(rng), "float32")
    return [x], {"axis": int(rng.integers(-x.ndim, x.ndim + 1))}


def gather(rng: np.random.Generator) -> Case:
    x = numbers(rng, extents(rng, 1), str(rng.choice(["int64", "float32"])))
    axis = int(rng.integers(-x.ndim, x.ndim))
    size = x.shape[axis]
    places = rng.integers(-size, size, extents(rng, 0, 2))
    return [x, places.astype(str(rng.choice(["int32", "int64"])))], {"axis": axis}


def gemm(rng: np.random.Generator) -> Case:
    rows, inner, columns = (int(one) for one in rng.integers(1, 5, 3))
    turns = {"transA": int(rng.integers(2)), "transB": int(rng.integers(2))}
    a, b = (rows, inner), (inner, columns)
    given = [numbers(rng, a[::-1] if turns["transA"] else a, "float32"),
             numbers(rng, b[::-1] if turns["transB"] else b, "float32")]  # fmt: skip
    if rng.random() < 0.7:
        given.append(numbers(rng, spread(rng, (rows, columns)), "float32"))
    return given, {"alpha": 0.5, "beta": -1.5, **turns}


def matmul(rng: np.random.Generator) -> Case:
    rows, inner, columns = (int(one) for one in rng.integers(1, 5, 3))
    kind, outer = str(rng.choice(["int32", "int64", *REAL])), extents(rng, 0, 1)
    a, b = [(inner,), (*outer, rows, inner)], [(inner,), (inner, columns), (*outer, inner, columns)]
    return [numbers(rng, a[rng.integers(2)], kind), numbers(rng, b[rng.integers(3)], kind)], {}


def layer_norm(rng: np.random.Generator) -> Case:
    x = numbers(rng, (*extents(rng, 1), 4), "float32")
    axis = int(rng.integers(-x.ndim, x.ndim))
    given = [numbers(rng, x.shape[axis:], "float32") for _ in range(rng.integers(1, 3))]
    return [x, *given], {"axis": axis, "epsilon": 0.01}


def instance_norm(rng: np.random.Generator) -> Case:
    x = numbers(rng, (2, 3, 5), "float32")
    return [x, *(numbers(rng, (3,), "float32") for _ in range(2))], {"epsilon": 0.01}


def power(rng: np.random.Generator) -> Case:
    shape = extents(rng)
    base = numbers(rng, shape, str(rng.choice(["int32", "int64", *REAL])))
    return [base, numbers(rng, spread(rng, shape), str(rng.choice(["int32", "int64", *REAL])))], {}


def counted(rng: np.random.Generator) -> Case:
    kind = str(rng.choice(["int16", "int32", "int64", *REAL]))
    start, limit, step = (numbers(rng, (), kind) for _ in range(3))
    return [start, limit, step if step else np.array(2, kind)], {}


def reduction(*kinds: str) -> Make:
    def make(rng: np.random.Generator) -> Case:
        x = numbers(rng, extents(rng, 1), str(rng.choice(kinds)))
        attributes = {
            "keepdims": int(rng.integers(2)),
            "noop_with_empty_axes": int(rng.integers(2)),
        }
        axes = [None, whole(), whole(*some(rng, x.ndim))][rng.integers(3)]
        return ([x] if axes is None else [x, axes]), attributes

    return make


def older_reduction(*kinds: str) -> Make:
    def make(rng: np.random.Generator) -> Case:
        x = numbers(rng, extents(rng, 1), str(rng.choice(kinds)))
        axes = {"axes": some(rng, x.ndim)} if rng.random() < 0.7 else {}
        return [x], {"keepdims": int(rng.integers(2)), **axes}

    return make


def reshape(rng: np.random.Generator) -> Case:
    x = numbers(rng, (2, int(rng.integers(0, 3)), 3), "float32")
    wanted = [[-1], [0, -1], [0, 0, 0], [3, 0, 2], [3, 2, 0], [0, 6], [-1, 3], [3, -1]]
    return [x, whole(*wanted[rng.integers(len(wanted))])], {"allowzero": int(rng.integers(2))}


def shape_of(rng: np.random.Generator) -> Case:
    x = numbers(rng, extents(rng), "float32")
    bounds = {name: int(rng.integers(-5, 6)) for name in ("start", "end") if rng.random() < 0.7}
    return [x], bounds


def slice_of(rng: np.random.Generator) -> Case:
    x = numbers(rng, extents(rng, 1), "float32")
    axes = some(rng, x.ndim)
    if rng.random() < 0.4:
        axes = list(range(int(rng.integers(1, x.ndim + 1))))
    steps = [int(one) for one in rng.choice([-2, -1, 1, 2], len(axes))]
    bounds = [-(2**62), 2**62, *range(-5, 6)]
    starts, ends = ([bounds[rng.integers(len(bounds))] for _ in axes] for _ in range(2))
    in_order = axes == list(range(len(axes)))
    by_axes = None if in_order and rng.random() < 0.7 else whole(*axes)
    given = [x, whole(*starts), whole(*ends), by_axes]
    return (given if rng.random() < 0.3 and by_axes is not None else [*given, whole(*steps)]), {}


def split(rng: np.random.Generator) -> Case:
    x = numbers(rng, (int(rng.integers(2, 7)), int(rng.integers(2, 7))), "float32")
    axis, size = int(rng.integers(-2, 2)), int(rng.integers(0, 4))
    if rng.random() < 0.5:
        return [x], {"axis": axis, "num_outputs": 2}
    return [x, whole(size, x.shape[axis] - size + int(rng.random() < 0.1))], {"axis": axis}


def squeeze(rng: np.random.Generator) -> Case:
    x = numbers(rng, (1, int(rng.integers(1, 3)), 1), "float32")
    axes = [[0], [-1], [0, 2], [1], [-3, 2]]
    return ([x] if rng.random() < 0.3 else [x, whole(*axes[rng.integers(5)])]), {}


def tile(rng: np.random.Generator) -> Case:
    x = numbers(rng, extents(rng, 1), "float32")
    return [x, rng.integers(0, 3, x.ndim)], {}


def transpose(rng: np.random.Generator) -> Case:
    x = numbers(rng, extents(rng), "float32")
    turned = {"perm": [int(one) for one in rng.permutation(x.ndim)]}
    return [x], turned if x.ndim and rng.random() < 0.7 else {}


def triangle(rng: np.random.Generator) -> Case:
    x = numbers(rng, (*extents(rng, 0, 1), 3, 4), "float32")
    given = [np.array(rng.integers(-5, 6))] if rng.random() < 0.7 else []
    return [x, *given], {"upper": int(rng.integers(2))} if rng.random() < 0.7 else {}


def unsqueeze(rng: np.random.Generator) -> Case:
    x = numbers(rng, extents(rng), "float32")
    axes = [[0], [-1], [0, -1], [1], [-2]]
    return [x, whole(*axes[rng.integers(5)])], {}


def softmax(rng: np.random.Generator) -> Case:
    x = numbers(rng, extents(rng, 1), "float32")
    return [x], {"axis": int(rng.integers(-x.ndim, x.ndim))} if rng.random() < 0.7 else {}


def where(rng: np.random.Generator) -> Case:
    (a, b), _ = pairs(*WHOLE, *REAL)(rng)
    return [numbers(rng, spread(rng, a.shape), "bool"), a, b], {}


COMMON = ("int32", "int64", *REAL)
REAL_ALONE = (
    *("Ceil", "Cos", "Erf", "Exp", "Floor", "HardSwish", "IsNaN", "Mish", "Reciprocal", "Round"),
    *("Sigmoid", "Sin", "Softplus", "Tanh"),
)

CASES: dict[str, Make] = {
    **dict.fromkeys(REAL_ALONE, alone("float32")),
    **dict.fromkeys(("Log", "Sqrt"), alone("float32", positive=True)),
    **dict.fromkeys(("Abs", "Identity", "Neg", "Relu", "Sign", "Size"), alone(*WHOLE, *REAL)),
    **dict.fromkeys(("Add", "Mul", "Sub"), pairs(*WHOLE, *REAL)),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), pairs(*COMMON)),
    **dict.fromkeys(("And", "Or", "Xor"), pairs("bool")),
    **dict.fromkeys(("Max", "Min"), pairs(*COMMON, count=3)),
    **dict.fromkeys(("ReduceL1", "ReduceMax", "ReduceMean", "ReduceMin"), reduction(*COMMON)),
    **dict.fromkeys(("ReduceProd", "ReduceSum", "ReduceSumSquare"), reduction(*COMMON)),
    "Cast": cast,
    "Concat": concat,
    "ConstantOfShape": constant_of_shape,
    "Div": pairs(*WHOLE, *REAL, nonzero=True),
    "Elu": alone("float32", alpha=[0.5, 1.0]),
    "Expand": expand,
    "Flatten": flatten,
    "Gather": gather,
    "Gelu": alone("float32", approximate=["none", "tanh"]),
    "Gemm": gemm,
    "InstanceNormalization": instance_norm,
    "LayerNormalization": layer_norm,
    "LeakyRelu": alone("float32", alpha=[0.5, 0.01]),
    "MatMul": matmul,
    "Mod": pairs(*WHOLE, *REAL, nonzero=True, fmod=[0, 1]),
    "Not": alone("bool"),
    "PRelu": pairs("float32"),
    "Pow": power,
    "Range": counted,
    "ReduceL2": reduction(*COMMON),
    "Reshape": reshape,
    "Shape": shape_of,
    "Slice": slice_of,
    "Softmax": softmax,
    "Split": split,
    "Squeeze": squeeze,
    "Sum": pairs("float32", count=3),
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": triangle,
    "Unsqueeze": unsqueeze,
    "Where": where,
}  # fmt: skip
"""Makers of random nodes, by the operator of constants."""

OUTPUTS = {"LayerNormalization": 3, "Split": 2}
"""The number of outputs of a node, where it has several."""


def test_every_operator_of_constants_has_cases() -> None:
    assert set(CASES) == set(FOLDS)


@pytest.mark.parametrize("kind", CASES)
def test_constants_are_those_of_onnx_runtime(kind: str) -> None:
    rng, compared = np.random.default_rng(sorted(CASES).index(kind)), 0
    for _ in range(TRIALS):
        inputs, attributes = CASES[kind](rng)
        compared += agree(kind, inputs, attributes, 20)
    assert compared > TRIALS / 6


@pytest.mark.parametrize("kind", [kind for kind in CASES if kind.startswith("Reduce")])
def test_reductions_along_an_attribute_are_those_of_onnx_runtime(kind: str) -> None:
    rng = np.random.default_rng(5)
    make = older_reduction("int32", "float32")
    assert sum(agree(kind, *make(rng), 12) for _ in range(TRIALS)) > TRIALS / 3


def agree(kind: str, inputs: list[Any], attributes: dict[str, Any], opset: int) -> bool:
    """True where both have the results of a node, which are the same; False where one has none."""
    outputs = OUTPUTS.get(kind, 1)
    wanted = computed(kind, inputs, attributes, outputs, opset)
    if wanted is None:
        return False
    try:
        found = folded(kind, inputs, attributes, outputs, opset)
    except CimError:
        return False
    for one, other in zip(found, wanted, strict=True):
        said = f"{kind} {attributes} of {inputs}"
        assert (one.shape, one.dtype) == (other.shape, other.dtype), said
        if one.dtype.kind == "f":
            most = np.abs(other[np.isfinite(other)]).max(initial=1)
            close = 4e-7 if one.dtype == np.float32 else 1e-14 if one.dtype == np.float64 else 0
            np.testing.assert_allclose(one, other, rtol=4 * close, atol=close * most, err_msg=said)
        else:
            np.testing.assert_array_equal(one, other, said)
    return True
