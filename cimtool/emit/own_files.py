"""Comparison of a bundle's ONNX files with the files that this compiler writes of its program."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto

from cimtool.base.errors import CimError
from cimtool.base.untrusted import read_bounded
from cimtool.emit.onnx import file_bytes, float_model, onnx_model
from cimtool.emit.runtime import LARGEST_FILE, plain_content
from cimtool.ir.program import Graph, Program


def require_own_file(file: Path, graph: Graph) -> None:
    """Raise CimError if an integer graph's file is not the one written of it, byte by byte."""
    wanted = file_bytes(onnx_model(graph))
    if read_bounded(file, LARGEST_FILE) != wanted:
        raise _other(file, f"program.json's {graph.name}")


def require_own_float_file(file: Path, folded: Program) -> None:
    """Raise CimError if `float.onnx` is no file of the folded program.

    Its real numbers may differ: the numbers of the score come from a calibration, which a bundle
    does not keep. They decide nothing about time and memory.
    """
    found = onnx.load_model_from_string(plain_content(file))
    if _without_reals(found) != _without_reals(float_model(folded)):
        raise _other(file, "stages.json")


def _other(file: Path, source: str) -> CimError:
    return CimError(
        f"{file}: is not the file that cimtool writes for {source} (with onnx {onnx.__version__}), "
        "so it is not run; compile again"
    )


def _without_reals(model: ModelProto) -> bytes:
    """The bytes of a model, which is changed, with its constants' contents in place of names.

    Of a real one no more than type and extents: equal ones are written once, with what name depends
    on the numbers.
    """
    graph = model.graph
    contents = {one.name: _content(one) for one in graph.initializer}
    for node in graph.node:
        node.input[:] = [contents.get(name, name) for name in node.input]
    del graph.initializer[:]
    return file_bytes(model)


def _content(tensor: TensorProto) -> str:
    content = f"{tensor.data_type} {list(tensor.dims)}"
    if tensor.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE):
        return content
    tensor.ClearField("name")
    return f"{content} {sha256(tensor.SerializeToString(deterministic=True)).hexdigest()}"
