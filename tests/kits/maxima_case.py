"""Pairs of items with several rows and columns each, and their sums of maxima by plain loops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.ir.arithmetic import SumOfMaxima
from cimtool.ir.program import Builder, Graph
from cimtool.ir.types import Type, integer


@dataclass(frozen=True, eq=False)
class MaximaCase:
    """An operation, the type of its input, and for some numbers what it gives."""

    op: SumOfMaxima
    known: Type
    numbers: np.ndarray
    wanted: list[list[int]]

    @property
    def graph(self) -> Graph:
        """The operation alone, from `x` to `maxima`."""
        builder = Builder("score", {"x": self.known})
        return builder.graph({"maxima": builder.add("maxima", self.op, "x")})


def maxima_case(seed: int) -> MaximaCase:
    """A case of 1 to 6 rows, columns, texts and videos, with a unit of 0.5."""
    rng = np.random.default_rng(seed)
    rows, columns, texts, videos = (int(n) for n in rng.integers(1, 7, 4))
    lo, hi = np.sort(rng.integers(-(10**6), 10**6, 2)).tolist()
    known = integer(
        (f"{rows}n" if rows > 1 else "n", f"{columns}m" if columns > 1 else "m"), lo, hi, 0.5
    )
    x = rng.integers(lo, hi, (texts * rows, videos * columns), endpoint=True)
    wanted = [
        [
            sum(int(max(x[n * rows + i, m * columns : (m + 1) * columns])) for i in range(rows))
            for m in range(videos)
        ]
        for n in range(texts)
    ]
    return MaximaCase(SumOfMaxima(rows, columns), known, x, wanted)
