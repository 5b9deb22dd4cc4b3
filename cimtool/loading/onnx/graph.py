"""A projector's ONNX file as plain values: nodes, constants as arrays, an input, outputs.

The file is not executed, and files that it refers to are not opened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError, naming
from cimtool.base.files import require_file
from cimtool.base.protobufs import count_parts
from cimtool.base.untrusted import NUMBER, Budget, read_bounded
from cimtool.loading.checkpoint import SUFFIXES, require_suffix

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

ONNX_SUFFIX = ".onnx"

LARGEST_FILE = 2**31 - 1
"""Bytes at most of a protobuf message, and so of an ONNX file without external data."""

MOST_PARTS = 200_000
"""Nodes, attributes, names and other parts of a file at most; a node has about ten."""

MOST_NODES = 10_000

OUTPUTS = ("mu", "logvar")
"""Names of a projector's outputs; a single output of another name is taken as `mu`."""

ITEM_COUNTS = (2**31 - 1, 2**31 - 19)
"""Stand-ins for a free number of items; as primes, they can be recognised in products."""

QUANTIZED_FORMS = {
    "QONNX: layers keep their trained integers": {"Quant", "IntQuant", "BipolarQuant"},
    "for each row (dynamic): is not compiled": {"DynamicQuantizeLinear", "DynamicQuantizeMatMul"},
    "as integer operators: is not compiled": {"QLinearMatMul", "MatMulInteger", "QGemm"},
    "QDQ: layers keep their trained integers": {"DequantizeLinear"},
}
"""Forms of quantized graphs, with operators that identify them; the most specific form first."""

OLDEST_OPSET = 9
"""Since this opset, BatchNormalization has no `spatial`, and Gemm and Add broadcast as today."""


@dataclass(frozen=True)
class OnnxNode:
    """A node; messages call it `label`. `attributes` has values by name.

    `name` is empty if the file gives none. Each attribute of an `If` is a Branch; values that the
    branch reads from outside are inputs of the node.
    """

    name: str
    label: str
    kind: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Branch:
    """A branch of an `If`: nodes, which may read outside values, constants and outputs."""

    nodes: tuple[OnnxNode, ...]
    constants: Mapping[str, Array]
    outputs: tuple[str, ...]

    @property
    def captured(self) -> tuple[str, ...]:
        """The outside values that the branch reads."""
        own = {*self.constants, *(name for node in self.nodes for name in node.outputs)}
        read = [*(name for node in self.nodes for name in node.inputs), *self.outputs]
        return tuple(dict.fromkeys(name for name in read if name not in own))


@dataclass(frozen=True, kw_only=True)
class OnnxGraph:
    """A projector: from rows `x` [rows, width] to its outputs, with the nodes that these need.

    `rows` is the number of rows that the file was made for, None if it takes any number. `outputs`
    names the values of `mu` and, unless the file gives points, of `logvar`. `opset` is the operator
    set of the nodes.
    """

    file: str
    x: str
    width: int
    rows: int | None
    nodes: tuple[OnnxNode, ...]
    constants: Mapping[str, Array]
    outputs: Mapping[str, str]
    opset: int = OLDEST_OPSET

    @cached_property
    def makers(self) -> Mapping[str, OnnxNode]:
        """The node that makes each value."""
        return {name: node for node in self.nodes for name in node.outputs}

    @cached_property
    def uses(self) -> Counter[str]:
        """The number of times that each value is read."""
        read = (name for node in self.nodes for name in node.inputs)
        return Counter([*read, *self.outputs.values()])

    @property
    def items(self) -> int:
        """The number of rows of `x` with which shapes are computed."""
        return self.counts[0]

    @property
    def counts(self) -> tuple[int, int]:
        """Two numbers of rows with which shapes are computed; the first is the file's, if fixed."""
        return self.rows or ITEM_COUNTS[0], ITEM_COUNTS[1]


def read_onnx_graph(path: Path) -> OnnxGraph:
    """Read a projector; CimError if the file is not a valid ONNX model of a projector."""
    require_file(path)
    if path.suffix in SUFFIXES:
        raise CimError(f"{path}: is a checkpoint, which holds both projectors; expected it alone")
    require_suffix(path, "an ONNX file", (ONNX_SUFFIX,))
    return graph_of(_load(path), str(path))


