"""Fold: batch normalisation goes into the layer before it; the common centre of mu, into the bias
of the layer that makes mu.

Distances depend on differences of mu only, so one vector may be taken from both sides. The middle
between the ends over calibration rows needs the fewest levels, which all dimensions share. A cosine
does not allow it.

A variance that is the same for all rows becomes a constant: a layer of zeros would take arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cimtool.base.arrays import Array, FloatArray, single
from cimtool.ir.arithmetic import Add, Arrange, Mvm, Store, scalar
from cimtool.ir.backends import FOLD
from cimtool.ir.op import Level, Op
from cimtool.ir.program import MODALITIES, Builder, Graph, Node, Program, keep, rewrite
from cimtool.ir.quantized import QuantizedMvm
from cimtool.ir.source import BatchNorm, DistanceScore, Exp, Inclusion, PolynomialScore
from cimtool.ir.types import rows_of_item
from cimtool.passes.base import Job, Pass, require_room
from cimtool.passes.calibrate import SMALLEST_EXPONENT
from cimtool.simulation.simulator import Simulator

CENTRE_BITS = 20
"""Bits of its largest entry to which the common centre is rounded, the same on every CPU."""


@dataclass(frozen=True)
class FoldPass(Pass):
    """Take batch normalisation and constant variances out and, for distances, centre mu.

    `CalibratePass` refuses by name values that are not finite here.
    """

    name = "folded"
    doing = "folding batch normalisation, constant variances and the common centre"
    requires = Level.TRAINED
    leaves = Level.FLOAT

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def apply(self, program: Program, job: Job) -> Program:
        for graph in (program.text, program.video):
            require_room(graph, job)
        scores = [node.op for node in program.score.nodes if Level.MAC not in node.op.levels]
        centre = None
        if all(isinstance(op, DistanceScore | Inclusion | PolynomialScore) for op in scores):
            simulator = Simulator(program)
            mu = [simulator.encode(m, job.rows(m))["mu"] for m in MODALITIES]
            lo = np.min([one.min(axis=0) for one in mu], axis=0)
            hi = np.max([one.max(axis=0) for one in mu], axis=0)
            centre = round_to_bits((lo + hi) / 2, CENTRE_BITS)
        projectors = (program.text, program.video)
        folded = (rewrite(g, FOLD.of, Folding(g, centre, job.note)) for g in projectors)
        return program.with_projectors(*folded)


def round_to_bits(x: FloatArray, bits: int) -> FloatArray:
    """Round to multiples of a power of two, `bits` bits below the largest magnitude."""
    step = np.ldexp(1.0, max(int(np.frexp(np.abs(x).max())[1]) - bits, SMALLEST_EXPONENT))
    return np.asarray(np.floor(x / step + 0.5) * step)


class Folding(Builder):
    """Builds a folded projector; `centre` is taken off mu if there is one.

    `note` takes a line on each layer that became a constant.
    """

    def __init__(self, graph: Graph, centre: FloatArray | None, note: Callable[[str], None]):
        super().__init__(graph.name, graph.inputs, graph.calibration)
        self.centre, self.note = centre, note
        inner = (name for node in graph.nodes for name in node.inputs)
        self.readers = Counter([*inner, *graph.outputs.values()])

    def take_layer(self, node: Node, value: str) -> tuple[Mvm, Node] | None:
        """Take the layer that makes a node's input out again, to be added anew with other numbers.

        None if something else reads the value, no layer makes it, or one of whole weights.
        """
        layer = self.by_name.get(value)
        if layer is None or not isinstance(layer.op, Mvm) or self.readers[node.inputs[0]] > 1:
            return None
        if isinstance(layer.op, QuantizedMvm):
            return None
        del self.by_name[value], self.types[value]
        return layer.op, layer


FOLD.rule(Op)(keep)


@FOLD.rule(BatchNorm)
def batch_norm(builder: Folding, op: BatchNorm, node: Node, inputs: tuple[str, ...]) -> str:
    """Scale and move the outputs of the layer before, or else the values."""
    offset = op.beta - op.mean * op.factor
    taken = builder.take_layer(node, inputs[0])
    if taken is None:
        return builder.add(node.name, Add((op.factor,), offset), *inputs)
    mvm, layer = taken
    # In single precision, so that a bundle keeps folded weights in half the space.
    folded = Mvm(single(mvm.weight * op.factor), single(mvm.bias * op.factor + offset))
    return builder.add(layer.name, folded, *layer.inputs)


@FOLD.rule(Exp)
def variance(builder: Folding, op: Exp, node: Node, inputs: tuple[str, ...]) -> str:
    """The variance itself if a layer of zeros makes it, so that no row changes it."""
    row = _constant(builder, inputs[0])
    if row is None:
        return keep(builder, op, node, inputs)
    return _same_for_all(builder, node.name, op.run(row))


def _same_for_all(builder: Folding, name: str, row: Array) -> str:
    """Add the row [N] for each item: a sum of any number of the item, times 0, and constants."""
    (x,) = builder.inputs
    rows, _ = rows_of_item(builder.types[x].shape[0])
    number = builder.add(f"{name}.row", Arrange(rows, np.zeros((1, 1), np.int64)), x)
    return builder.add(name, Add((scalar(0.0),), row), number)


def _constant(builder: Folding, value: str) -> Array | None:
    """The row [N] that a value is for all rows, as a layer of zeros makes it; None if rows differ.

    The value is the layer's, or one that operations on it alone make.
    """
    after = list[Op]()
    node = builder.by_name.get(value)
    while node is not None and not isinstance(node.op, Mvm) and len(node.inputs) == 1:
        after.append(node.op)
        node = builder.by_name.get(node.inputs[0])
    if node is None or not isinstance(node.op, Mvm) or isinstance(node.op, QuantizedMvm):
        return None
    shapes = (builder.types[name].shape for name in (node.name, value))
    if node.op.weight.any() or any(rows_of_item(shape[0])[0] > 1 for shape in shapes):
        return None
    row = node.op.bias[None]
    for op in reversed(after):
        row = op.run(row)
    builder.note(
        f"{builder.name}.{node.name}: its weights are zeros, so that all rows have one variance: "
        "it takes no array"
    )
    constant: Array = row[0]
    return constant


@FOLD.rule(Store)
def stored(builder: Folding, op: Store, node: Node, inputs: tuple[str, ...]) -> str:
    """Take the centre off mu: in the bias of the layer before, or else off the values.

    A log-variance that a layer of zeros makes becomes a constant.
    """
    if op.role == "logvar" and (row := _constant(builder, inputs[0])) is not None:
        return builder.add(node.name, op, _same_for_all(builder, "logvar.same", row))
    centre = builder.centre
    if centre is None or op.role != "mu":
        return keep(builder, op, node, inputs)
    taken = builder.take_layer(node, inputs[0])
    if taken is None:
        value = builder.add("mu_centred", Add((scalar(1.0),), -centre), *inputs)
    else:
        mvm, layer = taken
        value = builder.add(layer.name, Mvm(mvm.weight, mvm.bias - centre), *layer.inputs)
    return builder.add(node.name, op, value)
