"""Commands that take projectors take two ONNX files in their place: text first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cimtool.bundle.bundle import read_bundle

WIDTH, D, ROWS = 8, 4, 60
Run = Callable[..., Any]


def write_projector(path: Path, seed: int) -> Path:
    """A tanh layer with heads on it."""
    rng = np.random.default_rng(seed)
    shapes = {"fc.weight": (WIDTH, WIDTH), "Wm": (WIDTH, D), "Wl": (WIDTH, D)}
    weights = {name: rng.normal(size=s).astype(np.float32) / 3 for name, s in shapes.items()}
    nodes = [
        helper.make_node("MatMul", ["x", "fc.weight"], ["h"]),
        helper.make_node("Tanh", ["h"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "Wm"], ["mu"]),
        helper.make_node("MatMul", ["hidden", "Wl"], ["logvar"]),
    ]
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "projector",
        [helper.make_tensor_value_info("x", kind, ("n", WIDTH))],
        [helper.make_tensor_value_info(name, kind, ("n", D)) for name in ("mu", "logvar")],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), str(path))
    return path


@pytest.fixture
def projectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options that name the files; beside them are `poly.json`, `cal.npz` and `eval.npz`."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    for name in ("cal.npz", "eval.npz"):
        text, video = rng.normal(size=(2, ROWS, WIDTH)).astype(np.float32)
        np.savez(name, text=text, video=video)
    Path("poly.json").write_text(json.dumps({"degree": 1, "coeff": [-0.1, 0.01], "bias": 0.5}))
    write_projector(tmp_path / "text.onnx", 1)
    write_projector(tmp_path / "video.onnx", 2)
    return ["--projectors", "text.onnx", "--projectors", "video.onnx"]


def test_compile_and_verify(cimtool: Run, projectors: list[str]) -> None:
    options = ["--poly", "poly.json", "--calibration", "cal.npz", "--target", "isaac-rram-128"]
    found = cimtool("compile", *projectors, *options, "--drift", "given", "--json").json
    assert found["bundle"] == "exports/text-video@isaac-rram-128"
    assert found["layout"] == "onnx"
    assert {one["layer"] for one in found["layers"]} == {
        f"{modality}.{layer}" for modality in ("text", "video") for layer in ("fc", "mu", "logvar")
    }
    files = [one["file"] for one in read_bundle(Path(found["bundle"])).manifest["inputs"]]
    assert files == ["text.onnx", "video.onnx", "poly.json", "cal.npz"]
    ran = cimtool("verify", found["bundle"], "--data", "eval.npz", "-v")
    assert ran.status == 0
    assert "0 of" in ran.out
    assert "differ between the simulator and ONNX Runtime" in ran.out


def test_a_sweep_names_both_files_in_its_command(cimtool: Run, projectors: list[str]) -> None:
    options = ["--poly", "poly.json", "--calibration", "cal.npz", "--data", "eval.npz"]
    grid = ["--grid", "weight_bits=8", "--target", "ideal", "--budget", "r1_loss=1"]
    ran = cimtool("sweep", *projectors, *options, *grid)
    assert ran.status == 0
    assert "--projectors text.onnx --projectors video.onnx --poly poly.json" in ran.out


def test_a_teacher_of_both(cimtool: Run, projectors: list[str]) -> None:
    options = ["--data", "eval.npz", "--pairs", "300", "--a", "0.1", "--b", "0", "-o", "t.npz"]
    found = cimtool("teacher", *projectors, *options, "--json").json
    assert found["pairs"] == 300
    assert found["divisors"] == {"ed": 1.0, "vd": 1.0}


def test_other_numbers_of_files(cimtool: Run, projectors: list[str]) -> None:
    options = ["--poly", "poly.json", "--calibration", "cal.npz", "--target", "ideal"]
    ran = cimtool("compile", *projectors[:2], *options)
    assert ran.status == 2
    assert ran.sentence.startswith("text.onnx: is one projector; expected a checkpoint of both")
    ran = cimtool("compile", *projectors, *projectors[:2], *options)
    assert ran.status == 2
    assert "--projectors is given 3 times; expected once or twice" in ran.err
