from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cimtool.demo import encoder as module
from cimtool.demo.encoder import Encoder, EncoderFiles, find_encoder

NAMES = ("[UNK]", "[CLS]", "[SEP]", "sort", "the", "list")
TABLE = np.random.default_rng(0).normal(size=(len(NAMES), 5)).astype(np.float32)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EncoderFiles:
    """Two packages of data, whose model looks each token up in a table."""
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "l"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    states = helper.make_tensor_value_info("states", TensorProto.FLOAT, ["n", "l", 5])
    node = helper.make_node("Gather", ["table", "input_ids"], ["states"])
    table = numpy_helper.from_array(TABLE, "table")
    graph = helper.make_graph([node], "encoder", inputs, [states], [table])
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    files = EncoderFiles(tmp_path / "demo_weights" / "a.onnx", tmp_path / "demo_words" / "b.zip")
    for file in vars(files).values():
        file.parent.mkdir()
        (file.parent / "__init__.py").write_text("raise RuntimeError('imported')")
    onnx.save(model, files.weights)
    vocabulary = {"model": {"vocab": {name: number for number, name in enumerate(NAMES)}}}
    with zipfile.ZipFile(files.vocabulary, "w") as archive:
        archive.writestr("tokenizer.json", json.dumps(vocabulary))
    for name, file in (("WEIGHTS", files.weights), ("VOCABULARY", files.vocabulary)):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        monkeypatch.setattr(module, name, (file.parent.name, file.name, digest))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return files


def test_a_row_is_the_mean_over_its_tokens_at_unit_norm(installed: EncoderFiles) -> None:
    assert find_encoder() == installed
    texts = ["Sort the list", "list"] * 20 + ["the the the the"]
    rows = Encoder(installed).rows(texts, 5)
    assert rows.dtype == np.float32
    tokens = {"Sort the list": [1, 3, 4, 5, 2], "list": [1, 5, 2], texts[-1]: [1, 4, 4, 4, 2]}
    for text, row in zip(texts, rows, strict=True):
        mean = TABLE[tokens[text]].mean(axis=0)
        np.testing.assert_allclose(row, mean / np.linalg.norm(mean), rtol=1e-5)


def test_another_file_is_not_taken(installed: EncoderFiles) -> None:
    installed.weights.write_bytes(installed.weights.read_bytes() + b"!")
    assert find_encoder() is None


def test_a_missing_file(installed: EncoderFiles) -> None:
    installed.vocabulary.unlink()
    assert find_encoder() is None


def test_a_missing_package(installed: EncoderFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WEIGHTS", ("no_such_package", "a.onnx", "0"))
    assert find_encoder() is None
