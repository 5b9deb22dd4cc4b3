"""Programs: three immutable graphs (`text`, `video`, `score`), how to build and to check them.

`text` and `video` take embeddings to stored features; `score` takes both sides' features to
logits for all pairs. A value is named after the node that makes it. A graph of real numbers may be
calibrated: it then knows the ranges and tails of its values on calibration rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import is_
from typing import Any, Self, TypeVar

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import CimError
from cimtool.base.escapes import clean_name
from cimtool.base.plugins import fault_of
from cimtool.ir.arithmetic import Arrange, Clip, plus, scalar
from cimtool.ir.op import Level, Op
from cimtool.ir.tails import Tails
from cimtool.ir.types import RangeError, Type, rows_of_item


@dataclass(frozen=True, eq=False)
class Range:
    """The bounds of a value, per channel or scalars."""

    lo: Array
    hi: Array

    @property
    def top(self) -> FloatArray:
        """The largest magnitude within the bounds."""
        return np.maximum(np.abs(self.lo), np.abs(self.hi))


@dataclass(frozen=True, eq=False)
class Calibration:
    """The calibration of one graph; empty if it was not calibrated.

    `ranges` and `mean_squares` are by value, `squared_norms` (of what rows are divided by) by the
    node that normalises. `tails` are of values that are stored, if ranges shall follow them.
    """

    ranges: Mapping[str, Range] = field(default_factory=dict)
    mean_squares: Mapping[str, FloatArray] = field(default_factory=dict)
    squared_norms: Mapping[str, Range] = field(default_factory=dict)
    tails: Mapping[str, Tails] = field(default_factory=dict)


UNCALIBRATED = Calibration()


MODALITIES = ("text", "video")

AnyOp = TypeVar("AnyOp", bound=Op)


@dataclass(frozen=True)
class Node:
    """One operation; `name` is also the name of its value."""

    name: str
    op: Op
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    """One entry point: inputs, nodes in order of use, named outputs, calibrated or not."""

    name: str
    inputs: Mapping[str, Type]
    nodes: tuple[Node, ...]
    outputs: Mapping[str, str]
    calibration: Calibration = UNCALIBRATED

    @cached_property
    def types(self) -> Mapping[str, Type]:
        """The type of every value; CimError naming the node whose integers could overflow."""
        ranges = self.calibration.ranges
        types = {name: calibrated(known, ranges.get(name)) for name, known in self.inputs.items()}
        for node in self.nodes:
            known = infer(self.name, node, [types[i] for i in node.inputs])
            types[node.name] = calibrated(known, ranges.get(node.name))
        return types

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """The nodes by the name of their value."""
        return {node.name: node for node in self.nodes}

    @property
    def statistics(self) -> tuple[str, ...]:
        """The values of a score of real numbers whose domain calibration fixes."""
        return tuple(i for node in self.nodes if node.op.scores_statistics for i in node.inputs)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the outputs, by their names, with the readable operations.

        This defines what every backend must compute. Values are kept until the end.
        """
        values = dict(inputs)
        for node in self.nodes:
            values[node.name] = node.op.run(*(values[name] for name in node.inputs))
        return {name: values[value] for name, value in self.outputs.items()}

    def operations(self, kind: type[AnyOp]) -> dict[str, AnyOp]:
        """The operations of one class by the name of their value, in the order of use."""
        return {node.name: node.op for node in self.nodes if isinstance(node.op, kind)}

    @cached_property
    def embeddings(self) -> frozenset[str]:
        """The values that are numbers of a projector's input as they come: `x`, and arranged.

        One number alone is not among them: it is taken from the stored input.
        """
        found = {name for name in self.inputs if name == "x"}
        for node in self.nodes:
            op = node.op
            if isinstance(op, Arrange) and op.places.size > 1 and node.inputs[0] in found:
                found.add(node.name)
        return frozenset(found)

    @property
    def numbers_of_pair(self) -> int:
        """The most numbers that a value of a score has for each pair of items."""
        return max((node.op.numbers_of_pair for node in self.nodes), default=1)

    def pruned(self) -> Graph:
        """The graph without nodes that no output depends on."""
        used = set(self.outputs.values())
        kept = []
        for node in reversed(self.nodes):
            if node.name in used:
                kept.append(node)
                used.update(node.inputs)
        return replace(self, nodes=tuple(reversed(kept)))

    def extent(self, value: str) -> int:
        """Numbers in a row of a value [n, extent]."""
        return int(self.types[value].shape[1])

    def layer(self, node: Node) -> str:
        """The name by which settings and reports address a layer: `text.fc1`."""
        return f"{self.name}.{node.name}"


