"""A graph computed partly in integers and partly in real numbers, to show the error of each part.

Values have the names of the lowered graph, which survive all later passes: a node of the compiled
graph computes the integer form of the lowered node of the same name. A *part* is a named place that
rounds: a stored value (`text.x.stored`, `text.mu_stored`), one setting of a layer
(`text.fc1.weight_bits`), or the whole `score`. Operations between parts (sums, products, exp) round
far less than any part. They are computed in integers if all their inputs are integers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np

from cimtool.base.arrays import Array, FloatArray, IntArray, blocks
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Mvm, Store
from cimtool.ir.format import round_half_up
from cimtool.ir.integer import Requant
from cimtool.ir.program import Graph, Node
from cimtool.simulation.kernels.operations import fast_kernel
from cimtool.simulation.simulator import block_height

STORED_ROLES = ("input", "mu", "s", "s_self", "logvar")
"""Stored values of a projector that are parts; an activation is a part of its readers."""

LAYER_SETTINGS = ("weight_bits", "activation_bits", "adc_bits")


@dataclass(frozen=True)
class GraphValue:
    """A value of a graph: integers whose real value is `unit` times as large, or real numbers."""

    array: Array
    unit: Array | None = None

    @property
    def real(self) -> FloatArray:
        """The real numbers that it stands for."""
        value: FloatArray = self.array if self.unit is None else self.array * self.unit
        return value


@dataclass(frozen=True)
class GraphStages:
    """One graph of a model at three stages: in real numbers, on lossless crossbars, compiled."""

    lowered: Graph
    tiled: Graph
    compiled: Graph
    _kernels: dict[tuple[bool, str], Callable[..., Array]] = field(default_factory=dict)

    @cached_property
    def parts(self) -> Mapping[str, tuple[str, ...]]:
        """The parts that a node of the lowered graph belongs to, in order; most have none."""
        return {node.name: parts for node in self.lowered.nodes if (parts := self._parts(node))}

    @cached_property
    def all_parts(self) -> frozenset[str]:
        """The parts of all nodes."""
        return frozenset(part for owned in self.parts.values() for part in owned)

    def blocks(self, rows: int) -> Iterator[slice]:
        """Blocks of rows of a projector, small enough to hold all values of a block."""
        names = [[node.name for node in graph.nodes] for graph in (self.lowered, self.compiled)]
        heights = map(block_height, (self.lowered, self.compiled), (rows, rows), names)
        return blocks(rows, min(heights))

    def _parts(self, node: Node) -> tuple[str, ...]:
        name = self.lowered.layer(node)
        if isinstance(node.op, Mvm):
            own = {"activation_bits": self.reads_activation(node), "adc_bits": self.converts(node)}
            return tuple(f"{name}.{key}" for key in LAYER_SETTINGS if own.get(key, True))
        if not isinstance(node.op, Store):
            return ()
        if self.lowered.name == "score":
            return ("score",)
        return (name,) if node.op.role in STORED_ROLES else ()

    def reads_activation(self, layer: Node) -> bool:
        """Tell whether a layer reads an activation, and so rounds it."""
        stored = self.lowered.by_name[layer.inputs[0]].op
        return isinstance(stored, Store) and stored.role == "activation"

    def converts(self, layer: Node) -> bool:
        """Tell whether a layer's converters lose anything."""
        op = self.compiled.by_name[layer.name].op
        return isinstance(op, CrossbarMvm) and not op.exact

    def changed(self, parts: Collection[str]) -> set[str]:
        """All values of both graphs that depend on how any of the parts is computed."""
        found = {name for name, own in self.parts.items() if not set(own).isdisjoint(parts)}
        for graph in (self.lowered, self.compiled):
            for node in graph.nodes:
                if not found.isdisjoint(node.inputs):
                    found.add(node.name)
        return found

    def kernel(self, graph: Graph, name: str) -> Callable[..., Array]:
        """The kernel of an operation of the compiled or the tiled graph, made ready once."""
        key = (graph is self.tiled, name)
        if key not in self._kernels:
            node = graph.by_name[name]
            self._kernels[key] = fast_kernel(node.op, tuple(graph.types[i] for i in node.inputs))
        return self._kernels[key]


