"""Quantized models keep their integers: those of their own runtime, and of every implementation.

`golden/quantized` holds networks as brevitas and torchao export them, and what qonnx computes of
one; onnxruntime quantizes one here, and runs all but QONNX.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from c_tools import differing as of_handoff
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.compilation import Compilation, prepare
from cimtool.bundle.exporters import Request, export_bundle
from cimtool.ir.program import Graph
from cimtool.ir.quantized import FractionalBias, QuantizedMvm, QuantizedStore
from cimtool.simulation.simulator import Runner

GOLDEN = Path(__file__).parent / "golden" / "quantized"
WIDTH, HIDDEN, D = 16, 12, 8
TARGETS = ("isaac-rram-128", "hermes-pcm-14nm", "dcim-22nm-tsmc")
OPTIONS = {"head": "csd", "a": 0.3, "b": 1.0}
IDEAL = OPTIONS | {"target": "ideal"}
ROWS = 2000


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rows") / "rows.npz"
    np.savez(file, text=rows(200, 1), video=rows(200, 2))
    return file


def unseen(folder: Path) -> Path:
    """Rows that calibrated nothing."""
    np.savez(folder / "unseen.npz", text=rows(60, 5), video=rows(60, 6))
    return folder / "unseen.npz"


class CalibrationRows(quantization.CalibrationDataReader):
    def __init__(self) -> None:
        self.left = [{"x": rows(200, 1)}]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self.left.pop() if self.left else None


@pytest.fixture(scope="module")
def own_runtimes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files that onnxruntime runs, by who quantized them."""
    folder, rng = tmp_path_factory.mktemp("onnxruntime"), np.random.default_rng(3)
    shapes = {"fc1": (WIDTH, HIDDEN), "m": (HIDDEN, D), "l": (HIDDEN, D)}
    weights = {name: rng.normal(size=s).astype(np.float32) / 4 for name, s in shapes.items()}
    weights |= {f"{n}.bias": rng.normal(size=s[1]).astype(np.float32) for n, s in shapes.items()}
    nodes = [
        helper.make_node("Gemm", ["x", "fc1", "fc1.bias"], ["h"], "fc1"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "m", "m.bias"], ["mu"], "m"),
        helper.make_node("Gemm", ["r", "l", "l.bias"], ["logvar"], "l"),
    ]
    graph = helper.make_graph(
        nodes,
        "projector",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", WIDTH))],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ("n", D)) for n in ("mu", "logvar")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    files = {name: GOLDEN / f"{name}.onnx" for name in ("brevitas-qcdq", "torchao-pt2e")}
    kinds = {"signed": quantization.QuantType.QInt8, "unsigned": quantization.QuantType.QUInt8}
    for name, kind in kinds.items():
        files[f"onnxruntime, {name}"] = folder / f"{name}.onnx"
        quantization.quantize_static(
            model,
            files[f"onnxruntime, {name}"],
            CalibrationRows(),
            activation_type=kind,
            weight_type=kind,
            per_channel=name == "signed",
        )
    return files


def compiled(file: Path, data: Path) -> tuple[Graph, Graph]:
    """The lowered and the quantized graph of a file."""
    stages = {
        s.name: s.program
        for s in prepare((file, file), calibration=data, drift="given", **IDEAL).stages
    }
    return stages["lowered"].text, stages["quantized"].text


def own_values(file: Path, x: np.ndarray) -> list[np.ndarray]:
    """All that the runtime of a file computes of rows, operator by operator."""
    model = onnx.load(file)
    known = {value.name for value in model.graph.output}
    for node in model.graph.node:
        if not known.intersection(node.output) and node.op_type != "Constant":
            model.graph.output.append(helper.make_empty_tensor_value_info(node.output[0]))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return [value for value in session.run(None, {"x": x}) if value.dtype == np.float32]


def differing(
    wanted: list[np.ndarray], found: np.ndarray, unit: np.ndarray, offset: np.ndarray | float = 0.0
) -> int:
    """Integers that differ from `wanted` in units, of the values [n, N] that is the closest."""
    alike = [value for value in wanted if value.shape == found.shape]
    return min(int((np.rint((value - offset) / unit) != found).sum()) for value in alike)


def first_layer(lowered: Graph) -> tuple[str, np.ndarray]:
    """The first layer, and what its runtime adds to it that it does not."""
    name = next(iter(lowered.operations(QuantizedMvm)))
    bias = lowered.by_name.get(f"{name}.bias")
    return name, np.zeros(1) if bias is None else bias.op.offset  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "by", ["brevitas-qcdq", "torchao-pt2e", "onnxruntime, signed", "onnxruntime, unsigned"]
)
def test_the_integers_are_those_of_onnxruntime(
    own_runtimes: dict[str, Path], data: Path, by: str
) -> None:
    x = rows(ROWS, 7)
    lowered, quantized = compiled(own_runtimes[by], data)
    wanted = own_values(own_runtimes[by], x)
    stores, (first, bias) = lowered.operations(QuantizedStore), first_layer(lowered)
    found = Runner(quantized).values({"x": x}, [*stores, first])
    assert differing(wanted, found[first], quantized.types[first].unit, bias) == 0
    counts = [differing(wanted, found[k], np.asarray(op.scale)) for k, op in stores.items()]
    assert counts[0] == 0
    assert sum(counts) <= 1e-4 * ROWS * HIDDEN  # float32 sums of the runtime, next to a half


