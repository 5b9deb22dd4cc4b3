"""Parts of the rules of `lower`: the builder of a lowered graph, and Horner's scheme."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cimtool.base.errors import RowsError
from cimtool.ir.arithmetic import Clip, Mul, Store, plus, scalar
from cimtool.ir.calibration import Range
from cimtool.ir.program import Builder, Graph
from cimtool.ir.quantized import QuantizedStore
from cimtool.ir.types import integer
from cimtool.passes.base import Job

EXP_TOLERANCE = 2.0**-17
"""Error of exp relative to its largest value: half a step of a 16-bit variance."""

ROOT_TOLERANCE = 2.0**-18
"""Relative error of the reciprocal norm, below a step of a 16-bit mean."""

NORMAL_BITS = 21
"""Bits of a normalised variable: [-1, 1] in steps of 2^-20."""


class Lowering(Builder):
    """Builds a lowered graph; `note` takes a line on each stand-in for what hardware lacks.

    `driven` takes the layers that are driven more than once an item, by how often.
    """

    def __init__(self, graph: Graph, job: Job, driven: dict[int, list[str]]):
        super().__init__(graph.name, graph.inputs, graph.calibration)
        self.settings, self.note, self.embeddings = job.settings, job.note, graph.embeddings
        self.driven = driven

    def store(self, value: str, role: str, bits: int) -> str:
        """Mark a value as stored for `role` in this many bits, once for all uses alike."""
        op = Store(role, bits)
        for node in self.by_name.values():
            if node.inputs == (value,) and node.op == op:
                return node.name
        return self.add(f"{value}.stored", op, value)

    def lifted(self, value: str, op: QuantizedStore) -> tuple[str, float]:
        """A value of its own quantizer as the codes of its bits, and what was added to it.

        Nothing where the hardware's code of inputs holds the limits in these bits; else the zero
        point comes back, so that the lowest code is 0.
        """
        known = integer(("n",), op.lo, op.hi, op.scale)
        if self.settings.input_code(known).bits <= op.bits:
            return value, 0.0
        name, added = f"{value}.lifted", -op.lo * op.scale
        if name not in self.by_name:
            self.add(name, plus(1, offset=added), value)
        return name, added


@contextmanager
def of_layer(builder: Lowering, name: str) -> Iterator[None]:
    """Puts the layer before the sentence on rows for which there is no stand-in."""
    try:
        yield
    except RowsError as error:
        raise RowsError(f"{builder.name}.{name}: {error}") from None


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
