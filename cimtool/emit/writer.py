"""The writer of one ONNX file: nodes, constants and local functions (domain `cim`)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.emit.functions import DOMAIN, IR_VERSION, OPSET
from cimtool.ir.types import Shape

Port = tuple[str, Shape]
"""Element type and shape of an input or output of a file."""


class GraphWriter:
    """Collects the nodes, constants and functions of one file; values are named after nodes."""

    def __init__(self, real: str = "FLOAT"):
        self.real = real
        self.layer = ""
        self._nodes: list[NodeProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._tensors: list[TensorProto] = []
        self._functions: dict[str, FunctionProto] = {}
        self._names: set[str] = set()

    def node(self, op_type: str, *inputs: str, unread: int = 0, **attributes: Any) -> str:
        """Append one node of the standard operator set and return its first output's name.

        The node has `unread` more outputs that nothing reads.
        """
        name = self._unique(op_type)
        outputs = [name, *(self._unique(op_type) for _ in range(unread))]
        self._nodes.append(helper.make_node(op_type, inputs, outputs, name, **attributes))
        return name

    def call(self, function: FunctionProto, *inputs: str, label: str = "", **metadata: str) -> str:
        """Append one call of a local function; metadata as `cim.<key>`, `cim.layer` always."""
        self._functions.setdefault(function.name, function)
        name = self._unique(label or function.name)
        node = helper.make_node(function.name, inputs, [name], name, domain=DOMAIN)
        helper.set_metadata_props(
            node, {"cim.layer": self.layer, **{f"cim.{k}": v for k, v in metadata.items()}}
        )
        self._nodes.append(node)
        return name

    def constant(self, array: Array | np.generic[Any], kind: str | None = None) -> str:
        """Store a constant once, however often it is used; CimError if its type lacks it."""
        if kind is None:
            kind = "INT64" if np.asarray(array).dtype.kind in "iu" else self.real
        dtype = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(kind))
        try:
            with np.errstate(over="raise"):
                stored = np.asarray(array).astype(dtype, order="C")
        except FloatingPointError:
            raise CimError(
                f"{self.layer}: holds a number beyond {dtype}; expected smaller weights"
            ) from None
        key = (kind, stored.shape, hashlib.sha256(stored.tobytes()).digest())
        if key not in self._constants:
            self._constants[key] = self._unique("constant")
            self._tensors.append(numpy_helper.from_array(stored, self._constants[key]))
        return self._constants[key]

    def cast(self, value: str, to: str) -> str:
        """Append a Cast to the named ONNX element type."""
        return self.node("Cast", value, to=TensorProto.DataType.Value(to))

    def name_output(self, value: str, name: str) -> None:
        """Give a value the name of an output of the file."""
        self._nodes.append(helper.make_node("Identity", [value], [name], f"output/{name}"))

    def model(
        self, name: str, inputs: Mapping[str, Port], outputs: Mapping[str, Port]
    ) -> ModelProto:
        """The checked file, with the element type and shape of each input and output.

        Constants that no node reads are left out: ONNX Runtime warns of each.
        """
        read = {value for node in self._nodes for value in node.input}
        tensors = [tensor for tensor in self._tensors if tensor.name in read]
        graph = helper.make_graph(
            self._nodes, name, _value_infos(inputs), _value_infos(outputs), tensors
        )
        domains = [helper.make_opsetid("", OPSET)]
        if self._functions:
            domains.append(helper.make_opsetid(DOMAIN, 1))
        functions = [self._functions[key] for key in sorted(self._functions)]
        model = helper.make_model(
            graph,
            opset_imports=domains,
            functions=functions,
            ir_version=IR_VERSION,
            producer_name="cimtool",
        )
        onnx.checker.check_model(model, full_check=True)
        return model

    def _unique(self, label: str) -> str:
        name = path = f"{self.layer}/{label}" if self.layer else label
        count = 1
        while name in self._names:
            count += 1
            name = f"{path}_{count}"
        self._names.add(name)
        return name


def _value_infos(values: Mapping[str, Port]) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, TensorProto.DataType.Value(kind), shape)
        for name, (kind, shape) in values.items()
    ]
