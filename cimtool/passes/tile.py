"""Tile: each layer's integer weights go into row groups and slices of crossbars.

The row group (all columns over the rows summed in one conversion) is the unit of numerics; which
macro holds which columns is placement, and changes no number.
"""

from __future__ import annotations

from dataclasses import dataclass

from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.arithmetic import Mvm
from cimtool.ir.op import Level
from cimtool.ir.program import Builder, Node, Program, rewrite_each
from cimtool.passes.base import Job, Pass


@dataclass(frozen=True)
class TilePass(Pass):
    """Put every layer on crossbars, converters still lossless."""

    name = "tiled"
    doing = "tiling onto crossbars"
    requires = Level.INTEGER
    leaves = Level.CROSSBAR

    def apply(self, program: Program, job: Job) -> Program:
        def mvm(builder: Builder, op: Mvm, node: Node, inputs: tuple[str, ...]) -> str:
            assert op.scale is not None
            settings = job.settings.of_layer(f"{builder.name}.{node.name}")
            crossbar = settings.crossbar(settings.input_code(builder.types[inputs[0]]))
            stored = StoredWeights(op.weight, crossbar)
            tiled = CrossbarMvm(stored, op.bias, op.scale, crossbar.no_references)
            return builder.add(node.name, tiled, *inputs)

        return program.with_projectors(lambda graph: rewrite_each(graph, Mvm, mvm))
