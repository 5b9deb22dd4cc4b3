"""The model as it would be compiled with its weights of the moment, and how well that does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cimtool.base.arrays import Array
from cimtool.base.progress import silent
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.program import Graph, Node, Program
from cimtool.passes.pipeline import compile_program
from cimtool.passes.step import Job
from cimtool.simulation.die_program import Conditions, on_die
from cimtool.simulation.simulator import Simulator
from cimtool.training.hardware.noise import layer_errors
from cimtool.training.hardware.plan import GraphPlan, LayerErrors, plan_graph

Weights = Mapping[str, tuple[Array, Array]]
"""Weights [N, K] and biases [N] of a graph's layers, by node."""

TRIAL_DIES = 2
"""Dies on which weights are judged where there is noise."""


@dataclass(frozen=True)
class Compiled:
    """The program as deployed, and the plan of each graph (`text`, `video`, `score`)."""

    program: Program
    plans: Mapping[str, GraphPlan]


@dataclass(frozen=True)
class Compiler:
    """Compiles a trained program with other weights; `conditions` are those of its dies, if any."""

    program: Program
    job: Job
    conditions: Conditions | None

    def compile(self, weights: Mapping[str, Weights]) -> Compiled:
        """Run all passes on the program with these weights, by modality."""
        trained = replace(
            self.program,
            text=with_weights(self.program.text, weights["text"]),
            video=with_weights(self.program.video, weights["video"]),
        )
        stages = {s.name: s for s in compile_program(trained, self.job, silent)}
        last = list(stages.values())[-1].program
        plans = {
            name: plan_graph(stages, name, self.job.settings, self._errors)
            for name in ("text", "video", "score")
        }
        return Compiled(last, plans)

    def _errors(self, layer: str, op: CrossbarMvm) -> LayerErrors:
        ratio = self.job.settings.of_layer(layer).on_off_ratio
        return layer_errors(op, self.conditions, ratio)

    def logits(self, compiled: Compiled, text: Array, video: Array) -> list[Array]:
        """Logits [n, m] of all pairs of rows: of the compiled program, or of each trial die."""
        if self.conditions is None:
            return [Simulator(compiled.program).scores(text, video)]
        dies = (
            on_die(compiled.program, self.job.settings, self.conditions, index)
            for index in range(TRIAL_DIES)
        )
        return [Simulator(die.program).scores(text, video) for die in dies]


def with_weights(graph: Graph, weights: Weights) -> Graph:
    """The graph with the layers' weights and biases replaced."""

    def changed(node: Node) -> Node:
        if not isinstance(node.op, Mvm):
            return node
        weight, bias = (np.asarray(part, np.float64) for part in weights[node.name])
        return replace(node, op=Mvm(np.ascontiguousarray(weight.T), bias))

    return replace(graph, nodes=tuple(changed(node) for node in graph.nodes))


def rmse(found: list[Array], wanted: Array) -> float:
    """Root of the mean square difference of all logits from those wanted."""
    return float(np.sqrt(np.mean([np.square(one - wanted).mean() for one in found])))
