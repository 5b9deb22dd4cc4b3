"""Saturation: values outside the ranges that calibration fixed, which become equal there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray
from cimtool.ir.arithmetic import Store
from cimtool.ir.format import requant
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.program import MODALITIES, Program
from cimtool.ir.types import INT_LIMIT
from cimtool.loading.embeddings import Embeddings
from cimtool.passes.lower import domain_limits
from cimtool.reference.truth import Truth
from cimtool.simulation.simulator import Features, Runner, Simulator

STORED_ROWS = 256
"""Rows of each modality on which stored values are counted."""


@dataclass(frozen=True)
class Domain:
    """The range of the pairs' ed or vd, against the domain of the compiled score.

    `stage` is `lowered`, whose features are real numbers, or the last one, whose features carry all
    errors of the hardware; or the float score's, whose domain is the range that it was `fitted` on,
    beyond which nothing saturates. `outside` is the share of all pairs beyond the domain,
    `right_outside` the number of right pairs, of `right` that there are.
    """

    stage: str
    statistic: str
    lo: float
    hi: float
    seen_lo: float
    seen_hi: float
    outside: float
    right_outside: int
    right: int
    fitted: bool = False

    def warning(self) -> str | None:
        """A sentence if a right pair is outside: there it saturates, or nothing was fitted."""
        if not self.right_outside:
            return None
        pairs = f"{self.stage}: {self.right_outside} of {self.right} right pairs have"
        beyond = f"{self.statistic} outside [{self.lo:.6g}, {self.hi:.6g}]"
        if self.fitted:
            return f"{pairs} {beyond}, the range it was fitted on, and are extrapolated"
        return f"{pairs} {beyond} and saturate, which makes ties among the best"

    def sentence(self) -> str:
        """The share of pairs outside, and what becomes of them."""
        domain = f"{self.stage}: {self.statistic} in [{self.lo:.4g}, {self.hi:.4g}]"
        if self.fitted:
            domain += ", the range it was fitted on"
        return (
            f"{domain}: {self.outside:.3%} of the pairs are outside and "
            f"{'extrapolated' if self.fitted else 'saturate'}, {self.right_outside} of "
            f"{self.right} right ones"
        )


@dataclass(frozen=True)
class Stored:
    """The share of one stored value's elements that its format clips."""

    value: str
    role: str
    bits: int
    clipped: float


@dataclass(frozen=True)
class Saturation:
    """Pairs outside the domain of the score, and stored values that their format clips.

    `fit_known` is False for a polynomial whose file does not say on what it was fitted.
    """

    domains: tuple[Domain, ...]
    fit_known: bool
    stored: tuple[Stored, ...] = field(repr=False)


def domains(
    simulator: Simulator,
    stage: str,
    features: Mapping[str, Features],
    truth: Truth,
    limited: Mapping[str, str],
) -> tuple[Domain, ...]:
    """Count the pairs whose statistics saturate in a stage after `lower`, on its own features.

    `features` are by modality, and `limited` has values by their names in reports. A statistic
    that the score does not use has no domain.
    """
    score = simulator.program.score
    text, video = (features[modality] for modality in MODALITIES)
    limits = {
        statistic: limit
        for statistic, value in limited.items()
        if (limit := domain_limits(score, value)) is not None
    }
    blocks: dict[str, list[OutsideCounts]] = {name: [] for name in limits}
    names, right = [limit.moved for limit in limits.values()], 0
    for rows, values in simulator.iter_score(text, video, names):
        pairs = truth.right_pairs(rows)
        right += int(np.count_nonzero(pairs))
        for statistic, limit in limits.items():
            ends = (limit.lo, limit.hi)
            blocks[statistic].append(outside_counts(values[limit.moved], ends, pairs))
    found = []
    for statistic, limit in limits.items():
        lowest, highest, outside, right_outside = zip(*blocks[statistic], strict=True)
        lo, hi, seen_lo, seen_hi = (
            (end + limit.centre) * limit.unit
            for end in (limit.lo, limit.hi, min(lowest), max(highest))
        )
        share = sum(outside) / (len(text["mu"]) * len(video["mu"]))
        counted = (share, sum(right_outside), right)
        found.append(Domain(stage, statistic, lo, hi, seen_lo, seen_hi, *counted))
    return tuple(found)


OutsideCounts = tuple[float, float, int, int]
"""Lowest and highest of a block of pairs, how many are beyond a range, how many right ones."""


def outside_counts(
    values: FloatArray, ends: tuple[float, float], right: BoolArray
) -> OutsideCounts:
    """The counts of a block [rows, m] beyond `ends`; `right` are its right pairs."""
    beyond = (values < ends[0]) | (values > ends[1])
    both = int(np.count_nonzero(beyond & right))
    return float(values.min()), float(values.max()), int(beyond.sum()), both


def fitted_domain(
    stage: str,
    statistic: str,
    ends: tuple[float, float],
    blocks: Sequence[OutsideCounts],
    pairs: int,
    right: int,
) -> Domain:
    """The domain of a float score's statistic that was fitted on `ends`, of all `pairs`."""
    lowest, highest, beyond, right_beyond = zip(*blocks, strict=True)
    seen = min(lowest), max(highest)
    share = sum(beyond) / pairs
    return Domain(stage, statistic, *ends, *seen, share, sum(right_beyond), right, fitted=True)


def stored_values(lowered: Program, compiled: Simulator, data: Embeddings) -> tuple[Stored, ...]:
    """Count clipped elements of the projectors' stored values, on the first STORED_ROWS rows.

    `lowered` says which values are stored and for what. A value that its ReLU cuts at 0 is not
    counted.
    """
    found: list[Stored] = []
    for modality, x in zip(MODALITIES, (data.text, data.video), strict=True):
        stores = getattr(lowered, modality).operations(Store)
        found += _of_projector(stores, compiled.runner(modality), x[:STORED_ROWS])
    return tuple(found)


def _of_projector(stores: Mapping[str, Store], runner: Runner, x: Array) -> list[Stored]:
    """The share of each stored value of a projector that is clipped on rows of its input."""
    graph = runner.graph
    formats = {
        node.name: (node.op, node.inputs[0])
        for node in graph.nodes
        if node.name in stores and isinstance(node.op, Quantize | Requant)
    }

    def clipped(values: dict[str, Array]) -> list[tuple[int, int]]:
        return [clipped_count(op, values[source]) for op, source in formats.values()]

    sources = list(dict.fromkeys(source for _, source in formats.values()))
    counts = np.sum(runner.over_blocks(x, sources, clipped), axis=0)
    return [
        Stored(f"{graph.name}.{name}", stores[name].role, graph.types[name].bits, beyond / size)
        for name, (beyond, size) in zip(formats, counts.tolist(), strict=True)
    ]


def clipped_count(op: Quantize | Requant, value: Array) -> tuple[int, int]:
    """The elements of `value` that `op` limits, and all; not those that ReLU cuts at 0."""
    if isinstance(op, Quantize):
        codes = np.rint(value / op.scale)
    else:
        codes = requant(value, op.multiplier, op.shift, np.int64(-INT_LIMIT), np.int64(INT_LIMIT))  # type: ignore[arg-type]
    beyond = codes > op.hi
    if op.lo < 0:
        beyond |= codes < op.lo
    return int(np.count_nonzero(beyond)), beyond.size
