"""ONNX files of a bundle that are not those of its program: refused before they are run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from cimtool import api
from cimtool.base.errors import CimError
from cimtool.base.files import sha256
from cimtool.base.json_files import parse_json, values_digest
from cimtool.bundle.bundle import FLOAT_FILE, MANIFEST, STAGES, manifest_text, read_bundle
from cimtool.demo.data import DemoFiles
from cimtool.emit.own_files import require_own_file, require_own_float_file

Change = Callable[[onnx.ModelProto], object]


def filled(model: onnx.ModelProto) -> None:
    """2^30 numbers, of 8 bytes in the file."""
    model.graph.initializer.append(numpy_helper.from_array(np.array([2**30]), "extents"))
    model.graph.node.append(helper.make_node("ConstantOfShape", ["extents"], ["huge"]))


def doubled(model: onnx.ModelProto) -> None:
    """A function of two calls of another, of two of another, ..."""
    for depth in range(1, 26):
        calls = [helper.make_node(f"z{depth - 1}", ["a"], ["b"], domain="cim") for _ in range(2)]
        sets = [helper.make_opsetid("", 21), helper.make_opsetid("cim", 1)]
        model.functions.append(helper.make_function("cim", f"z{depth}", ["a"], ["b"], calls, sets))


def longer(model: onnx.ModelProto) -> None:
    """A constant of integers that says other extents."""
    one = next(one for one in model.graph.initializer if one.data_type == onnx.TensorProto.INT64)
    one.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(one) + 1, one.name))


def wider(model: onnx.ModelProto) -> None:
    one = model.graph.initializer[0]
    one.CopyFrom(numpy_helper.from_array(np.zeros((64, 64), np.float32), one.name))


def joined(model: onnx.ModelProto) -> None:
    node = helper.make_node("Concat", [model.graph.input[0].name] * 17, ["huge"], axis=1)
    model.graph.node.append(node)


CHANGES: dict[str, Change] = {one.__name__: one for one in (filled, doubled, longer, wider, joined)}


def changed(file: Path, place: Path, change: Change) -> Path:
    model = onnx.load(file)
    change(model)
    onnx.save_model(model, place)
    return place


@pytest.mark.parametrize("change", CHANGES)
def test_another_graph_is_refused(change: str, small_bundle: Path, tmp_path: Path) -> None:
    text = read_bundle(small_bundle).program.text
    require_own_file(small_bundle / "text.onnx", text)
    file = changed(small_bundle / "text.onnx", tmp_path / "text.onnx", CHANGES[change])
    with pytest.raises(
        CimError, match=r"text\.onnx: is not the file that cimtool writes for program"
    ):
        require_own_file(file, text)


@pytest.mark.parametrize("change", sorted(CHANGES.keys() - {"longer"}))
def test_another_float_graph_is_refused(change: str, small_bundle: Path, tmp_path: Path) -> None:
    folded = read_bundle(small_bundle).stages[1].program
    require_own_float_file(small_bundle / FLOAT_FILE, folded)
    file = changed(small_bundle / FLOAT_FILE, tmp_path / FLOAT_FILE, CHANGES[change])
    with pytest.raises(
        CimError, match=r"float\.onnx: is not the file that cimtool writes for stages"
    ):
        require_own_float_file(file, folded)


@pytest.mark.parametrize("name", ["score.onnx", FLOAT_FILE])
def test_verify_refuses_a_signed_bundle_with_another_graph(
    name: str, small_bundle: Path, small_trunk: DemoFiles, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(small_bundle, tmp_path / "copy"))
    changed(folder / name, folder / name, filled)
    manifest: dict[str, Any] = parse_json((folder / MANIFEST).read_bytes())
    manifest["files"][name] = sha256(folder / name)
    manifest["sha256"] = values_digest(manifest)
    (folder / MANIFEST).write_text(manifest_text(manifest))
    source = STAGES if name == FLOAT_FILE else "program.json's score"
    with pytest.raises(
        CimError, match=rf"{name}: is not the file that cimtool writes for {source}"
    ):
        api.verify(folder, small_trunk.eval)
