"""What an operation may ask of the file it is written into; `emit/onnx.py` does it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from cimtool.base.arrays import Array


class GraphWriter(Protocol):
    """Appends ONNX nodes; every method returns the name of the value it makes."""

    real: str
    """ONNX element type of real numbers in this file: FLOAT or DOUBLE."""

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Append one node of the standard operator set."""
        ...

    def define(self, function: Any) -> str:
        """Add a local function (an ONNX FunctionProto) once and return its name for `call`."""
        ...

    def call(self, function: str, *inputs: str, label: str = "", **metadata: str) -> str:
        """Append one call of a local function of domain `cim`; metadata as `cim.<key>`.

        `label` is the node's name below its layer's (default: the function's name).
        """
        ...

    def constant(self, array: Array | np.generic, kind: str | None = None) -> str:
        """Store a constant as `kind` (default: int64 for integers, `real` for real numbers)."""
        ...

    def cast(self, value: str, to: str) -> str:
        """Append a Cast to the named ONNX element type."""
        ...
