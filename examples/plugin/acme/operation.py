"""Operations: one that is lowered to what hardware has, and one that ACME's arrays compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cimtool.base.arrays import Array
from cimtool.ir.arithmetic import Clip, scalar
from cimtool.ir.backends import C_MODEL, COSTS, GRADIENTS, LOWER, ONNX, QUANTIZE
from cimtool.ir.op import Arithmetic, Level, Op
from cimtool.ir.program import Builder, Node, keep
from cimtool.ir.types import Type, exact_bounds, number_type, real


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


@dataclass(frozen=True, eq=False)
class L1Distance(Arithmetic, name="l1_distance"):
    """Sums of absolute differences of two sets of rows: [n, d] x [m, d] -> [n, m], of one unit."""

    def infer(self, *inputs: Type) -> Type:
        a, b = inputs
        (a_lo, a_hi), (b_lo, b_hi) = ((exact_bounds(x.lo), exact_bounds(x.hi)) for x in inputs)
        reach = np.broadcast_to(np.maximum(a_hi - b_lo, b_hi - a_lo), (int(a.shape[-1]),))
        return number_type((a.shape[0], b.shape[0]), 0, reach.sum(), a.scale)

    def run(self, *inputs: Array) -> Array:
        a, b = inputs
        total: Array = abs(a[:, None] - b).sum(-1)
        return total


QUANTIZE.rule(L1Distance)(keep)  # both sides store mu in one unit, so that integers stay integers


@GRADIENTS.rule(L1Distance)
def _gradients(op: L1Distance, inputs: Sequence[Array], gradient: Array) -> list[Array]:
    """The sign of each difference, for the side that it grows with."""
    a, b = inputs
    signs = gradient[:, :, None] * np.sign(a[:, None] - b)
    return [signs.sum(axis=1), -signs.sum(axis=0)]


@ONNX.rule(L1Distance)
def _onnx_distance(writer: Any, op: L1Distance, types: Any, a: str, b: str) -> str:
    """The same in floating point and on integers: no sum comes near 2^53."""
    rows, columns, last = (writer.constant(np.array([axis])) for axis in (1, 0, -1))
    difference = writer.node(
        "Sub", writer.node("Unsqueeze", a, rows), writer.node("Unsqueeze", b, columns)
    )
    return str(writer.node("ReduceSum", writer.node("Abs", difference), last, keepdims=0))


@C_MODEL.rule(L1Distance)
def _c(writer: Any, op: L1Distance, types: Any, a: Any, b: Any) -> Any:
    """A loop over one pair's dimensions."""
    return writer.total(f"cim_size({a.wide} - {b.wide})", a.count, narrow=False)


@COSTS.rule(L1Distance)
def _costs(op: L1Distance, inputs: Any, out: Type, extents: Mapping[str, int]) -> Any:
    """Subtract, take the size and add, for each dimension of each pair."""
    from cimtool.costs.operations import Operations, elements, width

    differences = elements(out, extents) * int(inputs[0].shape[-1])
    found = Operations.of("additions", 2 * differences, width(out))
    return found + Operations.of("limits", differences, width(out))
