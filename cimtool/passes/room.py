"""The memory of a projector's values on all rows, where an item has very many numbers."""

from __future__ import annotations

import os

from cimtool.base.arrays import Array
from cimtool.base.errors import ArgumentError
from cimtool.base.untrusted import MAX_MEMORY, NUMBER, memory_size
from cimtool.ir.program import Graph
from cimtool.ir.types import numbers_of_item

LARGE, WIDER = 1 << 16, 16
"""Values count that have more numbers of an item than this and than so many times its row."""

MOST_BYTES = 3 << 28
"""Bytes that such values may take on all rows, where nothing else is said: passes hold them all."""


def require_room(graph: Graph, rows: Array, file: str) -> None:
    """Raise CimError where the large values of a projector take too much on the rows of a file."""
    sizes = {name: numbers_of_item(graph.types[name].shape) for name in graph.by_name}
    least = max(LARGE, WIDER * graph.extent("x"))
    large = {name: size for name, size in sizes.items() if size > least}
    item = NUMBER * sum(large.values())
    said = os.environ.get(MAX_MEMORY)
    most = MOST_BYTES if said is None else memory_size(said)
    if item * len(rows) > most:
        widest = max(large, key=large.__getitem__)
        node = graph.by_name[widest]
        raise ArgumentError(
            "{}: {:,} numbers an item, and on {:,} rows such values take {:,} bytes of memory; "
            "expected at most {:,}: {:,} rows, or a larger {max_memory}",
            f"{file}: {graph.layer(node)} ({node.op.name})",
            large[widest],
            len(rows),
            item * len(rows),
            most,
            most // item,
        )
