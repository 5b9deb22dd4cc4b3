"""Graphs as ONNX files: integer graphs with local functions (domain `cim`), the float model."""

from __future__ import annotations

from onnx import ModelProto

from cimtool.emit.operations import append
from cimtool.emit.writer import GraphWriter, Port
from cimtool.ir.arithmetic import Store
from cimtool.ir.program import Graph, Program, as_inputs
from cimtool.ir.types import Type

FEATURE_ROLES = frozenset({"mu", "s", "s_self", "logvar"})
"""The float model computes in double from the stores of these on, because the statistics cancel."""


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

    Raises CimError if a layer has no integer ONNX form, and the checker's error if this compiler is
    wrong.
    """
    writer = GraphWriter()
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


def _emit_nodes(
    writer: GraphWriter, graph: Graph, values: dict[str, str], prefix: str = ""
) -> None:
    """Append all nodes of a graph, adding the name of every value to `values`."""
    for node in graph.nodes:
        writer.layer = prefix + node.name
        values[node.name] = append(writer, graph, node, values)


def float_model(program: Program) -> ModelProto:
    """The calibrated program of real numbers as one file: `text`, `video` rows to `logit` [n, m].

    Projectors run in float32; the stored features, the statistics and the score in double.
    """
    writer = GraphWriter()
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


def _emit_tower(writer: GraphWriter, graph: Graph) -> dict[str, str]:
    """Append a projector in float32 up to its stored features, in double from there."""
    values = {"x": graph.name}
    doubles: set[str] = set()
    for node in graph.nodes:
        writer.layer = f"{graph.name}/{node.name}"
        writer.real = "DOUBLE" if doubles.intersection(node.inputs) else "FLOAT"
        value = append(writer, graph, node, values)
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


def onnx_files(program: Program, calibrated: Program) -> dict[str, bytes]:
    """The ONNX files of a bundle by name: one per graph, and `float.onnx`.

    The first are of the final program, the last of the calibrated one.

    Raises CimError if a layer has no integer ONNX form.
    """
    models = {f"{graph.name}.onnx": onnx_model(graph) for graph in program.graphs}
    models["float.onnx"] = float_model(calibrated)
    return {name: file_bytes(model) for name, model in models.items()}
