"""What an ONNX file holds, read without its weights being computed with."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cimtool.base.errors import CimError
from cimtool.loading.checkpoint import require_file

if TYPE_CHECKING:
    from onnx import ModelProto

ONNX_SUFFIX = ".onnx"

LARGEST_FILE = 2**31 - 1
"""Bytes that one protobuf message, and so an ONNX file without external data, may have."""


def load_onnx(path: Path) -> ModelProto:
    """Read an ONNX file as it is; external data is not followed.

    Raises CimError where it is missing, too large, truncated, or not ONNX.
    """
    import onnx
    from google.protobuf.message import DecodeError

    require_file(path)
    size = path.stat().st_size
    if size > LARGEST_FILE:
        raise CimError(f"{path}: has {size:,} bytes; an ONNX file has at most {LARGEST_FILE:,}")
    try:
        model = onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise CimError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (DecodeError, ValueError) as error:
        raise CimError(f"{path}: is truncated, corrupt, or not an ONNX file: {error}") from None
    if not model.graph.node:
        raise CimError(f"{path}: is truncated, corrupt, or not an ONNX file: it has no nodes")
    return model


def describe_onnx(path: Path) -> dict[str, Any]:
    """Inputs, outputs, opsets, local functions and nodes by kind; CimError if it is not ONNX."""
    model = load_onnx(path)
    weights = {tensor.name for tensor in model.graph.initializer}
    return {
        "kind": "onnx",
        "producer": model.producer_name,
        "ir_version": model.ir_version,
        "opsets": {opset.domain or "ai.onnx": opset.version for opset in model.opset_import},
        "inputs": [_value(v) for v in model.graph.input if v.name not in weights],
        "outputs": [_value(v) for v in model.graph.output],
        "nodes": dict(sorted(Counter(node.op_type for node in model.graph.node).items())),
        "functions": {function.name: len(function.node) for function in model.functions},
        "initializers": len(weights),
    }


def _value(value: Any) -> str:
    import onnx

    kind = value.type.tensor_type
    extents = [extent.dim_param or str(extent.dim_value or "?") for extent in kind.shape.dim]
    name = onnx.TensorProto.DataType.Name(kind.elem_type).lower()
    return f"{value.name}: {name} [{', '.join(extents)}]"
