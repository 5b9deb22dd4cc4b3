"""Saturation: what lies outside the ranges that calibration fixed, and so cannot be told apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cimtool.arrays import Array, IntArray
from cimtool.ir.arithmetic import Add, Clip, Store
from cimtool.ir.format import requant
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.program import MODALITIES, Graph, Program
from cimtool.ir.types import INT_LIMIT
from cimtool.load.embeddings import Embeddings
from cimtool.simulate import Features, Simulator

STORED_ROWS = 256
"""Rows of each modality on which stored values are counted."""

STATISTICS = ("ed", "vd")


@dataclass(frozen=True)
class Domain:
    """How far the pairs' ed or vd reach, against the domain of the compiled polynomial.

    `outside` is the share of all pairs beyond it, `right_outside` the number of right pairs of
    `right` there are.
    """

    statistic: str
    lo: float
    hi: float
    seen_lo: float
    seen_hi: float
    outside: float
    right_outside: int
    right: int

    def warning(self) -> str | None:
        """A sentence where a right pair saturates: the best of a query may then tie."""
        if not self.right_outside:
            return None
        return (
            f"{self.right_outside} of {self.right} right pairs have {self.statistic} outside "
            f"[{self.lo:.6g}, {self.hi:.6g}] and saturate, which makes ties among the best; "
            "calibrate on rows that are more like these"
        )


@dataclass(frozen=True)
class Stored:
    """The share of one stored value's elements that its format clips."""

    value: str
    role: str
    bits: int
    clipped: float


def domains(
    lowered: Simulator, text: Features, video: Features, right: IntArray
) -> tuple[Domain, ...]:
    """Count the pairs whose ed or vd saturate, on the lowered program's features; `right` [n]."""
    graph = lowered.program.score
    names = [f"{name}_normal.moved" for name in STATISTICS]
    low, high = np.full(2, np.inf), np.full(2, -np.inf)
    outside, right_outside = np.zeros(2, np.int64), np.zeros(2, np.int64)
    limits = [_clip(graph, f"{name}_normal.limited") for name in STATISTICS]
    for rows, values in lowered.iter_score(text, video, names):
        for k, (name, (lo, hi)) in enumerate(zip(names, limits, strict=True)):
            moved = values[name]
            beyond = (moved < lo) | (moved > hi)
            low[k], high[k] = min(low[k], moved.min()), max(high[k], moved.max())
            outside[k] += np.count_nonzero(beyond)
            right_outside[k] += np.count_nonzero(beyond[np.arange(len(beyond)), right[rows]])
    pairs = len(text["mu"]) * len(video["mu"])
    found = []
    for k, name in enumerate(STATISTICS):
        centre = _centre(graph, names[k])
        found.append(
            Domain(
                name,
                limits[k][0] + centre,
                limits[k][1] + centre,
                float(low[k]) + centre,
                float(high[k]) + centre,
                float(outside[k] / pairs),
                int(right_outside[k]),
                len(right),
            )
        )
    return tuple(found)


def _clip(graph: Graph, name: str) -> tuple[float, float]:
    op = graph.by_name[name].op
    if not isinstance(op, Clip):
        raise TypeError(f"{name} is {op.name}, not the limit of the domain")
    return float(op.lo), float(op.hi)


def _centre(graph: Graph, name: str) -> float:
    op = graph.by_name[name].op
    if not isinstance(op, Add):
        raise TypeError(f"{name} is {op.name}, not the shift to the domain's centre")
    return -float(op.offset)


def stored_values(lowered: Program, compiled: Simulator, data: Embeddings) -> tuple[Stored, ...]:
    """Count clipped elements of the projectors' stored values, on the first STORED_ROWS rows.

    `lowered` says which values are stored and for what. A value that its ReLU cuts at 0 is not
    counted.
    """
    found = []
    for modality, x in zip(MODALITIES, (data.text, data.video), strict=True):
        roles = {
            node.name: node.op.role
            for node in getattr(lowered, modality).nodes
            if isinstance(node.op, Store)
        }
        graph = getattr(compiled.program, modality)
        stored = [node for node in graph.nodes if node.name in roles]
        sources = [node.inputs[0] for node in stored]
        rows = x[:STORED_ROWS]
        inner = [name for name in dict.fromkeys(sources) if name not in graph.inputs]
        values = {"x": rows, **compiled.values(modality, rows, inner)}
        for node in stored:
            if isinstance(node.op, Quantize | Requant):
                share = _clipped(node.op, values[node.inputs[0]])
                bits = graph.types[node.name].bits
                found.append(Stored(graph.layer(node), roles[node.name], bits, share))
    return tuple(found)


def _clipped(op: Quantize | Requant, value: Array) -> float:
    if isinstance(op, Quantize):
        codes = np.rint(value / op.scale)
    else:
        codes = requant(value, op.multiplier, op.shift, np.int64(-INT_LIMIT), np.int64(INT_LIMIT))  # type: ignore[arg-type]
    beyond = codes > op.hi
    if op.lo < 0:
        beyond |= codes < op.lo
    return float(np.mean(beyond))
