"""Parts of a protobuf message, counted before it is parsed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from cimtool.base.protobufs import count_parts

MODEL = onnx.ModelProto.DESCRIPTOR


def small_model() -> onnx.ModelProto:
    weights = numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["mu"], name="n")
    graph = helper.make_graph([node], "g", [], [], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_messages_and_texts_are_counted_at_every_depth() -> None:
    # Graph, its name, node with two inputs, an output, a name and a kind, tensor with its name,
    # operator set with its domain.
    content = small_model().SerializeToString()
    assert count_parts(content, MODEL, 1000) == 12
    assert count_parts(content, MODEL, 5) == 6


def test_many_empty_parts_are_left_at_the_limit() -> None:
    nodes = onnx.GraphProto(node=[onnx.NodeProto()] * 1000)
    assert count_parts(onnx.ModelProto(graph=nodes).SerializeToString(), MODEL, 100) == 101


@pytest.mark.parametrize(
    "content",
    [
        b"\x3a\x7f",  # a graph that ends behind the file
        b"\x08\xff",  # an integer that does not end
        b"\x08" + b"\xff" * 20,
        b"\x0b\x0c",  # a group
        b"\x12\x02\xff\xfe",  # a producer's name that is not UTF-8
        b"\x3a\x03\x12\x05x",  # a name that ends behind its graph
    ],
)
def test_what_is_no_message(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  whatever is wrong: the parser tells it
        count_parts(content, MODEL, 1000)
