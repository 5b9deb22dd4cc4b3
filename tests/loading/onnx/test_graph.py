"""Reading of an ONNX file, and refusals before any weight is looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cimtool.base.errors import CimError
from cimtool.bundle.inspect import inspect
from cimtool.loading.onnx.graph import MOST_NODES, read_onnx_graph

WIDTH = 6
WriteOnnx = Callable[..., Path]
WEIGHTS = {name: np.ones((WIDTH, 4), np.float32) for name in ("Wm", "Wl")}
HEADS = [
    helper.make_node("MatMul", ["x", "Wm"], ["mu"]),
    helper.make_node("MatMul", ["x", "Wl"], ["logvar"]),
]


@pytest.fixture
def file(write_onnx: WriteOnnx) -> Path:
    return write_onnx(HEADS, WEIGHTS)


def test_a_projector(file: Path) -> None:
    graph = read_onnx_graph(file)
    assert (graph.x, graph.width, graph.rows) == ("x", WIDTH, None)
    assert [node.label for node in graph.nodes] == ["node 1", "node 2"]
    assert graph.outputs == {"mu": "mu", "logvar": "logvar"}
    np.testing.assert_array_equal(graph.constants["Wm"], WEIGHTS["Wm"])


def test_one_output_is_a_point(write_onnx: WriteOnnx) -> None:
    graph = read_onnx_graph(write_onnx(HEADS[:1], WEIGHTS, outputs=("mu",)))
    assert graph.outputs == {"mu": "mu"}
    node = helper.make_node("MatMul", ["x", "Wm"], ["embedding"])
    graph = read_onnx_graph(write_onnx([node], WEIGHTS, outputs=("embedding",)))
    assert graph.outputs == {"mu": "embedding"}


def test_outputs_of_other_names_are_told(write_onnx: WriteOnnx) -> None:
    nodes = [helper.make_node("Identity", ["x"], [name]) for name in ("mean", "var")]
    file = write_onnx(nodes, {}, outputs=("mean", "var"))
    with pytest.raises(
        CimError, match=r"has the outputs mean, var; expected mu and logvar among them, or a s"
    ):
        read_onnx_graph(file)
    file = write_onnx(HEADS[1:], WEIGHTS, outputs=("logvar",))
    with pytest.raises(CimError, match=r"has the outputs logvar; expected mu and logvar"):
        read_onnx_graph(file)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"shape": ("n", 2, 3)}, r"x has shape \[n, 2, 3\]; expected \[n, in\]"),
        ({"shape": ("n", "w")}, r"x has shape \[n, w\]; expected \[n, in\], where in is a number"),
        ({"kind": TensorProto.INT64}, r"x is of type int64; expected float or double"),
        ({"opset": 8}, r"is of operator set 8; expected 9 to \d+"),
        ({"opset": 999}, r"is of operator set 999; expected 9 to \d+"),
    ],
)
def test_inputs_and_operator_sets(
    write_onnx: WriteOnnx, options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(CimError, match=r"text\.onnx: " + sentence):
        read_onnx_graph(write_onnx(HEADS, WEIGHTS, **options))


def test_there_is_one_input(file: Path) -> None:
    model = onnx.load(str(file))
    model.graph.input.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, ("n",)))
    onnx.save(model, str(file))
    with pytest.raises(CimError, match=r"has 2 inputs \(x, mask\); expected one, rows \[n, in\]"):
        read_onnx_graph(file)


@pytest.mark.parametrize("constant", [False, True])
def test_weights_in_other_files_are_not_read(file: Path, constant: bool) -> None:
    model = onnx.load(str(file))
    tensor = model.graph.initializer[0]
    if constant:
        model.graph.node.insert(0, helper.make_node("Constant", [], ["outside"], value=tensor))
        tensor = model.graph.node[0].attribute[0].t
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")
    file.write_bytes(model.SerializeToString())
    with pytest.raises(CimError, match=r"Wm is kept in another file, which is not read; save the"):
        read_onnx_graph(file)


def test_a_shape_that_its_data_do_not_have_is_not_allocated(file: Path) -> None:
    model = onnx.load(str(file))
    model.graph.initializer[0].dims[:] = [1 << 40, 1 << 20]
    file.write_bytes(model.SerializeToString())
    with pytest.raises(CimError, match=r"text\.onnx: is not a valid ONNX model: .*Wm.*too small"):
        read_onnx_graph(file)


def test_an_invalid_graph_is_refused_by_the_checker(file: Path) -> None:
    model = onnx.load(str(file))
    model.graph.node[0].input[0] = "nowhere"
    file.write_bytes(model.SerializeToString())
    with pytest.raises(CimError, match=r"text\.onnx: is not a valid ONNX model: .*nowhere"):
        read_onnx_graph(file)


def test_files_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "m.pth").write_bytes(b"")
    with pytest.raises(CimError, match=r"m\.pth: is a checkpoint, which holds both projectors"):
        read_onnx_graph(tmp_path / "m.pth")
    (tmp_path / "m.onnx").write_bytes(b"garbage")
    with pytest.raises(CimError, match=r"m\.onnx: is truncated, corrupt, or not an ONNX file"):
        read_onnx_graph(tmp_path / "m.onnx")
    for name in ("no.onnx", "no.pth", "no"):
        with pytest.raises(CimError, match=f"{name}: there is no such file"):
            read_onnx_graph(tmp_path / name)


def test_a_file_of_very_many_parts_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    file = tmp_path / "p.onnx"
    size = 2 * 1_000_000  # an empty node takes two bytes
    file.write_bytes(b"\x08\x08\x3a" + varint(size) + b"\x0a\x00" * (size // 2))
    for reader in (read_onnx_graph, inspect):
        with pytest.raises(CimError, match="has more than 200,000 nodes, attributes and names"):
            reader(file)


def varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def test_a_graph_of_very_many_nodes_is_refused(write_onnx: WriteOnnx) -> None:
    chain = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(MOST_NODES)]
    first = helper.make_node("MatMul", ["x", "Wm"], ["v0"])
    file = write_onnx([first, *chain], WEIGHTS, outputs=(f"v{MOST_NODES}",))
    with pytest.raises(CimError, match=r"has 10,001 nodes; expected at most 10,000"):
        read_onnx_graph(file)


def test_a_name_that_is_not_utf_8_is_refused(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"MatMul", b"Mat\xfful", 1))
    for reader in (read_onnx_graph, inspect):
        with pytest.raises(CimError, match="not an ONNX file: 'utf-8' codec can't decode"):
            reader(file)