def graph_of(model: ModelProto, where: str) -> OnnxGraph:
    """The projector of an ONNX model in memory; the sentence of a CimError starts with `where`."""
    graph = model.graph
    with naming(where):
        if (count := sum(len(one.node) for one in _graphs(graph))) > MOST_NODES:
            raise CimError(f"has {count:,} nodes; expected at most {MOST_NODES:,}")
        _check(model)
        x, rows, width = _input(graph)
        outputs = _outputs(graph)
        nodes, constants = _parts(graph)
    used, needed = set(outputs.values()), list[OnnxNode]()
    for node in reversed(nodes):
        if used.intersection(node.outputs):
            needed.append(node)
            used.update(node.inputs)
    versions = [one.version for one in model.opset_import if one.domain in ("", "ai.onnx")]
    opset = max(versions, default=OLDEST_OPSET)
    return OnnxGraph(
        file=where,
        x=x,
        width=width,
        rows=rows,
        nodes=(*reversed(needed),),
        constants=constants,
        outputs=outputs,
        opset=opset,
    )


def _load(path: Path) -> ModelProto:
    """Read an ONNX file; external data is not read.

    Raises CimError if it is missing, too large, truncated, or not ONNX.
    """
    import onnx
    from google.protobuf.message import DecodeError

    Budget.of(path).take_file(path)
    content = read_bounded(path, LARGEST_FILE)
    try:
        if count_parts(content, onnx.ModelProto.DESCRIPTOR, MOST_PARTS) > MOST_PARTS:
            raise CimError(
                f"{path}: has more than {MOST_PARTS:,} nodes, attributes and names; expected a "
                "projector"
            )
        model = onnx.load_model_from_string(content)
    except (DecodeError, ValueError) as error:
        raise CimError(f"{path}: is truncated, corrupt, or not an ONNX file: {error}") from None
    budget = Budget.of(path)  # the numbers in memory take at least as many bytes as the file
    for tensor in _tensors(model.graph):
        budget.take(_numbers(tensor), NUMBER, f"{path}: {tensor.name or 'a constant'}")
    if not model.graph.node:
        raise CimError(f"{path}: is truncated, corrupt, or not an ONNX file: it has no nodes")
    return model


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and all graphs inside its nodes; protobuf bounds the depth."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _graphs(inner)


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """All constants of a graph and of the graphs inside it."""
    for one in _graphs(graph):
        yield from one.initializer
        yield from (a.t for node in one.node for a in node.attribute if a.HasField("t"))


def _numbers(tensor: TensorProto) -> int:
    """The numbers in a tensor by its shape, but at most the bits that it has in the file."""
    count, most = 1, 8 * tensor.ByteSize()
    for extent in tensor.dims:
        count = min(count * max(extent, 0), most)
    return count


def _check(model: ModelProto) -> None:
    """Raise CimError for external data, an unknown operator set, or a model the checker refuses."""
    import onnx

    for tensor in _tensors(model.graph):
        if onnx.external_data_helper.uses_external_data(tensor):
            raise CimError(
                f"{tensor.name} is kept in another file, which is not read; save the model "
                "with its weights inside (torch.onnx.export(..., external_data=False))"
            )
    newest = onnx.defs.onnx_opset_version()
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and not OLDEST_OPSET <= opset.version <= newest:
            raise CimError(
                f"is of operator set {opset.version}; expected {OLDEST_OPSET} to {newest}"
            )
    if model.graph.sparse_initializer:
        raise CimError("holds sparse weights; expected dense ones")
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError) as error:
        reason = "; ".join(line for line in str(error).splitlines() if line.strip())
        raise CimError(f"is not a valid ONNX model: {reason}") from None


def _array(tensor: TensorProto) -> Array:
    """A tensor as an array; CimError if its data don't fit its shape."""
    from onnx import numpy_helper

    try:
        array: Array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError) as error:
        raise CimError(f"{tensor.name or 'a constant'} cannot be read: {error}") from None
    return array


