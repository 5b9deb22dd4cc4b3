"""Products of a score in the memory with fewer bits: what an item stores, and what drives it.

With v of an item and q of a query, both integers, and codes of fewer bits

    r = clip(round(v / 2^k)),  p = clip(round(q / 2^j)),  q.v ~ 2^(j+k) p.r + c

where c, a constant of each item, takes off the mean error over calibration queries. A product that
is left out is c alone: its mean over these queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from cimtool.base.arrays import Array, IntArray
from cimtool.ir.format import integer_limits, ratio
from cimtool.ir.integer import Requant
from cimtool.ir.program import Builder, Graph, as_inputs
from cimtool.simulation.simulator import Runner


@dataclass(frozen=True, eq=False)
class ProductExamples:
    """Calibration rows that products of few bits are fitted on: integer features of both sides."""

    text: Mapping[str, Array]
    video: Mapping[str, Array]

    @property
    def queries(self) -> int:
        """Rows of queries."""
        return len(next(iter(self.text.values())))

    def values(self, graph: Graph) -> IntArray:
        """The one output [rows, K] of a graph of a query's values, or of an item's."""
        inputs = as_inputs("text", self.text) | as_inputs("video", self.video)
        (found,) = Runner(graph.pruned()).run(inputs).values()
        return found


@dataclass(frozen=True)
class Steps:
    """Codes of integers in steps of 2^`shift`, clipped to `lo` and `hi`."""

    shift: int
    lo: int
    hi: int

    @classmethod
    def of(cls, examples: IntArray, bits: int, signed: bool) -> Steps:
        """The steps whose codes of `bits` bits have the least mean square error on the examples."""
        lo, hi = integer_limits(bits, signed)
        most = int(np.abs(examples).max(initial=0)).bit_length()
        return min(
            (cls(shift, lo, hi) for shift in range(most + 1)), key=lambda s: s.loss(examples)
        )

    def loss(self, examples: IntArray) -> float:
        """The mean square error of the codes of integers."""
        lost = (self.codes(examples) << self.shift) - examples
        return float(np.square(lost, dtype=np.float64).mean())

    def codes(self, values: IntArray) -> IntArray:
        """The codes of integers: of two that are equally near the larger."""
        found: IntArray = np.clip((values + (1 << self.shift >> 1)) >> self.shift, self.lo, self.hi)
        return found

    def requant(self, builder: Builder, name: str, value: str) -> str:
        """Add the codes of a value to a graph."""
        known = builder.types[value]
        step = ratio(Fraction(1, 1 << self.shift), int(known.magnitude))
        factor, unit = np.asarray(step.multiplier), np.asarray(known.unit * 2**self.shift)
        op = Requant(factor, np.asarray(step.shift), self.lo, self.hi, unit)
        return builder.add(name, op, value)