def test_the_integers_are_those_of_qonnx(data: Path) -> None:
    with np.load(GOLDEN / "brevitas-qonnx.npz") as file:
        wanted = dict(file)
    lowered, quantized = compiled(GOLDEN / "brevitas-qonnx.onnx", data)
    (inputs, hidden), (first, bias) = lowered.operations(QuantizedStore), first_layer(lowered)
    found = Runner(quantized).values({"x": wanted["x"]}, [inputs, first, hidden])
    for name, value, offset in (
        (inputs, "codes", 0.0),
        (first, "sums", bias),
        (hidden, "hidden", 0.0),
    ):
        unit = quantized.types[name].unit
        assert differing([wanted[value]], found[name], unit, offset) == 0


def test_both_formats_of_brevitas_are_one_model(data: Path) -> None:
    both = [compiled(GOLDEN / f"brevitas-{name}.onnx", data)[1] for name in ("qcdq", "qonnx")]
    features = [Runner(graph).run({"x": rows(50, 3)}) for graph in both]
    for name in features[0]:
        np.testing.assert_array_equal(features[0][name], features[1][name])


@pytest.fixture(scope="module")
def mixed(data: Path) -> Compilation:
    """Weights of 4 bits for texts, zero points for videos."""
    files = GOLDEN / "brevitas-qcdq.onnx", GOLDEN / "torchao-pt2e.onnx"
    return prepare(files, calibration=data, drift="given", target=TARGETS[0], **OPTIONS)


def test_layers_have_the_bits_of_their_file(mixed: Compilation) -> None:
    (note,) = (note for note in mixed.notes if "trained integers" in note)
    assert note.startswith("6 layers keep their trained integers")
    assert "text.fc1 (4 x 8), text.mu (4 x 4)" in note
    assert "video.mu (8 x 8)" in note, "cells of these arrays hold the -128 of its weights"
    program = mixed.stages[-1].program
    crossbars = {f"{g.name}.{n.name}": n.op.crossbar for g in (program.text, program.video)
                 for n in g.nodes if hasattr(n.op, "crossbar")}  # fmt: skip
    assert crossbars["text.fc1"].weights.bits == 4
    assert {layer: code.inputs.bits for layer, code in crossbars.items()} == {
        "text.fc1": 8, "text.mu": 4, "text.logvar": 4,
        "video.node_linear": 8, "video.mu": 8, "video.node_linear_2": 8,
    }  # fmt: skip