@dataclass(frozen=True)
class Program:
    """The deployable unit: the three entry points at one stage of the pipeline.

    With a gallery programmed for a hybrid score, `shortlist` takes the text features to `ed`
    [n, M] of all items.
    """

    text: Graph
    video: Graph
    score: Graph
    shortlist: Graph | None = None

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs in the order text, video, score, and the shortlist's if there is one."""
        three = (self.text, self.video, self.score)
        return three if self.shortlist is None else (*three, self.shortlist)

    def with_projectors(self, text: Graph, video: Graph) -> Program:
        """The program with other projectors, whose features its score takes."""
        score = replace(self.score, inputs=score_inputs(text, video))
        return replace(self, text=text, video=video, score=score)

    @property
    def gallery_items(self) -> int | None:
        """Items whose columns the score holds; None if it takes videos as they come."""
        if features_of(self.video, self.score.inputs):
            return None
        (logit,) = self.score.outputs.values()
        return int(self.score.types[logit].shape[1])


def infer(graph: str, node: Node, inputs: list[Type]) -> Type:
    """The type of a node's value.

    Raises CimError, which names the node, if it could overflow 62 bits or its accumulator.
    """
    if len({*map(id, inputs)}) < len({*node.inputs}):
        # One object a name: an operation may take one type given twice for one value given twice.
        named = {name: replace(known) for name, known in zip(node.inputs, inputs, strict=True)}
        inputs = [named[name] for name in node.inputs]
    try:
        known = _inferred(node.op, inputs)
    except RangeError:
        raise CimError(
            f"{graph}.{node.name} ({node.op.name}): its proved range does not fit the 62 bits of "
            "the digital unit; use fewer bits for weights, activations or features"
        ) from None
    width = node.op.accumulator_bits
    if width and known.bits > width:
        raise CimError(
            f"{graph}.{node.name}: its sums need {known.bits} bits and the accumulator has "
            f"{width}; use fewer weight or activation bits, or more accumulator_bits"
        )
    return known


def _inferred(op: Op, inputs: list[Type]) -> Type:
    """The type of an operation's value; the operation keeps it, as passes rebuild most nodes as is.

    Proving the bounds of a layer reads all of its weights.
    """
    kept: tuple[list[Type], Type] | None = vars(op).get(INFERRED)
    if kept is not None and len(kept[0]) == len(inputs) and all(map(is_, kept[0], inputs)):
        return kept[1]
    known = op.infer(*inputs)
    vars(op)[INFERRED] = inputs, known
    return known


INFERRED = "_inferred"
"""Attribute of an operation: the last types of its inputs, and the type of its value."""


def calibrated(known: Type, seen: Range | None) -> Type:
    """The type of a real value, with the bounds that calibration saw if there are any."""
    if seen is None or known.is_integer:
        return known
    return replace(known, lo=seen.lo, hi=seen.hi)


class Builder:
    """Collects nodes into a graph, knowing the type of every value on the way.

    A pass may extend it by the state that its rules need.
    """

    def __init__(
        self, name: str, inputs: Mapping[str, Type], calibration: Calibration = UNCALIBRATED
    ):
        self.name = name
        self.inputs = dict(inputs)
        self.calibration = calibration
        self.ranges = dict(calibration.ranges)
        self.types: dict[str, Type] = {
            name: calibrated(known, self.ranges.get(name)) for name, known in inputs.items()
        }
        self.by_name: dict[str, Node] = {}

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """A builder for another form of a graph, with its inputs and its calibration."""
        return cls(graph.name, graph.inputs, graph.calibration)

    def extent(self, value: str) -> int:
        """Numbers in a row of a value [n, extent]."""
        return int(self.types[value].shape[1])

    def add(self, name: str, op: Op, *inputs: str, seen: Range | None = None) -> str:
        """Append a node and return its value's name (`name`, or `name.2` if that is taken).

        A text that is no name becomes one.
        `seen` is the value's range if a pass knows it and calibration did not see the value.
        """
        unique, count = clean_name(name), 1
        while unique in self.types:
            count += 1
            unique = clean_name(f"{name}.{count}")
        node = Node(unique, op, inputs)
        known = infer(self.name, node, [self.types[i] for i in inputs])
        if seen is not None:
            self.ranges[unique] = seen
        self.types[unique] = calibrated(known, self.ranges.get(unique))
        self.by_name[unique] = node
        return unique

    def graph(self, outputs: Mapping[str, str]) -> Graph:
        """The finished graph, without dead nodes."""
        calibration = replace(self.calibration, ranges=self.ranges)
        nodes = tuple(self.by_name.values())
        found = Graph(self.name, self.inputs, nodes, dict(outputs), calibration).pruned()
        kept = (*found.inputs, *(node.name for node in found.nodes))
        vars(found)["types"] = {name: self.types[name] for name in kept}
        return found