def _parts(graph: GraphProto) -> tuple[tuple[OnnxNode, ...], dict[str, Array]]:
    """The nodes of a graph, and its constants."""
    nodes, constants = [], {tensor.name: _array(tensor) for tensor in graph.initializer}
    for number, node in enumerate(graph.node):
        own = _node(node, number)
        if own.kind != "Constant" or own.domain:
            nodes.append(own)
            continue
        key, value = next(iter(own.attributes.items()), ("", None))
        if not key.startswith("value"):
            raise CimError(f"{own.outputs[0]} (Constant): expected a dense constant")
        constants[own.outputs[0]] = _array(value) if key == "value" else np.asarray(value)
    return tuple(nodes), constants


def _node(node: NodeProto, number: int) -> OnnxNode:
    from onnx import helper

    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    domain = "" if node.domain == "ai.onnx" else node.domain
    label = node.name or f"node {number + 1}"
    inputs, outputs = tuple(node.input), tuple(node.output)
    if node.op_type == "If" and not domain:
        attributes = {
            name: Branch(*_parts(graph), tuple(value.name for value in graph.output))
            for name, graph in attributes.items()
        }
        captured = (name for branch in attributes.values() for name in branch.captured)
        inputs = (*inputs, *dict.fromkeys(captured))
    return OnnxNode(node.name, label, node.op_type, domain, inputs, outputs, attributes)


def _input(graph: GraphProto) -> tuple[str, int | None, int]:
    """Name, rows and width of the only input, which has real numbers."""
    from onnx import TensorProto

    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    if len(inputs) != 1:
        names = ", ".join(value.name for value in inputs) or "none"
        raise CimError(f"has {len(inputs)} inputs ({names}); expected one, rows [n, in]")
    kind = inputs[0].type.tensor_type
    if kind.elem_type not in (TensorProto.FLOAT, TensorProto.DOUBLE):
        name = type_name(kind.elem_type)
        raise CimError(f"{inputs[0].name} is of type {name}; expected float or double")
    extents = kind.shape.dim
    if len(extents) != 2 or extents[1].dim_value < 1:
        shape = _shape_text(kind)
        raise CimError(
            f"{inputs[0].name} has shape {shape}; expected [n, in], where in is a number"
        )
    return inputs[0].name, extents[0].dim_value or None, extents[1].dim_value


def _outputs(graph: GraphProto) -> dict[str, str]:
    """The names of the values of `mu` and `logvar`; only of `mu` if there is a single output."""
    names = [value.name for value in graph.output]
    if set(OUTPUTS) <= set(names):
        return {name: name for name in OUTPUTS}
    if len(names) == 1 and names != ["logvar"]:
        return {"mu": names[0]}
    raise CimError(
        f"has the outputs {', '.join(names)}; expected {' and '.join(OUTPUTS)} among them, or a "
        "single one, a point embedding"
    )


def describe_onnx(path: Path) -> dict[str, Any]:
    """Inputs, outputs, opsets, local functions and nodes by kind; CimError if it is not ONNX."""
    model = _load(path)
    kinds = Counter(node.op_type for node in model.graph.node)
    forms = [form for form, operators in QUANTIZED_FORMS.items() if kinds.keys() & operators]
    weights = {tensor.name for tensor in model.graph.initializer}
    return {
        "kind": "onnx",
        "producer": model.producer_name,
        "ir_version": model.ir_version,
        "opsets": {opset.domain or "ai.onnx": opset.version for opset in model.opset_import},
        "inputs": [_value_text(v) for v in model.graph.input if v.name not in weights],
        "outputs": [_value_text(v) for v in model.graph.output],
        "nodes": dict(sorted(kinds.items())),
        "functions": {function.name: len(function.node) for function in model.functions},
        "initializers": len(weights),
        **({"quantized": forms[0]} if forms else {}),
    }


def type_name(number: int) -> str:
    """The name of an element type, or its number if it has no name."""
    from onnx import TensorProto

    named: dict[int, str] = {n: name.lower() for name, n in TensorProto.DataType.items()}
    return named.get(number, f"number {number}")


def _value_text(value: Any) -> str:
    kind = value.type.tensor_type
    return f"{value.name}: {type_name(kind.elem_type)} {_shape_text(kind)}"


def _shape_text(kind: Any) -> str:
    extents = (extent.dim_param or str(extent.dim_value or "?") for extent in kind.shape.dim)
    return f"[{', '.join(extents)}]"
