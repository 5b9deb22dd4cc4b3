"""Towers of ONNX graphs: each node is translated by its rule, in the order of the file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.ir.op import Op
from cimtool.ir.program import Builder, Graph, Node, rewrite
from cimtool.loading.onnx.builder import LOWEST_OFFSET, FileBuilder, MaskRead, Rows
from cimtool.loading.onnx.constants import (
    ELEMENTWISE,
    FOLDS,
    REAL_TYPES,
    ConstantFolder,
    constant_inputs,
)
from cimtool.loading.onnx.graph import Branch, OnnxGraph, OnnxNode
from cimtool.loading.onnx.rules import unsupported
from cimtool.loading.onnx.rules.quantized import require_one_quantizer
from cimtool.loading.onnx.translation import (
    DOMAINS,
    RULES,
    KeptConstant,
    Translated,
    Translation,
    Unread,
)

OF_SEVERAL_VALUES = ("Add", "Div", "Max", "Min", "Mul", "Sub")


def translate(graph: OnnxGraph) -> Graph:
    """The tower of an ONNX graph.

    Raises CimError, which names the first unsupported node, and if mu and logvar differ in extent.
    """
    builder = FileBuilder(graph.width)
    numbers = sum(array.size for array in graph.constants.values())
    folder = ConstantFolder(numbers, graph.opset, graph.counts)
    x = Rows.in_order("x", (1, graph.width))
    values: dict[str, Translated] = {**graph.constants, graph.x: x}
    _translate_nodes(graph, graph.nodes, values, builder, folder)
    outputs = [_output(graph, values.get(name), name, builder) for name in graph.outputs.values()]
    widths = [builder.extent(name) for name in outputs]
    if len(set(widths)) > 1:
        raise CimError(
            f"{graph.file}: mu has {widths[0]} dimensions and logvar {widths[1]}; "
            "expected the same for both"
        )
    tower = builder.tower(*outputs)
    require_one_quantizer(tower, graph.file)
    return rewrite(tower, lambda op: _named_anew, Builder.of(tower))


def _named_anew(builder: Builder, op: Op, node: Node, inputs: tuple[str, ...]) -> str:
    """The node without a number in its name that kept it apart from nodes since dropped."""
    return builder.add(re.sub(r"\.\d+$", "", node.name), op, *inputs)


def _translate_nodes(
    graph: OnnxGraph,
    nodes: Sequence[OnnxNode],
    values: dict[str, Translated],
    builder: FileBuilder,
    folder: ConstantFolder,
) -> None:
    """Translate nodes, and add their outputs to the values."""
    for node in nodes:
        t = Translation(graph, node, values, builder, folder)
        if node.kind == "If" and not node.domain:
            condition = t.value(0)
            if (
                not isinstance(condition, np.ndarray)
                or condition.dtype != bool
                or condition.size != 1
            ):
                t.fail(unsupported(node.kind, "", ()))
            branch: Branch = node.attributes["then_branch" if condition else "else_branch"]
            inner = {**values, **branch.constants}
            _translate_nodes(graph, branch.nodes, inner, builder, folder)
            pairs = zip(node.outputs, branch.outputs, strict=False)
            values.update({own: inner[made] for own, made in pairs if made in inner})
            continue
        made = _made(t)
        made = made if isinstance(made, tuple) else (made,)
        values.update(zip(node.outputs, made, strict=False))
        t.require_work(sum(one.size for one in made if isinstance(one, Rows)))


def _made(t: Translation) -> Translated | tuple[Translated, ...]:
    """The values of a node: constants that are computed now, or the values that its rule makes."""
    node = t.node
    constants = constant_inputs(node, t.values)
    foldable = not node.domain and node.kind in FOLDS
    if foldable and constants is not None and not over_items(t):
        return t.folder.fold(node, constants, t.where)
    if foldable and (made := _alike_for_items(t)) is not None:
        return made
    if not node.domain and node.kind in OF_SEVERAL_VALUES:
        t = replace(t, values=_with_constants(t))
    first, rules = t.values.get(t.input(0)), DOMAINS.get(node.domain, {})
    if isinstance(first, KeptConstant | Unread) and not node.domain:
        rules = {**rules, **first.rules}
    rule = rules.get(node.kind)
    if rule is None:
        t.fail(unsupported(node.kind, node.domain, RULES))
    try:
        return rule(t)
    except MaskRead as read:
        t.fail(f"reads a mask of attention with {read}; expected a softmax of masked numbers alone")


SHAPE_INPUTS = {"ConstantOfShape": 0, "Expand": 1, "Tile": 1}
"""The index of an operator's input that gives extents, or the repeats of a constant."""


def over_items(t: Translation) -> bool:
    """True if a node repeats a real constant for each item; integers belong to shapes."""
    index, value = SHAPE_INPUTS.get(t.node.kind), t.node.attributes.get("value")
    if index is None or (value is not None and value.data_type not in REAL_TYPES):
        return False
    return t.items_axis(t.sizes(index)) is not None


def _alike_for_items(t: Translation) -> Rows | None:
    """The value of an elementwise node or Cast if it is the same for all items.

    None for other nodes, and if the items are at different places or share an axis.
    """
    if not (t.node.kind in ELEMENTWISE or t.node.kind == "Cast"):
        return None
    values = [t.value(index) for index in range(len(t.node.inputs))]
    views = [value for value in values if isinstance(value, Rows)]
    places = {view.items - view.rank if view.items_apart else 0 for view in views}
    if len(places) != 1 or 0 in places:
        return None
    arrays = list[Array]()
    for value in values:
        array = t.builder.numbers(value) if isinstance(value, Rows) else value
        if not isinstance(array, np.ndarray):
            return None
        own = array if isinstance(value, Rows) else t.of_items(array, views[0])
        arrays.append(own.astype(np.float64) if own.dtype.kind == "f" else own)
    (made,) = t.folder.fold(t.node, arrays, t.where)
    assert isinstance(made, np.ndarray)
    t.require_numbers(made.size)
    (place,) = places
    return t.builder.repeated(t.called("constant"), made.astype(np.float64), made.ndim + place)


def _with_constants(t: Translation) -> Mapping[str, Translated]:
    """A node's input values, with the numbers of an input that is the same for all items."""
    given = {name: t.values[name] for name in t.node.inputs if name in t.values}
    views = {name: value for name, value in given.items() if isinstance(value, Rows)}
    known = {name: t.builder.numbers(view) for name, view in views.items()}
    if len(known) != 2 or all(numbers is not None for numbers in known.values()):
        return t.values
    apart = {name for name, view in views.items() if view.items_apart}
    fixed = {name: array for name, array in known.items() if array is not None and name in apart}
    return {**t.values, **fixed}


def _output(graph: OnnxGraph, value: Translated | None, name: str, builder: FileBuilder) -> str:
    """The program's name of an output of the file."""
    where = f"{graph.file}: {name}"
    if isinstance(value, Unread):
        raise CimError(f"{where} is {value.text}; expected rows of numbers")
    if not isinstance(value, Rows) or value.name in builder.fixed:
        raise CimError(f"{where} does not depend on the input; expected rows")
    if value.rank != 2 or value.items or not value.items_apart:
        raise CimError(f"{where} has axes {value.text}; expected [n, d]")
    if value.name in builder.masks and builder.masks[value.name].min() < LOWEST_OFFSET:
        raise CimError(f"{where} is an attention mask; expected a softmax of the masked numbers")
    return builder.in_rows(value).name
