from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from safetensors.torch import save_file

from cimtool.base.errors import CimError
from cimtool.base.plugins import targets_folder
from cimtool.bundle.inspect import MANIFEST_KEYS, Facts, format_facts, inspect
from cimtool.hardware.target import target_names
from cimtool.training.towers import TwoTower


def facts_of(path: Path) -> Facts:
    """The facts, which must be plain data and have lines for a reader."""
    facts = inspect(path)
    json.dumps(facts, allow_nan=False)
    assert format_facts(facts)[0] == f"{path}: {facts['kind']}"
    return facts


def test_checkpoints(tmp_path: Path, trunks: TwoTower, branch_content: dict[str, Any]) -> None:
    torch.save(trunks.state_dict(), tmp_path / "a.pth")
    facts = facts_of(tmp_path / "a.pth")
    assert (facts["kind"], facts["layout"]) == ("checkpoint", "trunk")
    text = facts["text"]
    assert (text["input"], text["dimensions"], text["batch_norm"]) == (6, 5, 2)
    assert text["parameters"] == sum(p.numel() for p in trunks.text_proj.parameters())
    assert text["dtype"] == "float32"
    save_file(trunks.state_dict(), tmp_path / "a.safetensors")
    assert facts_of(tmp_path / "a.safetensors")["layout"] == "trunk"
    torch.save(branch_content, tmp_path / "b.pth")
    facts = facts_of(tmp_path / "b.pth")
    assert (facts["layout"], facts["expects_unit_rows"]) == ("two-branch", True)
    assert facts["polynomial"]["degree"] == 4
    assert facts["polynomial_of"] == "ed/5 and vd/25"


def test_matrices_are_counted_and_skipped_layers_are_not(tmp_path: Path) -> None:
    tensors = {
        "text_projection": torch.ones(3, 2),
        "vision_model.head.mlp.fc2.weight": torch.ones(2, 9),
        "logit_scale": torch.ones(1),
    }
    save_file(tensors, tmp_path / "points.safetensors")
    facts = facts_of(tmp_path / "points.safetensors")
    matrix = {"parameters": 6, "dtype": "float32", "layers": ["projection.matrix: float32 [3, 2]"]}
    assert facts["text"].items() >= matrix.items()
    assert facts["video"].items() >= {"parameters": 0, "dtype": "", "layers": []}.items()


def test_an_unknown_layout_says_why_and_what_is_there(tmp_path: Path) -> None:
    torch.save({"encoder": {"w": torch.ones(2, 3)}}, tmp_path / "a.pth")
    facts = facts_of(tmp_path / "a.pth")
    assert facts["layout"] is None
    assert "polynomial_of" not in facts
    assert "name them with a layer map" in facts["reason"]
    assert facts["arrays"] == {"encoder": {"w": "float32 [2, 3]"}}


def test_names_are_printed_as_they_are(tmp_path: Path) -> None:
    torch.save({"caption_head": {"ln_1.weight": torch.ones(2)}}, tmp_path / "a.pth")
    lines = format_facts(facts_of(tmp_path / "a.pth"))
    assert lines[-4:-2] == ["    caption_head", "      ln_1.weight: float32 [2]"]


def test_polynomials(tmp_path: Path, poly_file: Path) -> None:
    facts = facts_of(poly_file)
    assert (facts["kind"], facts["degree"], facts["teacher"]["K"]) == ("polynomial", 4, 10)
    assert list(facts["coefficients"])[:5] == ["ed", "vd", "ed^2", "ed vd", "vd^2"]
    assert facts["sha256"] == hashlib.sha256(poly_file.read_bytes()).hexdigest()
    (tmp_path / "p.json").write_text('{"c": [1, 2], "b": 3}')
    assert "    ed: 1" in format_facts(facts_of(tmp_path / "p.json"))
    np.savez(tmp_path / "p.npz", c=[1.0, 2.0], bias=3.0, fit_logit=False)
    assert facts_of(tmp_path / "p.npz")["predicts"] == "p"


