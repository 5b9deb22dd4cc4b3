"""ONNX Runtime as one more implementation of the integer contract: what `verify` compares with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime

from cimtool.base.arrays import Array
from cimtool.reference.statistics import blocks
from cimtool.simulation.simulator import PAIR_BLOCK

OptimizationLevel = Literal["disable", "basic", "extended", "all"]

_LEVELS = {
    "disable": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
ENCODE_BLOCK = 64
"""Rows at a time: the column sums of a row group (cycles x rows x slices x N) stay in the cache."""

FLOAT_PAIRS = 1 << 22
"""Pairs that `float.onnx` scores at a time, in double: some 200 MB."""


class Session:
    """One ONNX file loaded on the CPU, at one optimisation level and thread count."""

    def __init__(self, model: bytes | Path, level: OptimizationLevel = "all", threads: int = 1):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = _LEVELS[level]
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        source = model if isinstance(model, bytes) else str(model)
        self._session = onnxruntime.InferenceSession(
            source, options, providers=["CPUExecutionProvider"]
        )
        self.inputs = {i.name: _element_type(i.type) for i in self._session.get_inputs()}
        self.outputs = [o.name for o in self._session.get_outputs()]

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Compute all outputs by name; inputs are converted to what the file takes."""
        typed = {name: np.asarray(feeds[name]).astype(kind) for name, kind in self.inputs.items()}
        return dict(zip(self.outputs, self._session.run(None, typed), strict=True))

    def encode(self, x: Array) -> dict[str, Array]:
        """Features of embeddings `x` [n, width] by `text.onnx` or `video.onnx`, as int64."""
        found = self._joined(lambda rows: {"x": x[rows]}, len(x), ENCODE_BLOCK)
        return {name: values.astype(np.int64) for name, values in found.items()}

    def score(self, text: Mapping[str, Array], video: Mapping[str, Array]) -> Array:
        """`logit` [n, m] float32 of all pairs by `score.onnx`."""
        gallery = {f"video_{name}": value for name, value in video.items()}
        return self._of_pairs("logit", text, len(video["mu"]), gallery)

    def score_rows(self, text: Array, video: Array) -> Array:
        """`logit` [n, m] float32 of all pairs of embeddings by `float.onnx`.

        In blocks of texts against all videos, which are encoded again for each: blocks are large.
        """
        height = FLOAT_PAIRS // max(len(video), 1)
        found = self._joined(lambda rows: {"text": text[rows], "video": video}, len(text), height)
        return found["logit"]

    def distances(self, text: Mapping[str, Array], items: int) -> Array:
        """`ed` int64 [n, items] of all texts by `shortlist.onnx`."""
        return self._of_pairs("ed", text, items, {})

    def _of_pairs(
        self, output: str, text: Mapping[str, Array], items: int, gallery: Mapping[str, Array]
    ) -> Array:
        """An output [n, items], in blocks of text rows of at most PAIR_BLOCK pairs."""

        def queries(rows: slice) -> Mapping[str, Array]:
            return {f"text_{name}": value[rows] for name, value in text.items()} | dict(gallery)

        return self._joined(queries, len(text["mu"]), PAIR_BLOCK // max(items, 1))[output]

    def _joined(
        self, feeds: Callable[[slice], Mapping[str, Array]], rows: int, height: int
    ) -> dict[str, Array]:
        """All outputs of a number of rows, at most `height` of them at a time."""
        found = [self.run(feeds(block)) for block in blocks(rows, height)]
        return {name: np.concatenate([one[name] for one in found]) for name in self.outputs}


def _element_type(kind: str) -> np.dtype[Any]:
    """The type of a tensor's elements: `tensor(float)`, `tensor(int8)`."""
    name = kind.removeprefix("tensor(").removesuffix(")")
    return np.dtype("float32" if name == "float" else name)
