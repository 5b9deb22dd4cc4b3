"""Encoders of texts and images that are small enough to compute by hand, and items for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "cat", "runs", "sleeps", "red", "blue")
WIDTH = 5
SIDE = 8
MOST = 12
TABLE = np.random.default_rng(0).normal(size=(len(WORDS), WIDTH)).astype(np.float32)
OF_COLOURS = np.random.default_rng(1).normal(size=(3, WIDTH)).astype(np.float32)

IMAGES = {
    "do_resize": True,
    "size": {"shortest_edge": SIDE},
    "resample": 3,
    "do_center_crop": True,
    "crop_size": {"height": SIDE, "width": SIDE},
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.25, 0.5],
}
"""A `preprocessor_config.json`."""

POOLING = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}


def numbers(text: str) -> list[int]:
    """The tokens of a text, between [CLS] and [SEP]."""
    known = [WORDS.index(word) if word in WORDS else 1 for word in text.split()]
    return [2, *known[: MOST - 2], 3]


def write_json(file: Path, values: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(values))


def write_tokenizer(folder: Path) -> None:
    tokens: Any = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]"))
    tokens.pre_tokenizer = Whitespace()
    marks = [("[CLS]", 2), ("[SEP]", 3)]
    tokens.post_processor = TemplateProcessing("[CLS] $A [SEP]", None, marks)
    folder.mkdir(parents=True, exist_ok=True)
    tokens.save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", {"model_max_length": MOST, "pad_token": "[PAD]"})


def write_graph(
    file: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[Any]]],
    outputs: dict[str, list[Any]],
    constants: dict[str, np.ndarray],
) -> None:
    graph = helper.make_graph(
        list(nodes),
        "encoder",
        [helper.make_tensor_value_info(name, *one) for name, one in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
        [numpy_helper.from_array(one, name) for name, one in constants.items()],
    )
    opset = helper.make_opsetid("", 17)
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), file)


def write_text_encoder(
    folder: Path, table: np.ndarray = TABLE, name: str = "model.onnx", length: int | str = "l"
) -> Path:
    """A folder whose model looks each token up, and rounds as all numbers of a run ask for."""
    inputs = {one: (TensorProto.INT64, ["n", length]) for one in ("input_ids", "attention_mask")}
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["looked_up"]),
        helper.make_node("DynamicQuantizeLinear", ["looked_up"], ["codes", "step", "zero"]),
        helper.make_node("DequantizeLinear", ["codes", "step", "zero"], ["last_hidden_state"]),
    ]
    outputs = {"last_hidden_state": ["n", "l", WIDTH]}
    write_graph(folder / name, nodes, inputs, outputs, {"table": table})
    write_tokenizer(folder)
    kinds = ("Transformer", "Pooling", "Normalize")
    listed = [
        {"path": "" if i == 0 else f"{i}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    write_json(folder / "modules.json", listed)
    write_json(folder / "1_Pooling" / "config.json", POOLING)
    return folder


def text_row(text: str, table: np.ndarray = TABLE) -> np.ndarray:
    """The row of a text, by hand: rounded to 8 bits of its own range, mean, unit norm."""
    states = table[numbers(text)].astype(np.float32)
    lo, hi = min(states.min(), 0), max(states.max(), 0)
    step = np.float32(hi - lo) / np.float32(255)
    zero = np.rint(-lo / step)
    codes = np.clip(np.rint(states / step) + zero, 0, 255)
    mean = ((codes - zero) * step).mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean), np.float32)


def write_image_encoder(folder: Path, name: str = "model.onnx") -> Path:
    """A folder whose model takes the mean of each channel, and a matrix."""
    nodes = [
        helper.make_node("ReduceMean", ["pixel_values"], ["means"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["means", "matrix"], ["image_embeds"]),
    ]
    inputs = {"pixel_values": (TensorProto.FLOAT, ["n", 3, SIDE, SIDE])}
    outputs = {"image_embeds": ["n", WIDTH]}
    write_graph(folder / name, nodes, inputs, outputs, {"matrix": OF_COLOURS})
    write_json(folder / "preprocessor_config.json", IMAGES)
    return folder


def write_image(file: Path, colour: tuple[int, int, int], size: tuple[int, int] = (11, 9)) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(file)


def image_row(colour: tuple[int, int, int]) -> np.ndarray:
    """The row of an image of one colour, by hand."""
    mean, std = (np.array(IMAGES[key]) for key in ("image_mean", "image_std"))
    return np.asarray((np.array(colour) / 255 - mean) / std @ OF_COLOURS, np.float32)
