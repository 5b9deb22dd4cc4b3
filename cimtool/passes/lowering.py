"""The builder of `LowerPass`, variables in [-1, 1] and Horner's scheme."""

from __future__ import annotations

from cimtool.ir.arithmetic import Clip, Mul, Store, plus, scalar
from cimtool.ir.calibration import Range
from cimtool.ir.program import Builder, Graph
from cimtool.ir.types import Type
from cimtool.passes.step import Job

NORMAL_BITS = 21
"""Bits of a normalised variable: [-1, 1] in steps of 2^-20."""

DOMAIN_MARGIN = 0.25
"""Share of a calibrated range by which ed, vd and row norms may leave it on each side."""


class Lowering(Builder):
    """Builds a lowered graph; `note` takes a line on each stand-in for what hardware lacks."""

    def __init__(self, graph: Graph, job: Job):
        super().__init__(graph.name, graph.inputs, graph.calibration)
        self.settings, self.note = job.settings, job.note

    def store(self, value: str, role: str, bits: int) -> str:
        """Mark a value as stored for `role` in this many bits, once for all uses alike."""
        op = Store(role, bits)
        for node in self.by_name.values():
            if node.inputs == (value,) and node.op == op:
                return node.name
        return self.add(f"{value}.stored", op, value)


def limited(
    builder: Builder, name: str, value: str, centre: float, half: float, whole: bool = False
) -> str:
    """`clip(value - centre, -half, half)`; with `whole` it may be anything that this leaves.

    Without, bounds follow from those of the value.
    """
    lo, hi = scalar(-half), scalar(half)
    moved = builder.add(f"{name}.moved", plus(1, offset=-centre), value)
    seen = Range(lo, hi) if whole else None
    return builder.add(f"{name}.limited", Clip(lo, hi), moved, seen=seen)


def normalised(builder: Builder, name: str, value: str, centre: float, half: float) -> str:
    """`clip((value - centre) / half, -1, 1)`, stored for Horner."""
    inside = limited(builder, name, value, centre, half)
    scaled = builder.add(f"{name}.scaled", plus(1 / half), inside)
    return builder.add(name, Store("normal", NORMAL_BITS), scaled)


def horner(builder: Builder, name: str, u: str, coefficients: tuple[float, ...]) -> str:
    """`sum coefficients[i] u^i`, from the highest power down."""
    *lower_powers, top = coefficients
    value = builder.add(f"{name}.p{len(lower_powers)}", plus(top, offset=lower_powers[-1]), u)
    for i, c in reversed(list(enumerate(lower_powers[:-1]))):
        product = builder.add(f"{name}.p{i}u", Mul(), value, u)
        value = builder.add(f"{name}.p{i}", plus(1, offset=c), product)
    return value


def widened_range(seen: Range | Type) -> tuple[float, float]:
    """A calibrated range with a quarter of its span added on each side."""
    lo, hi = float(seen.lo.min()), float(seen.hi.max())
    margin = DOMAIN_MARGIN * (hi - lo) or 2.0**-10 * max(abs(hi), 1.0)
    return lo - margin, hi + margin