AnyBuilder = TypeVar("AnyBuilder", bound=Builder)
Rule = Callable[[AnyBuilder, AnyOp, Node, tuple[str, ...]], str]
"""Rebuilds a node of an operation on the mapped inputs; returns the name of the replacing value."""


def keep(builder: Builder, op: Op, node: Node, inputs: tuple[str, ...]) -> str:
    """The rule that changes nothing."""
    return builder.add(node.name, op, *inputs)


def rewrite(
    graph: Graph, choose: Callable[[Op], Rule[AnyBuilder, Any]], builder: AnyBuilder
) -> Graph:
    """Rebuild a graph in a new builder of it, each node by the rule chosen for its operation."""
    mapped = {name: name for name in graph.inputs}
    for node in graph.nodes:
        inputs = tuple(mapped[i] for i in node.inputs)
        mapped[node.name] = choose(node.op)(builder, node.op, node, inputs)
    return builder.graph({name: mapped[value] for name, value in graph.outputs.items()})


def rewrite_each(graph: Graph, kind: type[AnyOp], rule: Rule[Builder, AnyOp]) -> Graph:
    """Rebuild a graph: operations of one class by a rule, all others as they are."""
    return rewrite(graph, lambda op: rule if isinstance(op, kind) else keep, Builder.of(graph))


def score_inputs(text: Graph, video: Graph) -> dict[str, Type]:
    """Input types of `score`: the features of both sides, `text.mu` .. `video.vd_self`."""
    types: dict[str, Type] = {}
    for graph, rows in ((text, "n"), (video, "m")):
        for name, value in graph.outputs.items():
            known = graph.types[value]
            own = replace(known, shape=(rows, *known.shape[1:]))
            types |= as_inputs(graph.name, {name: own})
    return types


Value = TypeVar("Value")


def as_inputs(modality: str, features: Mapping[str, Value]) -> dict[str, Value]:
    """One modality's features by the score's names for them, and a file's: `mu` is `text.mu`."""
    return {f"{modality}.{name}": value for name, value in features.items()}


def features_of(projector: Graph, inputs: Mapping[str, Value]) -> dict[str, Value]:
    """The features of one projector, of inputs that `as_inputs` named."""
    named = {name: f"{projector.name}.{name}" for name in projector.outputs}
    return {name: inputs[key] for name, key in named.items() if key in inputs}


def misplaced(graph: Graph, level: Level) -> Node | None:
    """The first node whose operation does not stand at a level."""
    return next((node for node in graph.nodes if level not in node.op.levels), None)


def check_program(program: Program, stage: str, level: Level) -> None:
    """Check a pass's program: operations of its level, order of use, unique names, ranges.

    Raises CimError if integers could overflow or the rule of a plug-in leaves an operation that it
    should not, and RuntimeError if the pass is wrong.
    """
    for graph in program.graphs:
        known = set(graph.inputs)
        if (wrong := misplaced(graph, level)) is not None:
            left = f"{stage} left {wrong.op.name} in {graph.layer(wrong)}"
            raise fault_of(type(wrong.op), left, RuntimeError)
        for node in graph.nodes:
            if node.name in known or not known.issuperset(node.inputs):
                raise RuntimeError(f"{stage} broke the order of values at {graph.layer(node)}")
            known.add(node.name)
        if not known.issuperset(graph.outputs.values()):
            raise RuntimeError(f"{stage} lost an output of {graph.name}")
        _ = graph.types
    inputs = score_inputs(program.text, program.video)
    if program.gallery_items is not None:
        inputs = as_inputs("text", features_of(program.text, inputs))
    if list(inputs) != list(program.score.inputs):
        raise RuntimeError(f"{stage}: score does not take what text and video return")
    for name, own in program.score.inputs.items():
        theirs = inputs[name]
        ends = (own.lo, theirs.lo), (own.hi, theirs.hi)
        if own.shape != theirs.shape or not all(
            np.array_equal(*pair, equal_nan=True) for pair in ends
        ):
            raise RuntimeError(f"{stage}: score takes {name} in other bounds than it comes")


def largest(builder: Builder, name: str, x: str) -> str:
    """The largest number [n, 1] of each row: of two halves `a + max(b - a, 0)`, and of these.

    Values have names that begin with `name`.
    """
    rows, _ = rows_of_item(builder.types[x].shape[0])
    value = x
    while (width := builder.extent(value)) > 1:
        half = -(-width // 2)
        places = np.arange(rows * width).reshape(rows, width)
        own = f"{name}{half}"
        a = builder.add(f"{own}.a", Arrange(rows, places[:, :half]), value)
        b = builder.add(f"{own}.b", Arrange(rows, places[:, -half:]), value)
        more = builder.add(f"{own}.more", plus(1, -1), b, a)
        above = builder.add(f"{own}.above", Clip(scalar(0.0), scalar(np.inf)), more)
        value = builder.add(own, plus(1, 1), a, above)
    return value
