"""The four files of a bundle: their interface, their form, and that they compute the program."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
import pytest
from crossbars import crossbar_of
from onnx import ModelProto, TensorProto
from onnx.reference import ReferenceEvaluator

from cimtool import api
from cimtool.api import Compilation
from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.demo.data import DemoFiles
from cimtool.emit import runtime
from cimtool.emit.onnx import file_bytes, onnx_files, onnx_model
from cimtool.emit.row_group import BYTE_ROWS
from cimtool.emit.runtime import OptimizationLevel, Session
from cimtool.emit.writer import GraphWriter
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.integer import Quantize
from cimtool.ir.program import MODALITIES, Builder, Graph, Program
from cimtool.ir.types import real
from cimtool.simulation.simulator import Simulator

FEATURES = ["mu", "s", "ed_self", "vd_self"]


@pytest.fixture(scope="module")
def compilation(small_trunk: DemoFiles) -> Compilation:
    """The small trunk with converters that round and clip."""
    return api.prepare(
        small_trunk.projectors,
        small_trunk.poly,
        calibration=small_trunk.calibration,
        drift="given",
        target="isaac-rram-128",
        array="8x128",
        adc_bits=4,
    )


@pytest.fixture(scope="module")
def program(compilation: Compilation) -> Program:
    return compilation.stages[-1].program


@pytest.fixture(scope="module")
def calibrated(compilation: Compilation) -> Program:
    return next(stage.program for stage in compilation.stages if stage.name == "calibrated")


@pytest.fixture(scope="module")
def files(program: Program, calibrated: Program) -> dict[str, bytes]:
    return onnx_files(program, calibrated)


@pytest.fixture(scope="module")
def rows(small_trunk: DemoFiles) -> dict[str, Array]:
    with np.load(small_trunk.eval) as stored:
        return {name: stored[name] for name in MODALITIES}


def interface(values: list[onnx.ValueInfoProto]) -> list[tuple[str, str, list[str | int]]]:
    return [
        (
            value.name,
            TensorProto.DataType.Name(value.type.tensor_type.elem_type),
            [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim],
        )
        for value in values
    ]


def test_projector_interface(files: dict[str, bytes]) -> None:
    for modality in MODALITIES:
        graph = onnx.load_from_string(files[f"{modality}.onnx"]).graph
        assert interface(list(graph.input)) == [("x", "FLOAT", ["n", 24])]
        assert interface(list(graph.output)) == [
            ("mu", "INT8", ["n", 16]),
            ("s", "UINT8", ["n", 16]),
            ("ed_self", "INT64", ["n"]),
            ("vd_self", "INT64", ["n"]),
        ]


def test_score_and_float_interface(files: dict[str, bytes]) -> None:
    graph = onnx.load_from_string(files["score.onnx"]).graph
    assert [i.name for i in graph.input] == [f"{m}_{f}" for m in MODALITIES for f in FEATURES]
    assert interface(list(graph.input))[4:6] == [
        ("video_mu", "INT8", ["m", 16]),
        ("video_s", "UINT8", ["m", 16]),
    ]
    assert interface(list(graph.output)) == [("logit", "FLOAT", ["n", "m"])]
    graph = onnx.load_from_string(files["float.onnx"]).graph
    assert interface(list(graph.input)) == [
        ("text", "FLOAT", ["n", 24]),
        ("video", "FLOAT", ["m", 24]),
    ]
    assert interface(list(graph.output)) == [("logit", "FLOAT", ["n", "m"])]


def test_operators_are_those_that_count_as_multiply_accumulate(files: dict[str, bytes]) -> None:
    page = (Path(__file__).parents[2] / "docs/integer-contract.md").read_text("utf-8")
    section = page.split("## What counts as multiply-accumulate\n")[1].split("\n## ")[0]
    told = set(re.findall(r"`([A-Z][A-Za-z]+)`", section))
    in_arrays = {"QuantizeLinear", "Div", "GreaterOrEqual"}
    for name, allowed in (("score", told - in_arrays), ("text", told), ("video", told)):
        model = onnx.inliner.inline_local_functions(onnx.load_from_string(files[f"{name}.onnx"]))
        found = {node.op_type for node in model.graph.node}
        assert found <= allowed, name


def test_features_above_8_bits_take_16(small_trunk: DemoFiles) -> None:
    compiled = api.prepare(
        small_trunk.projectors,
        small_trunk.poly,
        calibration=small_trunk.calibration,
        target="ideal",
        feature_bits=10,
    )
    graph = onnx_model(compiled.stages[-1].program.text).graph
    assert [kind for _, kind, _ in interface(list(graph.output))] == [
        "INT16",
        "UINT16",
        "INT64",
        "INT64",
    ]


def test_versions_and_documentation(files: dict[str, bytes]) -> None:
    for name, data in files.items():
        model = onnx.load_from_string(data)
        assert model.ir_version == 10
        assert {(o.domain, o.version) for o in model.opset_import} <= {("", 21), ("cim", 1)}
        assert all(function.doc_string for function in model.functions)
        called = {node.op_type for node in model.graph.node if node.domain == "cim"}
        assert called == {function.name for function in model.functions}, name


def test_one_call_a_row_group(files: dict[str, bytes]) -> None:
    nodes = onnx.load_from_string(files["text.onnx"]).graph.node
    groups = [n for n in nodes if n.op_type.startswith("RowGroup")]
    assert [n.name for n in groups if n.name.startswith("fc1/")] == [
        f"fc1/rows{r}/mvm" for r in range(3)
    ]
    assert len(groups) == 24 // 8 + 3 * (32 // 8)
    metadata = {p.key: p.value for p in groups[1].metadata_props}
    assert metadata == {"cim.layer": "fc1", "cim.rows": "8:16"}


def test_a_row_group_takes_at_most_30_nodes(files: dict[str, bytes]) -> None:
    model = onnx.load_from_string(files["text.onnx"])
    assert max(len(f.node) for f in model.functions) <= 30


def inlined(data: bytes) -> ModelProto:
    return onnx.inliner.inline_local_functions(onnx.load_from_string(data))


def test_integer_products_are_uint8_alone(files: dict[str, bytes]) -> None:
    """Any other pair saturates, or is slow, on CPUs without VNNI."""
    for modality in MODALITIES:
        graph = inlined(files[f"{modality}.onnx"]).graph
        kinds = {t.name: t.data_type for t in graph.initializer}
        products = [n for n in graph.node if n.op_type == "MatMulInteger"]
        assert len(products) >= 15
        for node in products:
            assert [kinds[name] for name in node.input[1:]] == [TensorProto.UINT8] * 3
        assert not any(n.op_type == "ReduceSum" for n in graph.node)


def test_same_program_same_bytes(
    files: dict[str, bytes], program: Program, calibrated: Program
) -> None:
    assert onnx_files(program, calibrated) == files


@pytest.mark.parametrize("level", ["disable", "basic", "extended", "all"])
def test_files_compute_the_program(
    level: OptimizationLevel, files: dict[str, bytes], program: Program, rows: dict[str, Array]
) -> None:
    simulator = Simulator(program)
    features = {}
    for modality in MODALITIES:
        expected = simulator.encode(modality, rows[modality])
        found = Session(files[f"{modality}.onnx"], level).encode(rows[modality])
        assert list(found) == FEATURES
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)
            assert found[name].dtype == np.int64
        features[modality] = found
    scores = Session(files["score.onnx"], level).score(features["text"], features["video"])
    assert scores.dtype == np.float32
    np.testing.assert_array_equal(
        scores, simulator.score(features["text"], features["video"]).astype(np.float32)
    )
    assert len(np.unique(scores)) > 20


def test_reference_evaluator_agrees(
    files: dict[str, bytes], program: Program, rows: dict[str, Array]
) -> None:
    simulator = Simulator(program)
    features = {}
    for modality in MODALITIES:
        x = rows[modality][:4]
        model = onnx.load_from_string(files[f"{modality}.onnx"])
        values = ReferenceEvaluator(model).run(None, {"x": x})
        features[modality] = dict(zip(FEATURES, values, strict=True))
        for name, value in simulator.encode(modality, x).items():
            np.testing.assert_array_equal(features[modality][name], value, err_msg=name)
    feeds = {f"{m}_{name}": value for m in MODALITIES for name, value in features[m].items()}
    (logit,) = ReferenceEvaluator(onnx.load_from_string(files["score.onnx"])).run(None, feeds)
    wide = {m: {k: v.astype(np.int64) for k, v in features[m].items()} for m in MODALITIES}
    expected = simulator.score(wide["text"], wide["video"])
    np.testing.assert_array_equal(logit, expected.astype(np.float32))


def test_float_model_is_the_real_program(
    files: dict[str, bytes],
    calibrated: Program,
    rows: dict[str, Array],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session(files["float.onnx"])
    logit = session.run(rows)["logit"]
    monkeypatch.setattr(runtime, "FLOAT_PAIRS", 3 * len(rows["video"]))
    assert np.array_equal(session.score_rows(rows["text"], rows["video"]), logit)
    few = session.score_rows(rows["text"], rows["video"], 5)
    assert few.shape == logit.shape
    np.testing.assert_allclose(few, logit, rtol=1e-5)
    expected = Simulator(calibrated).scores(rows["text"], rows["video"])
    assert np.abs(logit - expected).max() < 2e-5 * max(1.0, float(np.abs(expected).max()))


def quantizer_graph(scale: Array, lo: int, hi: int) -> Graph:
    builder = Builder("text", {"x": real(("n", 3))})
    return builder.graph({"codes": builder.add("codes", Quantize(scale, lo, hi), "x")})


@pytest.mark.parametrize(
    ("lo", "hi", "kind"),
    [(-127, 127, "INT8"), (0, 255, "UINT8"), (-2047, 2047, "INT16"), (0, 65535, "UINT16")],
)
def test_input_codes(lo: int, hi: int, kind: str) -> None:
    x = np.array([[lo - 9, hi + 9, 0.5], [lo, hi, 1.5], [-1e30, 1e30, 2.5]], np.float32)
    for scale in (np.ones(()), np.array([1.0, 1.0, 0.5])):
        graph = quantizer_graph(scale, lo, hi)
        model = onnx_model(graph)
        assert [k for _, k, _ in interface(list(model.graph.output))] == [kind]
        codes = Session(file_bytes(model)).run({"x": x})["codes"]
        np.testing.assert_array_equal(codes, graph.by_name["codes"].op.run(x))


def test_row_groups_too_tall_for_32_bits_are_refused() -> None:
    crossbar = crossbar_of(None, 8, 8, "differential", 8, "unsigned", 8, None, "half-up", 48)
    weight = np.ones((BYTE_ROWS + 1, 1), np.int64)
    layer = CrossbarMvm(StoredWeights(weight, crossbar), np.zeros(1, np.int64), np.ones(1), (None,))
    builder = Builder("text", {"x": real(("n", BYTE_ROWS + 1))})
    codes = builder.add("codes", Quantize(np.ones(()), 0, 255), "x")
    graph = builder.graph({"sums": builder.add("fc", layer, codes)})
    with pytest.raises(CimError, match=rf"{BYTE_ROWS + 1} rows .* at most {BYTE_ROWS} rows"):
        onnx_model(graph)


def test_a_constant_beyond_its_type_names_the_layer() -> None:
    writer = GraphWriter()
    writer.layer = "text/fc1"
    with pytest.raises(CimError, match="text/fc1: holds a number beyond float32"):
        writer.constant(np.array([1.0, 1e39]))
