"""Checks of a program that a file holds: what a compiler never writes is refused as ValueError."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.plugins import OWN, origin_of_module
from cimtool.hardware.cell_distance import CellDistance
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.program import Graph, Node, features_of, score_inputs
from cimtool.ir.types import Shape, Type, rows_of_item, shape_text, type_text


def require_read(graph: Graph) -> None:
    """Raise ValueError for a node on which no output depends."""
    read = set(graph.pruned().nodes)
    for node in graph.nodes:
        if node not in read:
            raise ValueError(f"nothing reads {graph.layer(node)}")


def require_sound(graph: Graph, node: Node, said: str) -> None:
    """Raise ValueError unless a node's line says its type, and its operation computes that."""
    _require_type(graph, node, said)
    _require_kinds(graph, node)
    _require_run(graph, node)


def _require_type(graph: Graph, node: Node, said: str) -> None:
    """Raise ValueError unless a node's type is sound, and the one that its line says."""
    known = graph.types[node.name]
    width = known.shape[-1] if known.shape else 1
    parts = (known.lo, known.hi, *(() if known.scale is None else (known.scale,)))
    if isinstance(width, int):
        for part in parts:
            if np.broadcast_shapes(np.shape(part), (width,)) != (width,):
                raise ValueError(f"{graph.layer(node)} has constants of other extents")
    if type_text(known) != said:
        raise ValueError(f"{graph.layer(node)} is {type_text(known)}, where its line says {said}")


EXAMPLE_ROWS = {"n": 2, "m": 3}
"""Rows of the values on which an operation is tried."""

MOST_NUMBERS = 1 << 24
"""Numbers of a value of EXAMPLE_ROWS, beyond which it is not made."""


WHOLE, REAL = frozenset({"places"}), frozenset({"scale", "weight_scale"})
"""Constants of operations that are integers, or real, whatever the operation computes."""


def _require_kinds(graph: Graph, node: Node) -> None:
    """Raise ValueError for integers among the constants of real numbers, or the reverse.

    Constants of a plug-in's operation are of the kinds that it wants.
    """
    if origin_of_module(type(node.op).__module__) != OWN:
        return
    of_integers = graph.types[node.name].is_integer
    kept: Any = node.op  # a dataclass, as all operations are
    for one in fields(kept):
        value = getattr(kept, one.name)
        whole = one.name in WHOLE or (of_integers and one.name not in REAL)
        for array in value if isinstance(value, tuple) else (value,):
            if isinstance(array, np.ndarray) and array.dtype.kind != ("i" if whole else "f"):
                kind = "integers" if whole else "real numbers"
                raise ValueError(
                    f"{graph.layer(node)}.{one.name} is of {array.dtype}; expected {kind}"
                )


def _require_run(graph: Graph, node: Node) -> None:
    """Raise ValueError unless an operation's numbers are of the shape and the kind that it infers.

    It is tried on a few rows, as near 0 as their bounds allow. Those of weights are not: they would
    take long, and infer from the weights all that they give.
    """
    if isinstance(node.op, Mvm | CrossbarMvm | CellDistance):
        return
    known = graph.types[node.name]
    with np.errstate(all="ignore"):
        found = np.asarray(node.op.run(*(_example(graph.types[i]) for i in node.inputs)))
    if found.shape != _extents(known.shape) or (found.dtype.kind == "i") != known.is_integer:
        raise ValueError(
            f"{graph.layer(node)} gives {found.dtype} {list(found.shape)} for {type_text(known)}"
        )


def _example(known: Type) -> Array:
    """A value [n, ...] of a type."""
    kind = np.int64 if known.is_integer else np.float64
    return np.broadcast_to(np.clip(kind(0), known.lo, known.hi), _extents(known.shape)).astype(kind)


def _extents(shape: Shape) -> tuple[int, ...]:
    """A shape with EXAMPLE_ROWS for its symbols; ValueError for more numbers than are made."""
    found = []
    for extent in shape:
        rows, symbol = (extent, "") if isinstance(extent, int) else rows_of_item(extent)
        found.append(rows * EXAMPLE_ROWS.get(symbol, 1))
    if math.prod(found) > MOST_NUMBERS:
        raise ValueError(f"{shape_text(shape)} has more numbers than a value of a program")
    return tuple(found)


def require_meeting(graphs: Sequence[Graph]) -> None:
    """Raise ValueError unless score and shortlist take what the projectors return, mu at least.

    The score returns its logit [texts, videos] or [texts, items], a shortlist its ed of items.
    """
    text, video, *scores = graphs
    for projector in (text, video):
        if "mu" not in projector.outputs:
            raise ValueError(f"{projector.name} returns {', '.join(projector.outputs)} and no mu")
        taken = {name: known.shape for name, known in projector.inputs.items()}
        if list(taken) != ["x"] or len(taken["x"]) != 2 or not isinstance(taken["x"][1], int):
            raise ValueError(f"{projector.name} takes {', '.join(taken)}; expected rows x")
        for name, value in {**{"x": "x"}, **projector.outputs}.items():
            shape = projector.types[value].shape
            if shape[:1] != ("n",) or "m" in shape:
                raise ValueError(f"{projector.name}.{name} is {shape_text(shape)}; expected n rows")
    returned = score_inputs(text, video)
    for score in scores:
        if len(score.outputs) != 1 or (score.name == "score" and "logit" not in score.outputs):
            raise ValueError(f"{score.name} returns {', '.join(score.outputs)}; expected one value")
        (value,) = score.outputs.values()
        shape = score.types[value].shape
        of_pairs = bool(features_of(video, score.inputs))
        if len(shape) != 2 or shape[0] != "n" or of_pairs != (shape[1] == "m"):
            raise ValueError(f"{score.name} returns {shape_text(shape)}: of no texts and items")
        for name, known in score.inputs.items():
            if name not in returned or type_text(returned[name]) != type_text(known):
                raise ValueError(f"{score.name} takes {name}, {type_text(known)}, of no projector")
