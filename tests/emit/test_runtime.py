"""ONNX files of a bundle that somebody changed: one sentence, and no line of ONNX Runtime's log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.exporters import Exporter, export_bundle
from cimtool.demo.data import DemoFiles
from cimtool.emit.runtime import Session

BUNDLE = Path(__file__).parents[2] / "exports/reference-small@isaac-rram-128"
Change = Callable[[onnx.ModelProto], object]


def outside(model: onnx.ModelProto) -> None:
    tensor = model.graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")


def loop(model: onnx.ModelProto) -> None:
    body = helper.make_graph([], "body", [], [])
    model.graph.node.append(helper.make_node("Loop", [], [], body=body))


def loop_in_a_function(model: onnx.ModelProto) -> None:
    body = helper.make_graph([], "body", [], [])
    branch = helper.make_node("If", ["c"], [], then_branch=body, else_branch=body)
    model.functions.append(helper.make_function("d", "f", ["c"], [], [branch], []))


def other_type(model: onnx.ModelProto) -> None:
    bad = numpy_helper.from_array(np.array([7, 9]), "bad")
    model.graph.initializer.append(bad)
    model.graph.node.append(helper.make_node("Reshape", [model.graph.input[0].name, "bad"], ["r"]))
    model.graph.output.append(helper.make_tensor_value_info("r", TensorProto.INT8, None))


CHANGES: dict[str, tuple[Change, str]] = {
    "weights elsewhere": (outside, "has weights in another file, which is not read"),
    "a loop": (loop, "has loops or branches, which are not run"),
    "a branch": (loop_in_a_function, "has loops or branches, which are not run"),
    "an unknown operator": (
        lambda m: setattr(m.graph.node[3], "op_type", "Foo"), "does not run in ONNX Runtime ("
    ),
    "a huge shape": (
        lambda m: m.graph.initializer[0].dims.append(1 << 62), ", but the file does not hold it"
    ),
    "a shape below 0": (
        lambda m: m.graph.initializer[0].dims.append(-1), ", but the file does not hold it"
    ),
    "another type": (
        lambda m: setattr(m.graph.initializer[0], "data_type", 20), "does not run in ONNX Runtime ("
    ),
    "another input": (
        lambda m: setattr(m.graph.input[0], "name", "y"), "does not run in ONNX Runtime ("
    ),
    "another output": (
        lambda m: setattr(m.graph.output[0], "name", "y"), "does not run in ONNX Runtime ("
    ),
    "a newer format": (lambda m: setattr(m, "ir_version", 99), "does not run in ONNX Runtime ("),
    "a newer operator set": (
        lambda m: setattr(m.opset_import[0], "version", 999), "does not run in ONNX Runtime ("
    ),
    "no graph": (lambda m: m.ClearField("graph"), "does not run in ONNX Runtime ("),
    "a result of another type": (other_type, "does not run in ONNX Runtime ("),
}  # fmt: skip


INFO = 1
"""The level of ONNX Runtime's log at which it tells all but its innermost steps."""


@pytest.mark.thorough("warnings of onnx over all files")
def test_no_file_of_an_export_is_warned_of(
    small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hybrid = api.compile(
        small_trunk.projectors,
        small_trunk.poly,
        calibration=small_trunk.calibration,
        target="isaac-rram-128",
        output=tmp_path / "hybrid",
        score_mapping="hybrid",
    )
    programmed = api.program(hybrid.folder, small_trunk.eval, output=tmp_path / "programmed")
    for bundle in (BUNDLE, small_bundle, programmed.bundle.folder):
        for name in Exporter.family:
            place = tmp_path / name / bundle.name
            export_bundle(read_bundle(bundle), name, place)
            for file in place.rglob("*.onnx"):
                options = onnxruntime.SessionOptions()
                options.log_severity_level = INFO
                capfd.readouterr()
                onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
                said = capfd.readouterr().err.splitlines()
                assert said, "a log that tells nothing would pass"
                assert [line for line in said if "[I:" not in line] == []


def refused(file: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """The sentence of a file that is refused, with nothing printed beside."""
    with pytest.raises(CimError) as caught:
        Session(file).encode(np.zeros((2, 16), np.float32))
    assert capfd.readouterr() == ("", "")
    said = str(caught.value)
    assert said.startswith(f"{file}: ")
    assert said.endswith("; compile again")
    assert "\n" not in said
    return said


@pytest.mark.parametrize("name", CHANGES)
def test_a_forged_file_is_refused(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    change, said = CHANGES[name]
    model = onnx.load_model(BUNDLE / "text.onnx")
    change(model)
    file = tmp_path / "text.onnx"
    file.write_bytes(model.SerializeToString())
    assert said in refused(file, capfd)


@pytest.mark.parametrize("content", [b"nonsense", b"\x12\x02\xff\xfe"])
def test_a_file_that_is_none_is_refused(
    content: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "text.onnx"
    file.write_bytes(content)
    assert "is not an ONNX file (" in refused(file, capfd)


def test_a_file_without_the_output_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "float.onnx"
    model = onnx.load_model(BUNDLE / "float.onnx")
    model.graph.output[0].name = model.graph.node[-1].output[0] = "other"
    file.write_bytes(model.SerializeToString())
    rows = np.zeros((2, 16), np.float32)
    with pytest.raises(CimError, match=r"float\.onnx: does not run in ONNX Runtime \('logit'\)"):
        Session(file).score_rows(rows, rows)
