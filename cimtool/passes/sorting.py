"""The rule of `lower` for rows in order: a network of comparisons, each by additions and clips."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cimtool.base.arrays import IntArray
from cimtool.ir.arithmetic import Arrange, Clip, plus, scalar
from cimtool.ir.backends import LOWER
from cimtool.ir.program import Node
from cimtool.ir.source import Sorted
from cimtool.ir.types import rows_of_item
from cimtool.passes.curves import widened_range
from cimtool.passes.lowering import Lowering


@LOWER.rule(Sorted)
def descending(builder: Lowering, op: Sorted, node: Node, inputs: tuple[str, ...]) -> str:
    """Numbers beside their partners `p`: the larger is `x + max(p - x, 0)`, the other with min."""
    name, x = node.name, builder.store(inputs[0], "residual", 16)
    width, (rows, _) = builder.extent(x), rows_of_item(builder.types[x].shape[0])
    lo, hi = widened_range(builder.types[x])
    stages = list(merge_exchange(width))
    builder.note(
        f"{builder.name}.{name}: {width} numbers in order by {len(stages)} steps, "
        f"{sum(map(len, stages)):,} comparisons of each of {rows} rows an item in the digital unit"
    )
    x = builder.add(f"{name}.limited", Clip(scalar(lo), scalar(hi)), x)
    for step, pairs in enumerate(stages, start=1):
        own, partners = name if step == len(stages) else f"{name}.step{step}", np.arange(width)
        partners[pairs] = pairs[:, ::-1]
        above, below = np.zeros(width), np.zeros(width)
        above[pairs[:, 0]], below[pairs[:, 1]] = hi - lo, lo - hi
        places = np.arange(rows)[:, None] * width + partners
        partner = builder.add(f"{name}.partner{step}", Arrange(rows, places), x)
        more = builder.add(f"{name}.more{step}", plus(1, -1), partner, x)
        taken = builder.add(f"{name}.taken{step}", Clip(below, above), more)
        moved = builder.add(f"{name}.moved{step}", plus(1, 1), x, taken)
        # It changes nothing, and keeps the proved range from growing step by step.
        x = builder.add(own, Clip(scalar(lo), scalar(hi)), moved)
    return x


def merge_exchange(count: int) -> Iterator[IntArray]:
    """The pairs [k, 2] of places that each step compares: Batcher's sort of `count` numbers.

    Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M; the larger number comes first.
    """
    top = 1 << max((count - 1).bit_length() - 1, 0)
    step = top
    while step and count > 1:
        reach, rest, apart = top, 0, step
        while True:
            first = np.arange(count - apart)
            first = first[first & step == rest]
            if len(first):
                yield np.stack([first, first + apart], axis=1)
            if reach == step:
                break
            apart, reach, rest = reach - step, reach // 2, step
        step //= 2