@pytest.mark.thorough("each target; one of a kind is in the first tier", quick=("dcim",))
@pytest.mark.parametrize("target", TARGETS)
def test_no_value_differs(data: Path, tmp_path: Path, target: str) -> None:
    files = GOLDEN / "brevitas-qcdq.onnx", GOLDEN / "torchao-pt2e.onnx"
    bundle = api.compile(
        files, calibration=data, drift="given", target=target, output=tmp_path / "bundle", **OPTIONS
    )
    counts = api.verify(bundle.folder, unseen(tmp_path), report=tmp_path / "report").checks.bits
    assert {"ONNX Runtime", "the NumPy reference"} <= {count.implementation for count in counts}
    assert [count for count in counts if count.differing] == []
    if target == TARGETS[0]:
        assert of_hand_off(bundle, tmp_path / "handoff")


def of_hand_off(bundle: Bundle, folder: Path) -> bool:
    """Tell that no value of the C model differs, and its header says units of embeddings."""
    export_bundle(bundle, "handoff", folder, Request())
    compared, wrong = of_handoff(folder)
    headers = "".join(file.read_text() for file in folder.rglob("*.h"))
    return compared > 1000 and wrong == 0 and "divide in float by TEXT_UNITS" in headers


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"weight_bits": 3}, r"weight_bits = 3: text\.fc1 has trained integers of 4 bits"),
        ({"activation_bits": 3}, r"activation_bits = 3: text\.fc1 has trained .* of 8 bits"),
    ],
)
def test_fewer_bits_than_trained_are_refused(
    data: Path, options: dict[str, int], sentence: str
) -> None:
    file = GOLDEN / "brevitas-qcdq.onnx"
    with pytest.raises(CimError, match=sentence):
        prepare((file, file), calibration=data, **IDEAL, **options)


def test_tune_says_that_there_are_no_bits(data: Path, tmp_path: Path) -> None:
    file = GOLDEN / "brevitas-qcdq.onnx"
    with pytest.raises(CimError, match=r"^all layers keep trained integers, so there are no bits"):
        api.tune(
            (file, file), calibration=data, data=unseen(tmp_path), target=TARGETS[0],
            budget={"logit_rmse": 1.0}, output=tmp_path / "out.toml", **OPTIONS,
        )  # fmt: skip


def test_a_bias_is_added_in_fractions_of_a_unit(data: Path) -> None:
    lowered, quantized = compiled(GOLDEN / "brevitas-qcdq.onnx", data)
    (name,) = (n for n in lowered.operations(FractionalBias) if n.startswith("fc1"))
    unit = quantized.types[name].unit
    wanted = lowered.operations(FractionalBias)[name].offset
    np.testing.assert_array_equal(256 * unit, quantized.types["fc1"].unit)
    error = quantized.by_name[name].op.offset * unit - wanted  # type: ignore[attr-defined]
    assert np.all(np.abs(error) <= unit / 2)


