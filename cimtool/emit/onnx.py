"""Graphs as ONNX files: integer graphs with local functions (domain `cim`), the float model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from cimtool.base.arrays import Array
from cimtool.emit.functions import DOMAIN, FUNCTIONS, IR_VERSION, OPSET
from cimtool.ir.arithmetic import Store
from cimtool.ir.program import Graph, Program, as_inputs
from cimtool.ir.types import Shape, Type

FEATURE_ROLES = frozenset({"mu", "s", "s_self"})
"""From where these are stored, the float model computes in double: the statistics cancel."""


Port = tuple[str, Shape]
"""Element type and shape of an input or output of a file."""


class OnnxWriter:
    """Collects the nodes, constants and functions of one file; values are named after nodes."""

    def __init__(self, real: str = "FLOAT"):
        self.real = real
        self.layer = ""
        self._nodes: list[NodeProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._tensors: list[TensorProto] = []
        self._functions: dict[str, FunctionProto] = {}
        self._names: set[str] = set()

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Append one node of the standard operator set and return its value's name."""
        name = self._unique(op_type)
        self._nodes.append(helper.make_node(op_type, inputs, [name], name, **attributes))
        return name

    def define(self, function: FunctionProto) -> str:
        """Add a local function once and return its name for `call`."""
        self._functions.setdefault(function.name, function)
        name: str = function.name
        return name

    def call(self, function: str, *inputs: str, label: str = "", **metadata: str) -> str:
        """Append one call of a local function; metadata as `cim.<key>`, `cim.layer` always."""
        if function not in self._functions:
            self.define(FUNCTIONS[function]())
        name = self._unique(label or function)
        node = helper.make_node(function, inputs, [name], name, domain=DOMAIN)
        helper.set_metadata_props(
            node, {"cim.layer": self.layer, **{f"cim.{k}": v for k, v in metadata.items()}}
        )
        self._nodes.append(node)
        return name

    def constant(self, array: Array | np.generic[Any], kind: str | None = None) -> str:
        """Store a constant once, however often it is used."""
        if kind is None:
            kind = "INT64" if np.asarray(array).dtype.kind in "iu" else self.real
        dtype = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(kind))
        stored = np.asarray(array).astype(dtype, order="C")
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
        """The checked file, with the element type and shape of each input and output."""
        graph = helper.make_graph(
            self._nodes, name, _value_infos(inputs), _value_infos(outputs), self._tensors
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


def stored_kind(known: Type) -> str:
    """The ONNX element type of a value at the edge of a file.

    Rows of features are as narrow as their bits allow; per-item sums are int64.
    """
    if not known.is_integer:
        return "FLOAT"
    if len(known.shape) < 2 or known.bits > 16:
        return "INT64"
    return ("INT" if known.signed else "UINT") + ("8" if known.bits <= 8 else "16")


def port(name: str) -> str:
    """The name of a graph's input or output in its file: `text.mu` is `text_mu`."""
    return name.replace(".", "_")


def onnx_model(graph: Graph) -> ModelProto:
    """One graph of a final integer program as a file; inside, every integer is int64.

    Raises CimError where a layer has no integer ONNX form, and the checker's error where this
    compiler is wrong.
    """
    writer = OnnxWriter()
    inputs: dict[str, Port] = {}
    values: dict[str, str] = {}
    for name, known in graph.inputs.items():
        kind = stored_kind(known)
        inputs[port(name)] = (kind, known.shape)
        values[name] = writer.cast(port(name), "INT64") if known.is_integer else port(name)
    _emit_nodes(writer, graph, values)
    writer.layer = ""
    outputs: dict[str, Port] = {}
    for name, value in graph.outputs.items():
        known = graph.types[value]
        kind = stored_kind(known)
        narrow = values[value]
        if kind not in ("INT64", "FLOAT"):
            narrow = writer.cast(narrow, kind)
        writer.name_output(narrow, port(name))
        outputs[port(name)] = (kind, known.shape)
    return writer.model(graph.name, inputs, outputs)


def _emit_nodes(writer: OnnxWriter, graph: Graph, values: dict[str, str], prefix: str = "") -> None:
    """Append all nodes of a graph, adding the name of every value to `values`."""
    for node in graph.nodes:
        writer.layer = prefix + node.name
        types = tuple(graph.types[i] for i in node.inputs)
        values[node.name] = node.op.emit(writer, types, *(values[i] for i in node.inputs))


def float_model(program: Program) -> ModelProto:
    """The folded program of real numbers as one file: `text`, `video` rows to `logit` [n, m].

    Projectors run in float32; what is stored of an item, the statistics and the score in double.
    """
    writer = OnnxWriter()
    features: dict[str, str] = {}
    inputs: dict[str, Port] = {}
    for graph, rows in zip((program.text, program.video), ("n", "m"), strict=True):
        inputs[graph.name] = ("FLOAT", (rows, *graph.inputs["x"].shape[1:]))
        values = _emit_tower(writer, graph)
        outputs = {name: values[value] for name, value in graph.outputs.items()}
        features |= as_inputs(graph.name, outputs)
    writer.real = "DOUBLE"
    _emit_nodes(writer, program.score, features, "score/")
    writer.layer = ""
    logit = features[program.score.outputs["logit"]]
    writer.name_output(writer.cast(logit, "FLOAT"), "logit")
    return writer.model("float", inputs, {"logit": ("FLOAT", ("n", "m"))})


def _emit_tower(writer: OnnxWriter, graph: Graph) -> dict[str, str]:
    """Append a projector in float32 up to its stored features, in double from there."""
    values = {"x": graph.name}
    doubles: set[str] = set()
    for node in graph.nodes:
        writer.layer = f"{graph.name}/{node.name}"
        writer.real = "DOUBLE" if doubles.intersection(node.inputs) else "FLOAT"
        types = tuple(graph.types[i] for i in node.inputs)
        value = node.op.emit(writer, types, *(values[i] for i in node.inputs))
        if isinstance(node.op, Store) and node.op.role in FEATURE_ROLES:
            if writer.real == "FLOAT":
                value = writer.cast(value, "DOUBLE")
            doubles.add(node.name)
        elif writer.real == "DOUBLE":
            doubles.add(node.name)
        values[node.name] = value
    return values


def file_bytes(model: ModelProto) -> bytes:
    """The bytes of a file: the same for the same model."""
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def onnx_files(program: Program, folded: Program) -> dict[str, bytes]:
    """The four files of a bundle by name, from the final and from the folded program.

    Raises CimError where a layer has no integer ONNX form.
    """
    models = {f"{graph.name}.onnx": onnx_model(graph) for graph in program.graphs}
    models["float.onnx"] = float_model(folded)
    return {name: file_bytes(model) for name, model in models.items()}
