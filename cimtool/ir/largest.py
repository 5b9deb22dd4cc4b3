"""The largest of some numbers, by additions and clips alone."""

from __future__ import annotations

import numpy as np

from cimtool.ir.arithmetic import Arrange, Clip, plus, scalar
from cimtool.ir.program import Builder
from cimtool.ir.types import rows_of_item


def largest(builder: Builder, name: str, x: str) -> str:
    """The largest number [n, 1] of each row: of two halves `a + max(b - a, 0)`, and of these.

    Values have names that begin with `name`.
    """
    rows, _ = rows_of_item(builder.types[x].shape[0])
    value = x
    while (width := builder.extent(value)) > 1:
        half = -(-width // 2)
        places = np.arange(rows * width).reshape(rows, width)
        own = f"{name}{half}"
        a = builder.add(f"{own}.a", Arrange(rows, places[:, :half]), value)
        b = builder.add(f"{own}.b", Arrange(rows, places[:, -half:]), value)
        more = builder.add(f"{own}.more", plus(1, -1), b, a)
        above = builder.add(f"{own}.above", Clip(scalar(0.0), scalar(np.inf)), more)
        value = builder.add(own, plus(1, 1), a, above)
    return value