def residual(file: Path, activation: str) -> Path:
    """A block whose codes of 8 bits are added to a value that nothing quantized."""
    rng = np.random.default_rng(4)
    constants: dict[str, np.ndarray] = {"zero": np.array(0, np.int8)}
    nodes = []

    def quantized(value: str, scale: float) -> str:
        constants[f"{value}.scale"] = np.array(scale, np.float32)
        by = [f"{value}.scale", "zero"]
        nodes.append(helper.make_node("QuantizeLinear", [value, *by], [f"{value}.codes"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{value}.codes", *by], [f"{value}.q"]))
        return f"{value}.q"

    def layer(value: str, name: str, width: int, out: int, made: str) -> str:
        constants[f"{name}.codes"] = rng.integers(-127, 128, (width, out)).astype(np.int8)
        constants[f"{name}.scale"] = np.array(1 / 300, np.float32)
        constants[f"{name}.bias"] = rng.normal(size=out).astype(np.float32)
        by = [f"{name}.codes", f"{name}.scale", "zero"]
        nodes.append(helper.make_node("DequantizeLinear", by, [name]))
        nodes.append(helper.make_node("Gemm", [value, name, f"{name}.bias"], [made], name))
        return made

    h = layer(quantized("x", 0.03), "fc1", WIDTH, HIDDEN, "h")
    nodes.append(helper.make_node(activation, [h], ["t"]))
    g = quantized(layer(quantized("t", 0.008), "fc2", HIDDEN, HIDDEN, "g"), 0.04)
    nodes.append(helper.make_node("Add", ["t", g], ["sum"]))
    for name, made in (("m", "mu"), ("l", "logvar")):
        layer("sum", name, HIDDEN, D, made)
    graph = helper.make_graph(
        nodes,
        "residual",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", WIDTH))],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ("n", D)) for n in ("mu", "logvar")],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file
    )
    return file


@pytest.mark.parametrize("activation", ["Tanh", "Sigmoid", "Softplus"])
def test_codes_are_added_to_a_value_that_nothing_quantized(
    data: Path, tmp_path: Path, activation: str
) -> None:
    file, x = residual(tmp_path / "residual.onnx", activation), rows(200, 1)
    lowered, quantized = compiled(file, data)
    added = lowered.by_name["sum"].inputs
    taps = [node.name for node in lowered.nodes if node.name in added]
    wanted, found = (
        Runner(graph).values({"x": x}, ["sum"])["sum"] for graph in (lowered, quantized)
    )
    error = np.abs(found * quantized.types["sum"].unit - wanted)
    codes = lowered.operations(QuantizedStore)
    (coarse,) = (codes[name].scale for name in taps if name in codes)
    # Codes differ where a layer's sum is next to a half; what is added to them keeps its bits.
    assert (error > coarse / 2).mean() < 0.01
    assert np.median(error) < 1e-5


BY = ("scale", "zero")
QDQ = (("QuantizeLinear", BY), ("DequantizeLinear", BY))
TOKENS = ("Reshape", ("tokens",))


def over_tokens(file: Path, steps: tuple[tuple[str, tuple[str, ...]], ...]) -> Path:
    """A layer of whole weights over 4 tokens of 4 numbers, which `steps` make of the input."""
    constants: dict[str, np.ndarray | np.generic] = {
        "scale": np.float32(1 / 32), "zero": np.uint8(131), "tokens": np.array([-1, 4, 4]),
        "low": np.float32(-3 / 32), "high": np.float32(60 / 32), "none": np.int8(0),
        "codes": np.random.default_rng(6).integers(-127, 128, (4, D)).astype(np.int8),
    }  # fmt: skip
    nodes, value = [helper.make_node("DequantizeLinear", ["codes", "scale", "none"], ["w"])], "x"
    for op, given in steps:
        how = {"perm": [0, 2, 1]} if op == "Transpose" else {}
        nodes.append(helper.make_node(op, [value, *given], [f"{value}.{op}"], **how))
        value = f"{value}.{op}"
    nodes += [
        helper.make_node("MatMul", [value, "w"], ["h"]),
        helper.make_node("ReduceMean", ["h"], ["mu"], axes=[1], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "tokens",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", WIDTH))],
        [helper.make_tensor_value_info("mu", TensorProto.FLOAT, ("n", D))],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file
    )
    return file


@pytest.mark.parametrize(
    "steps",
    [
        (*QDQ, TOKENS),
        (*QDQ, TOKENS, ("Transpose", ())),
        (TOKENS, *QDQ),
        (*QDQ, ("Relu", ()), TOKENS),
        (*QDQ, TOKENS, ("Clip", ("low", "high"))),
    ],
    ids=lambda steps: " ".join(op for op, _ in steps),
)
def test_codes_in_other_places_are_what_a_layer_reads(
    data: Path, tmp_path: Path, steps: tuple[tuple[str, tuple[str, ...]], ...]
) -> None:
    file, x = over_tokens(tmp_path / "tokens.onnx", steps), rows(300, 7)
    built = prepare((file, file), calibration=data, drift="given", target="ideal", head="cosine")
    (note,) = (note for note in built.notes if "trained integers" in note)
    assert "text.h (8 x " in note
    quantized = {s.name: s.program for s in built.stages}["quantized"].text
    found = Runner(quantized).values({"x": x}, ["h"])["h"]
    wanted = [v.reshape(-1, D) for v in own_values(file, x) if v.shape[1:] == (4, D)]
    assert differing(wanted, found, quantized.types["h"].unit) == 0