def test_data(tmp_path: Path) -> None:
    rows = np.eye(4, dtype=np.float32)
    np.savez(tmp_path / "e.npz", text=rows, image=2 * rows, label=[0, 0, 1, 1], caption=["a", None])
    facts = facts_of(tmp_path / "e.npz")
    assert (facts["kind"], facts["pairs"], facts["classes"]) == ("embeddings", "row i to row i", 2)
    assert (facts["text"]["unit_rows"], facts["image"]["unit_rows"]) == (True, False)
    assert facts["image"]["norms"] == [2.0, 2.0]
    torch.save({"text": torch.eye(4), "video": torch.eye(4)[:2]}, tmp_path / "e.pt")
    assert facts_of(tmp_path / "e.pt")["pairs"].startswith("not known for 4 texts and 2 videos")
    np.save(tmp_path / "t.npy", rows)
    assert facts_of(tmp_path / "t.npy")["shape"] == [4, 4]
    torch.save(torch.eye(3), tmp_path / "t.pt")
    assert facts_of(tmp_path / "t.pt")["kind"] == "array"
    np.savez(tmp_path / "s.npz", scores=rows)
    assert facts_of(tmp_path / "s.npz")["arrays"] == {"scores": "float32 [4, 4]"}


def test_a_teacher_is_not_taken_for_embeddings(tmp_path: Path) -> None:
    columns = {name: np.zeros(5) for name in ("ed", "vd", "y")}
    rows = {"text": np.arange(5), "video": np.arange(5)}
    meta = np.array({"a": 0.1}, dtype=object)
    np.savez(tmp_path / "teacher.npz", **columns, **rows, meta=meta)
    found = facts_of(tmp_path / "teacher.npz")
    assert (found["kind"], found["other_arrays"]) == ("teacher", ["text", "video", "meta"])
    assert found["arrays"] == dict.fromkeys(columns, "float64 [5]")


def test_toml_files(tmp_path: Path) -> None:
    name = target_names()[0]
    facts = facts_of(targets_folder() / f"{name}.toml")
    assert (facts["kind"], facts["name"]) == ("target", name)
    (tmp_path / "s.toml").write_text("weight_bits = 6\n")
    facts = facts_of(tmp_path / "s.toml")
    assert (facts["kind"], facts["weight_bits"]) == ("settings", 6)
    for name in ("text", "video", "image"):
        (tmp_path / "m.toml").write_text(f'[{name}]\nfc1 = "a"\n')
        assert facts_of(tmp_path / "m.toml")["kind"] == "layer map"


def test_onnx(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]))
    onnx.save(model, str(tmp_path / "m.onnx"))
    facts = facts_of(tmp_path / "m.onnx")
    assert (facts["inputs"], facts["nodes"]) == (["x: float [n, 4]"], {"Relu": 2})
    for broken in (b"", b"garbage", (tmp_path / "m.onnx").read_bytes()[:30]):
        (tmp_path / "b.onnx").write_bytes(broken)
        with pytest.raises(CimError, match=r"b\.onnx: is truncated, corrupt, or not an ONNX"):
            inspect(tmp_path / "b.onnx")


def test_bundle(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_bytes(b"12345")
    digest = hashlib.sha256(b"12345").hexdigest()
    manifest = {
        "format_version": 2,
        "cimtool_version": "0",
        "model": {"name": "m"},
        "target": {"name": "ideal"},
        "settings": {},
        "inputs": {},
        "files": {"text.onnx": digest, "gone": digest},
    }
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    facts = facts_of(tmp_path)
    assert facts["files"] == {"text.onnx": "5 bytes", "gone": "missing"}
    del manifest["settings"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CimError, match=r"manifest\.json: settings is missing"):
        inspect(tmp_path)


def test_what_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(CimError, match=r"there is no manifest\.json"):
        inspect(tmp_path)
    with pytest.raises(CimError, match="there is no such file or folder"):
        inspect(tmp_path / "a.pth")
    (tmp_path / "a.csv").write_text("1,2")
    with pytest.raises(CimError, match=r"its suffix does not say what it holds; .*\.npz"):
        inspect(tmp_path / "a.csv")


def test_json_that_is_no_polynomial_and_the_name_of_a_target(tmp_path: Path) -> None:
    (tmp_path / "program.json").write_text('{"text": {}, "score": {}}')
    with pytest.raises(CimError, match=r"program.json: is not a polynomial \(coeff, coef_, c\)"):
        inspect(tmp_path / "program.json")
    with pytest.raises(CimError, match="`cimtool targets show isaac-rram-128` tells"):
        inspect(Path("isaac-rram-128"))


@pytest.mark.parametrize("name", ["manifest.json", "ledger.json"])
def test_deep_nesting_in_a_bundle_is_one_sentence(name: str, tmp_path: Path) -> None:
    manifest = dict.fromkeys(MANIFEST_KEYS, 1) | {"files": {"ledger.json": ""}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / name).write_text("[" * 100_000)
    with pytest.raises(CimError, match=r"is not a bundle's manifest|is not a gallery's ledger"):
        inspect(tmp_path)
