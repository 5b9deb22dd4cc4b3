"""An operation, and its rules: how it is lowered, and its form in ONNX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cimtool.base.arrays import Array
from cimtool.ir.arithmetic import Clip, scalar
from cimtool.ir.backends import LOWER, ONNX
from cimtool.ir.op import Level, Op
from cimtool.ir.program import Builder, Node
from cimtool.ir.types import Type, real


@dataclass(frozen=True, eq=False)
class HardTanh(Op, name="hard_tanh", levels=Level.TRAINED.to(Level.FLOAT)):
    """`min(max(x, -1), 1)`."""

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        return real(x.shape, self.run(x.lo), self.run(x.hi))

    def run(self, *inputs: Array) -> Array:
        return np.clip(inputs[0], -1.0, 1.0)


@LOWER.rule(HardTanh)
def _lower(builder: Builder, op: HardTanh, node: Node, inputs: tuple[str, ...]) -> str:
    """A clip, which hardware has."""
    return builder.add(node.name, Clip(scalar(-1.0), scalar(1.0)), *inputs)


@ONNX.rule(HardTanh)
def _onnx(writer: Any, op: HardTanh, types: Any, x: str) -> str:
    """ONNX's Clip, for the model in floating point."""
    ends = (writer.constant(np.array(end)) for end in (-1.0, 1.0))
    return str(writer.node("Clip", x, *ends))
