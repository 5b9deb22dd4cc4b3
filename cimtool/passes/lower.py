"""Lower: everything becomes multiply, add and clip; each stand-in says its worst error.

`Store` marks where a value is kept in memory, which is where `QuantizePass` may round.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cimtool.ir.backends import LOWER
from cimtool.ir.op import Level, Op
from cimtool.ir.program import Graph, Node, Program, rewrite, score_inputs
from cimtool.passes import lower_projector, lower_score  # noqa: F401  (their rules fill the table)
from cimtool.passes.lowering import Lowering
from cimtool.passes.step import Job, Pass


@dataclass(frozen=True)
class LowerPass(Pass):
    """Leave nothing but multiply, add and clip, and fix the domain of the score's statistics."""

    name = "lowered"
    doing = "lowering to multiply-accumulates"
    requires = Level.FLOAT
    requires_calibration = True
    leaves = Level.MAC

    def apply(self, program: Program, job: Job) -> Program:
        def lowered(graph: Graph) -> Graph:
            return rewrite(graph, lambda op: _on_stored_input, Lowering(graph, job))

        text, video = lowered(program.text), lowered(program.video)
        score = replace(program.score, inputs=score_inputs(text, video))
        return Program(text, video, lowered(score))


def _on_stored_input(builder: Lowering, op: Op, node: Node, inputs: tuple[str, ...]) -> str:
    """The rule of a node, for inputs among which the embedding is stored first."""
    bits = builder.settings.input_bits
    stored = (builder.store(i, "input", bits) if i == "x" else i for i in inputs)
    return LOWER.of(op)(builder, op, node, tuple(stored))