class MixedGraph:
    """A graph's values for given inputs, with some parts in real numbers and all others compiled.

    `before` are values of another walk over the same inputs that this one need not compute again.
    """

    def __init__(
        self,
        graphs: GraphStages,
        inputs: Mapping[str, GraphValue],
        real: Collection[str],
        before: Mapping[str, GraphValue] = MappingProxyType({}),
    ):
        self.graphs, self.real = graphs, frozenset(real)
        self.values = {**before, **inputs}
        self._integer = {name: value.unit is not None for name, value in inputs.items()}

    def value(self, name: str) -> GraphValue:
        """A value by its name in the lowered graph, or in the compiled one."""
        if name not in self.values:
            if self.is_integer(name):
                found = GraphValue(self._codes(name), self.graphs.compiled.types[name].unit)
            else:
                found = GraphValue(self._computed(name))
            self.values[name] = found
        return self.values[name]

    def outputs(self) -> dict[str, GraphValue]:
        """The outputs by the names that the graph gives them."""
        return {name: self.value(value) for name, value in self.graphs.lowered.outputs.items()}

    def kept(self) -> dict[str, GraphValue]:
        """Computed values of the parts and the outputs: enough to start another evaluation from."""
        held = {*self.graphs.parts, *self.graphs.lowered.outputs.values()}
        return {name: value for name, value in self.values.items() if name in held}

    def is_integer(self, name: str) -> bool:
        """Tell whether a value is computed in integers."""
        if name not in self._integer:
            node = self.graphs.compiled.by_name.get(name)
            if node is None or not self.real.isdisjoint(self.graphs.parts.get(name, ())):
                self._integer[name] = False
            else:
                self._integer[name] = self._rounds(name) or all(map(self.is_integer, node.inputs))
        return self._integer[name]

    def _rounds(self, name: str) -> bool:
        """Tell whether a value is rounded into its format, from integers or from real numbers.

        An activation is rounded if an integer layer reads it; a layer in real numbers reads the
        value before it.
        """
        node = self.graphs.lowered.by_name.get(name)
        if node is None or not isinstance(node.op, Store):
            return False
        return name in self.graphs.parts or node.op.role == "activation"

    def _codes(self, name: str) -> IntArray:
        graphs = self.graphs
        node = graphs.compiled.by_name[name]
        if isinstance(node.op, Requant) and not all(map(self.is_integer, node.inputs)):
            real = self.value(graphs.lowered.by_name[name].inputs[0]).real
            return round_half_up(np.clip(real / node.op.scale, node.op.lo, node.op.hi))
        return graphs.kernel(graphs.compiled, name)(*(self.value(i).array for i in node.inputs))

    def _computed(self, name: str) -> FloatArray:
        node = self.graphs.lowered.by_name[name]
        if isinstance(node.op, Mvm):
            return self._layer(node, node.op)
        found: FloatArray = node.op.run(*(self.value(i).real for i in node.inputs))
        return found

    def _layer(self, node: Node, trained: Mvm) -> FloatArray:
        """A layer with something real: its weights, its converters, or its inputs.

        Integer weights count as the real values that they stand for. The error of the converters,
        which see rounded inputs, is added.
        """
        graphs, (stored,) = self.graphs, node.inputs
        name = graphs.lowered.layer(node)
        unrounded = f"{name}.activation_bits" in self.real
        x = self.value(graphs.lowered.by_name[stored].inputs[0] if unrounded else stored).real
        op = graphs.tiled.by_name[node.name].op
        assert isinstance(op, CrossbarMvm)
        weight, bias = trained.weight, trained.bias
        if f"{name}.weight_bits" not in self.real:
            weight = op.weight * op.scale / np.reshape(graphs.tiled.types[stored].unit, (-1, 1))
            bias = op.bias * op.scale
        total: FloatArray = x @ weight + bias
        if graphs.converts(node) and f"{name}.adc_bits" not in self.real:
            codes = self._codes(stored)
            converted, exact = (
                graphs.kernel(graph, node.name)(codes) for graph in (graphs.compiled, graphs.tiled)
            )
            total += (converted - exact) * op.scale
        return total
