"""A projector's ONNX file as plain values: nodes, constants as arrays, one input, its outputs.

Nothing of the file is executed, and no other file is opened for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.loading.checkpoint import SUFFIXES, require_file, require_suffix
from cimtool.loading.onnx_file import ONNX_SUFFIX, load_onnx

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

OUTPUTS = ("mu", "logvar")
"""What a projector returns, by the names of its graph's outputs; a single output is `mu`."""

OLDEST_OPSET = 9
"""From here on BatchNormalization has no `spatial`, and Gemm and Add broadcast as they do now."""


@dataclass(frozen=True)
class OnnxNode:
    """One node; `label` is how messages name it, `attributes` holds its numbers and texts.

    `name` is empty where the file gives none.
    """

    name: str
    label: str
    kind: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def input(self, index: int) -> str:
        """The name of an input; empty where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""


@dataclass(frozen=True)
class OnnxGraph:
    """One projector: rows `x` [rows, width] to its outputs, by the nodes that these need.

    `rows` is the number of rows that the file was made for, None where it takes any. `outputs`
    are the values that stand for `mu` and, unless the file gives points, for `logvar`.
    """

    file: str
    x: str
    width: int
    rows: int | None
    nodes: tuple[OnnxNode, ...]
    constants: Mapping[str, Array]
    outputs: Mapping[str, str]

    def fail(self, node: OnnxNode, complaint: str) -> NoReturn:
        """Raise CimError naming the file, the node and its kind."""
        raise CimError(f"{self.file}: {node.label} ({node.kind}): {complaint}")


def read_onnx_graph(path: Path) -> OnnxGraph:
    """Read a projector; CimError where the file is no valid ONNX model of one."""
    require_file(path)
    if path.suffix in SUFFIXES:
        raise CimError(f"{path}: is a checkpoint, which holds both projectors; expected it alone")
    require_suffix(path, "an ONNX file", (ONNX_SUFFIX,))
    model = load_onnx(path)
    _check(model, str(path))
    graph = model.graph
    x, rows, width = _input(graph, str(path))
    outputs = _outputs(graph, str(path))
    constants = {tensor.name: _array(tensor, str(path)) for tensor in graph.initializer}
    nodes = []
    for number, node in enumerate(graph.node):
        if node.op_type == "Constant" and not node.domain:
            constants[node.output[0]] = _constant(node, str(path))
        else:
            nodes.append(_node(node, number))
    wanted = tuple(outputs.values())
    needed = _with_biases(_needed(nodes, wanted), constants, wanted)
    return OnnxGraph(str(path), x, width, rows, needed, constants, outputs)


def _check(model: ModelProto, file: str) -> None:
    """Raise CimError for external data, an unknown operator set, or what the checker refuses."""
    import onnx

    attributes = [attribute for node in model.graph.node for attribute in node.attribute]
    for tensor in (*model.graph.initializer, *(a.t for a in attributes if a.HasField("t"))):
        _refuse_external(tensor, file)
    newest = onnx.defs.onnx_opset_version()
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and not OLDEST_OPSET <= opset.version <= newest:
            raise CimError(
                f"{file}: is of operator set {opset.version}; expected {OLDEST_OPSET} to {newest}"
            )
    if model.graph.sparse_initializer:
        raise CimError(f"{file}: holds sparse weights; expected dense ones")
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError) as error:
        reason = "; ".join(line for line in str(error).splitlines() if line.strip())
        raise CimError(f"{file}: is not a valid ONNX model: {reason}") from None


def _refuse_external(tensor: TensorProto, file: str) -> None:
    from onnx import TensorProto

    if tensor.data_location == TensorProto.EXTERNAL:
        raise CimError(
            f"{file}: {tensor.name} is kept in another file, which is not read; save the model "
            "with its weights inside (torch.onnx.export(..., external_data=False))"
        )


def _array(tensor: TensorProto, file: str) -> Array:
    """A tensor as an array; CimError where its data are not as many as its shape says."""
    from onnx import numpy_helper

    try:
        array: Array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError) as error:
        raise CimError(f"{file}: {tensor.name or 'a constant'} cannot be read: {error}") from None
    return array


def _constant(node: NodeProto, file: str) -> Array:
    import numpy as np
    from onnx import helper

    for attribute in node.attribute:
        if attribute.name == "value":
            return _array(attribute.t, file)
        if attribute.name.startswith("value_"):
            return np.asarray(helper.get_attribute_value(attribute))
    raise CimError(f"{file}: {node.output[0]} (Constant): expected a dense constant")


def _node(node: NodeProto, number: int) -> OnnxNode:
    from onnx import AttributeProto, helper

    plain = (
        AttributeProto.FLOAT,
        AttributeProto.FLOATS,
        AttributeProto.INT,
        AttributeProto.INTS,
        AttributeProto.STRING,
    )
    attributes = {
        attribute.name: helper.get_attribute_value(attribute)
        for attribute in node.attribute
        if attribute.type in plain
    }
    domain = "" if node.domain == "ai.onnx" else node.domain
    label = node.name or f"node {number + 1}"
    inputs, outputs = tuple(node.input), tuple(node.output)
    return OnnxNode(node.name, label, node.op_type, domain, inputs, outputs, attributes)


def _input(graph: GraphProto, file: str) -> tuple[str, int | None, int]:
    """Name, rows and width of the one input of real numbers."""
    from onnx import TensorProto

    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    if len(inputs) != 1:
        names = ", ".join(value.name for value in inputs) or "none"
        raise CimError(f"{file}: has {len(inputs)} inputs ({names}); expected one, rows [n, in]")
    kind = inputs[0].type.tensor_type
    if kind.elem_type not in (TensorProto.FLOAT, TensorProto.DOUBLE):
        name = TensorProto.DataType.Name(kind.elem_type).lower()
        raise CimError(f"{file}: {inputs[0].name} is of type {name}; expected float or double")
    extents = kind.shape.dim
    if len(extents) != 2 or extents[1].dim_value < 1:
        shape = ", ".join(extent.dim_param or str(extent.dim_value or "?") for extent in extents)
        raise CimError(
            f"{file}: {inputs[0].name} has shape [{shape}]; expected [n, in], where in is a number"
        )
    return inputs[0].name, extents[0].dim_value or None, extents[1].dim_value


def _outputs(graph: GraphProto, file: str) -> dict[str, str]:
    """The values that stand for `mu` and `logvar`; for `mu` alone where there is one output."""
    names = [value.name for value in graph.output]
    if set(OUTPUTS) <= set(names):
        return {name: name for name in OUTPUTS}
    if len(names) == 1 and names != ["logvar"]:
        return {"mu": names[0]}
    raise CimError(
        f"{file}: has the outputs {', '.join(names)}; expected {' and '.join(OUTPUTS)} among them, "
        "or one alone, a point embedding"
    )


def _needed(nodes: list[OnnxNode], wanted: Sequence[str]) -> tuple[OnnxNode, ...]:
    """The nodes that the wanted values depend on, in the order of the file."""
    used, kept = set(wanted), []
    for node in reversed(nodes):
        if used.intersection(node.outputs):
            kept.append(node)
            # The shape that row norms are spread to is that of what they divide.
            used.update(node.inputs[:1] if node.kind == "Expand" else node.inputs)
    return tuple(reversed(kept))


def _with_biases(
    nodes: Sequence[OnnxNode], constants: Mapping[str, Array], wanted: Sequence[str]
) -> tuple[OnnxNode, ...]:
    """The nodes with a MatMul and the Add of a constant to it alone as one Gemm."""
    uses = Counter([*(i for node in nodes for i in node.inputs), *wanted])
    products = {n.outputs[0]: n for n in nodes if n.kind == "MatMul" and uses[n.outputs[0]] == 1}
    merged: dict[str, OnnxNode] = {}
    for node in nodes:
        if node.kind == "Add" and len(node.inputs) == 2:
            for summed, bias in (node.inputs, node.inputs[::-1]):
                if summed in products and bias in constants:
                    product = products.pop(summed)
                    inputs = (*product.inputs, bias)
                    merged[summed] = product
                    merged[node.outputs[0]] = replace(
                        product, kind="Gemm", inputs=inputs, outputs=node.outputs
                    )
    return tuple(
        merged.get(node.outputs[0], node)
        for node in nodes
        if merged.get(node.outputs[0]) is not node
    )
