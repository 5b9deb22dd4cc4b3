"""Values that a stage computes from the same numbers as the stage before it, found once for both.

Passes change a part of a program: what a graph computes up to there is what it computed before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import cast

import numpy as np

from cimtool.base.arrays import Array
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.integer import Quantize
from cimtool.ir.op import Identity, Op
from cimtool.ir.program import MODALITIES, Graph, Program
from cimtool.passes.pipeline import Stage
from cimtool.simulation.simulator import ROW_BLOCK, block_height


def shared_values(before: Graph, graph: Graph) -> dict[str, str]:
    """The values of `graph` that are one of `before`, to the last bit, by that one's name.

    Operations are alike where all of their fields are. A layer on lossless crossbars is the integer
    product of its weights, by the same kernels.
    """
    origin = _origins(before)
    found = {name: name for name in graph.inputs if name in before.inputs}
    for node in graph.nodes:
        if not found.keys() >= set(node.inputs):
            continue
        inputs, other = [found[name] for name in node.inputs], before.by_name.get(node.name)
        if isinstance(node.op, Identity):
            found[node.name] = inputs[0]
        elif (
            other is not None
            and [origin[name] for name in other.inputs] == inputs
            and alike(other.op, node.op)
        ):
            found[node.name] = node.name
    return found


def _origins(graph: Graph) -> dict[str, str]:
    """The value that each value of a graph is, those of identities being others'."""
    origin = {name: name for name in graph.inputs}
    for node in graph.nodes:
        same = isinstance(node.op, Identity)
        origin[node.name] = origin[node.inputs[0]] if same else node.name
    return origin


def taken_over(before: Graph, graph: Graph) -> dict[str, str | None]:
    """Nodes of a projector that it need not compute, by the value of `before` that each one is.

    None for a value that nothing else reads then. Of real numbers alone, in blocks of one height:
    products round by height. Empty where nothing is gained.
    """
    if before.operations(Quantize) or graph.operations(Quantize):
        return {}
    found = shared_values(before, graph)
    same = {node.name: found[node.name] for node in graph.nodes if node.name in found}
    same = {name: value for name, value in same.items() if value in before.by_name}
    read = {i for node in graph.nodes if node.name not in same for i in node.inputs}
    read |= set(graph.outputs.values())
    handed = {name: value if name in read else None for name, value in same.items()}
    kept = {value for value in handed.values() if value is not None}
    outputs = [list(one.outputs.values()) for one in (before, graph)]
    heights = {
        block_height(before, ROW_BLOCK, [*outputs[0], *kept]),
        *map(block_height, (before, graph), (ROW_BLOCK, ROW_BLOCK), outputs),
    }
    return handed if len(heights) == 1 else {}


@dataclass(frozen=True)
class SharingStage:
    """A stage, and what it has from the one before it.

    `taken` are the values of each projector that it takes over, as `taken_over` has them. If all
    of it is the `same`, features and scores are the other's.
    """

    name: str
    program: Program
    taken: Mapping[str, Mapping[str, str | None]]
    same: bool


def sharing(stages: Sequence[Stage]) -> list[list[SharingStage]]:
    """Stages in groups: in a group, each stage reuses values of the stage before it.

    A stage that reuses some of its values is not reused itself: it does not have all of them.
    """
    found: list[list[SharingStage]] = []
    before: SharingStage | None = None
    for stage in stages:
        program = stage.program
        taken: dict[str, dict[str, str | None]] = {modality: {} for modality in MODALITIES}
        if before is not None and not any(before.taken.values()):
            graphs = {m: (getattr(before.program, m), getattr(program, m)) for m in MODALITIES}
            taken = {m: taken_over(*pair) for m, pair in graphs.items()}
        any_taken = any(taken.values())
        same = before is not None and not any_taken and same_program(before.program, program)
        if not (any_taken or same):
            found.append([])
        before = SharingStage(stage.name, program, taken, same)
        found[-1].append(before)
    return found


def same_program(before: Program, program: Program) -> bool:
    """True if a program's features and scores are those of the one before it, to the last bit.

    Of integers alone: products of real numbers round by the height of the blocks, which may differ.
    """
    if len(before.graphs) != len(program.graphs) or not program.text.operations(Quantize):
        return False
    for one, other in zip(before.graphs, program.graphs, strict=True):
        found, origin = shared_values(one, other), _origins(one)
        if one.inputs.keys() != other.inputs.keys() or one.outputs.keys() != other.outputs.keys():
            return False
        outputs = {name: origin[value] for name, value in one.outputs.items()}
        if any(found.get(value) != outputs[name] for name, value in other.outputs.items()):
            return False
    return True


def alike(one: Op, other: Op) -> bool:
    """True if two operations make the same numbers of the same inputs."""
    products = _exact_product(one), _exact_product(other)
    if products[0] is not None and products[1] is not None:
        return all(map(_equal, products[0], products[1]))
    return _equal(one, other)


def _exact_product(op: Op) -> tuple[Array, Array] | None:
    """Weights and biases of a layer without converters that lose anything; None of other ones."""
    if type(op) is Mvm or (type(op) is CrossbarMvm and op.exact):
        return op.weight, op.bias
    return None


def _equal(one: object, other: object) -> bool:
    """True for the same numbers, of one type, part by part; zeros of both signs are equal."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == cast(Array, other).dtype and np.array_equal(one, cast(Array, other))
    if isinstance(one, tuple):
        others = cast(tuple[object, ...], other)
        return len(one) == len(others) and all(map(_equal, one, others))
    if is_dataclass(one):
        names = [field.name for field in fields(one)]
        return all(_equal(getattr(one, name), getattr(other, name)) for name in names)
    return bool(one == other)
