"""ONNX Runtime as one more implementation of the integer contract: what `verify` compares with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import DecodeError
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

from cimtool.base.arrays import Array, blocks
from cimtool.base.errors import CimError
from cimtool.base.protobufs import count_parts
from cimtool.base.threads import PAIR_BLOCK
from cimtool.base.untrusted import read_bounded

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


LARGEST_FILE = 2**31 - 1
"""Bytes that one protobuf message, and so an ONNX file without external data, may have."""

AGAIN = "compile again"
"""Advice on a file of a bundle that is not right."""

FATAL = 4
"""The level of ONNX Runtime's log below which its lines are left out: errors are raised as well."""

REFUSALS = (
    *(runtime.Fail, runtime.InvalidArgument, runtime.InvalidGraph, runtime.InvalidProtobuf),
    *(runtime.NotImplemented, runtime.RuntimeException, runtime.NoModel, runtime.EPFail),
)
"""Errors of ONNX Runtime on a file that is not right."""


class Session:
    """One ONNX file loaded on the CPU, at one optimisation level and thread count.

    Of a file, which may be anybody's, CimError if it reads other files, repeats parts of itself
    or is none that ONNX Runtime runs; the sentence says what to do `again`.
    """

    def __init__(
        self,
        model: bytes | Path,
        level: OptimizationLevel = "all",
        threads: int = 1,
        again: str = AGAIN,
    ):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = _LEVELS[level]
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = FATAL
        onnxruntime.set_default_logger_severity(FATAL)
        self._file = None if isinstance(model, bytes) else model
        self._again = again
        source = model if isinstance(model, bytes) else plain_content(model, again)
        with self._of_file():
            self._session = onnxruntime.InferenceSession(
                source, options, providers=["CPUExecutionProvider"], enable_fallback=0
            )
            self.inputs = {i.name: _element_type(i.type) for i in self._session.get_inputs()}
            self.shapes = {i.name: tuple(i.shape) for i in self._session.get_inputs()}
            self.outputs = [o.name for o in self._session.get_outputs()]

    @contextmanager
    def _of_file(self) -> Iterator[None]:
        """Turn errors of ONNX Runtime on a file, and names that it lacks, into a CimError."""
        try:
            yield
        except (*REFUSALS, KeyError, TypeError, ValueError) as error:
            if self._file is None:
                raise
            said = " ".join(str(error).split())
            raise CimError(
                f"{self._file}: does not run in ONNX Runtime ({said}); {self._again}"
            ) from None

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Compute all outputs by name; inputs are converted to what the file takes."""
        with self._of_file():
            typed = {
                name: np.asarray(feeds[name]).astype(kind) for name, kind in self.inputs.items()
            }
            return dict(zip(self.outputs, self._session.run(None, typed), strict=True))

    def encode(self, x: Array, height: int = ENCODE_BLOCK) -> dict[str, Array]:
        """Features of embeddings `x` [n, width] by `text.onnx` or `video.onnx`, as int64.

        So many rows are computed at a time.
        """
        found = self._joined(lambda rows: {"x": x[rows]}, len(x), height)
        with self._of_file():
            return {name: values.astype(np.int64) for name, values in found.items()}

    def score(
        self, text: Mapping[str, Array], video: Mapping[str, Array], most: int = PAIR_BLOCK
    ) -> Array:
        """`logit` [n, m] float32 of all pairs by `score.onnx`, at most so many at a time."""
        gallery = {f"video_{name}": value for name, value in video.items()}
        return self._of_pairs("logit", text, len(video["mu"]), gallery, most)

    def score_rows(self, text: Array, video: Array, most: int = FLOAT_PAIRS) -> Array:
        """`logit` [n, m] float32 of all pairs of embeddings by `float.onnx`.

        In blocks of at most this many texts and videos, which are encoded again for each: blocks
        are large.
        """
        return np.concatenate(
            [self._score_against(text, video[few], most) for few in blocks(len(video), most)],
            axis=1,
        )

    def _score_against(self, text: Array, video: Array, most: int) -> Array:
        height = min(most, FLOAT_PAIRS // max(len(video), 1))
        found = self._joined(lambda rows: {"text": text[rows], "video": video}, len(text), height)
        with self._of_file():
            return found["logit"]

    def distances(self, text: Mapping[str, Array], items: int) -> Array:
        """`ed` int64 [n, items] of all texts by `shortlist.onnx`."""
        return self._of_pairs("ed", text, items, {}, PAIR_BLOCK)

    def _of_pairs(
        self,
        output: str,
        text: Mapping[str, Array],
        items: int,
        gallery: Mapping[str, Array],
        most: int,
    ) -> Array:
        """An output [n, items], in blocks of text rows of at most so many pairs."""

        def queries(rows: slice) -> Mapping[str, Array]:
            return {f"text_{name}": value[rows] for name, value in text.items()} | dict(gallery)

        found = self._joined(queries, len(text["mu"]), most // max(items, 1))
        with self._of_file():
            return found[output]

    def _joined(
        self, feeds: Callable[[slice], Mapping[str, Array]], rows: int, height: int
    ) -> dict[str, Array]:
        """All outputs of a number of rows, at most `height` of them at a time."""
        found = [self.run(feeds(block)) for block in blocks(rows, height)]
        with self._of_file():
            return {name: np.concatenate([one[name] for one in found]) for name in self.outputs}


def plain_content(file: Path, again: str = AGAIN) -> bytes:
    """The bytes of an ONNX file; CimError if weights lie elsewhere, and for loops and branches.

    The sentence says what to do `again`. A file of a few bytes could else read any other one, or
    run for ever.
    """
    content = read_bounded(file, LARGEST_FILE)
    try:
        count_parts(content, onnx.ModelProto.DESCRIPTOR, len(content))
        model = onnx.load_model_from_string(content)
    except (DecodeError, ValueError) as error:
        raise CimError(f"{file}: is not an ONNX file ({error}); {again}") from None
    nodes = [*model.graph.node, *(node for one in model.functions for node in one.node)]
    attributes = [attribute for node in nodes for attribute in node.attribute]
    tensors = [*model.graph.initializer, *(a.t for a in attributes if a.HasField("t"))]
    if any(map(onnx.external_data_helper.uses_external_data, tensors)):
        raise CimError(f"{file}: has weights in another file, which is not read; {again}")
    for one in tensors:
        if min(one.dims, default=1) < 0 or math.prod(one.dims) > 2 * len(content):
            raise CimError(
                f"{file}: {one.name} has shape {list(one.dims)}, but the file does not hold it; "
                f"{again}"
            )
    if any(a.HasField("g") or a.graphs for a in attributes):
        raise CimError(f"{file}: has loops or branches, which are not run; {again}")
    return content


def _element_type(kind: str) -> np.dtype[Any]:
    """The type of a tensor's elements: `tensor(float)`, `tensor(int8)`."""
    name = kind.removeprefix("tensor(").removesuffix(")")
    return np.dtype("float32" if name == "float" else name)
