"""The search of a content-addressable memory in ONNX: a product of marks for each word."""

from __future__ import annotations

import numpy as np

from cimtool.emit.integers import emit_limits, zero_point
from cimtool.emit.writer import GraphWriter
from cimtool.hardware.cell_distance import CellDistance, rising_planes
from cimtool.ir.types import integer

SIGNED_ZERO = 128
"""The zero point by which a signed byte is stored: products of uint8 alone are exact everywhere."""


def emit_search(writer: GraphWriter, op: CellDistance, query: str) -> str:
    """Append the distances int64 [n, M] of codes int64 [n, d]."""
    width = op.stored.shape[1]
    total = ""
    for one in rising_planes(op, (slice(0, width),) if op.plain_sum else op.words):
        marks = _marks(writer, op, query, one.word)
        steps = writer.constant((one.steps + SIGNED_ZERO).astype(np.uint8), "UINT8")
        zeros = zero_point(writer, 0), zero_point(writer, SIGNED_ZERO)
        partial = writer.cast(writer.node("MatMulInteger", marks, steps, *zeros), "INT64")
        if np.any(one.least):
            partial = writer.node("Add", partial, writer.constant(one.least))
        code = _converted(writer, op, partial, one.word)
        total = writer.node("Add", total, code) if total else code
    return total


def _marks(writer: GraphWriter, op: CellDistance, query: str, word: slice) -> str:
    """Ones where the codes of a word's cells reach each value, uint8 [n, (2^bits - 1) cells]."""
    axis, one = writer.constant(np.array([1])), writer.constant(np.array([1]))
    ends = (writer.constant(np.array([end])) for end in (word.start, word.stop))
    cells = writer.node("Slice", query, *ends, axis, one)
    reached = [
        writer.cast(writer.node("GreaterOrEqual", cells, writer.constant(np.int64(k))), "UINT8")
        for k in range(1, 1 << op.bits)
    ]
    return writer.node("Concat", *reached, axis=1) if len(reached) > 1 else reached[0]


def _converted(writer: GraphWriter, op: CellDistance, partial: str, word: slice) -> str:
    """The codes of a word's distances, which are not negative: a division cuts as floor does."""
    largest = (word.stop - word.start) * int(op.table.max())
    if op.step > 1:
        partial = writer.node("Div", partial, writer.constant(np.int64(op.step)))
    if op.plain_sum or op.top is None:
        return partial
    known = integer(("n", "m"), 0, largest // op.step, op.scale)
    return emit_limits(writer, partial, known, np.asarray(0), np.asarray(op.top))
