"""Saturation: values outside the ranges that calibration fixed, which become equal there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cimtool.base.arrays import Array, BoolArray, FloatArray
from cimtool.ir.arithmetic import Store
from cimtool.ir.format import requant
from cimtool.ir.integer import Quantize, Requant
from cimtool.ir.program import MODALITIES, Graph, Program
from cimtool.ir.types import INT_LIMIT, rows_of_item
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
    `right_outside` the number of right pairs, of `right` that there are. `furthest` has the rows of
    the pair that is furthest beyond, the text's first; None if no pair is.
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
    furthest: tuple[int, int] | None = None

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
        furthest = ""
        if self.furthest is not None:
            furthest = "; rows {:,} and {:,} are furthest outside".format(*self.furthest)
        return (
            f"{domain}: {self.outside:.3%} of the pairs are outside and "
            f"{'extrapolated' if self.fitted else 'saturate'}, {self.right_outside} of "
            f"{self.right} right ones{furthest}"
        )


@dataclass(frozen=True)
class Stored:
    """The share of one stored value's elements that its format clips."""

    value: str
    role: str
    bits: int
    clipped: float


LARGE_LOSS = 0.01
"""Share of a row's squared norm from which on a warning says that it clips.

With one number made larger, rows of two demos that lose 1% to 3% had 4 and 7 times the RMSE of the
median row, those below 0.1% at most 1.2 times (medians).
"""


@dataclass(frozen=True)
class ClippedRows:
    """The `rows` of a modality of which a number of the input clips, of all that there are.

    `worst` is the row that loses the largest share, `lost`, of its squared norm; None if none
    clips. `large` rows lose LARGE_LOSS or more.
    """

    modality: str
    rows: int
    of: int
    worst: int | None
    lost: float
    large: int

    def sentence(self, name: str) -> str:
        """The count and the worst row; `name` is the modality's in the data."""
        said = f"{name}: the input of {self.rows:,} of {self.of:,} rows clips"
        if self.worst is None:
            return said
        return (
            f"{said}, most of row {self.worst:,}, which loses {self.lost:.2%} of its squared norm"
        )

    def warning(self, name: str) -> str | None:
        """A sentence if scores of a row can't be trusted."""
        if not self.large:
            return None
        return (
            f"{self.sentence(name)}; {self.large:,} lose {LARGE_LOSS:.0%} or more, and their "
            "scores are wrong; expected rows like those that calibrated"
        )


@dataclass(frozen=True)
class Saturation:
    """Pairs outside the domain of the score, and stored values and inputs that a format clips.

    `fit_known` is False for a polynomial whose file does not say on what it was fitted.
    """

    domains: tuple[Domain, ...]
    fit_known: bool
    stored: tuple[Stored, ...] = field(repr=False)
    clipped_rows: tuple[ClippedRows, ...]


def score_and_domains(
    simulator: Simulator,
    stage: str,
    features: Mapping[str, Features],
    truth: Truth,
    limited: Mapping[str, str],
) -> tuple[FloatArray, tuple[Domain, ...]]:
    """Score all pairs [n, m] of a stage after `lower`, and count those whose statistics saturate.

    `features` are the stage's own by modality, and `limited` has values by their names in reports.
    A statistic that the score does not use has no domain.
    """
    score = simulator.program.score
    text, video = (features[modality] for modality in MODALITIES)
    limits = {
        statistic: limit
        for statistic, value in limited.items()
        if (limit := domain_limits(score, value)) is not None
    }
    blocks: dict[str, list[OutsideCounts]] = {name: [] for name in limits}
    logit, right = score.outputs["logit"], 0
    names = list(dict.fromkeys([logit, *(limit.moved for limit in limits.values())]))
    scores = np.empty((len(text["mu"]), simulator.columns(video)))
    for rows, values in simulator.iter_score(text, video, names):
        scores[rows] = values[logit]
        pairs = truth.right_pairs(rows)
        right += int(np.count_nonzero(pairs))
        for statistic, limit in limits.items():
            ends = (limit.lo, limit.hi)
            counts = outside_counts(values[limit.moved], ends, pairs, rows.start)
            blocks[statistic].append(counts)
    found = []
    for statistic, limit in limits.items():
        lowest, highest, outside, right_outside, furthest = zip(*blocks[statistic], strict=True)
        lo, hi, seen_lo, seen_hi = (
            (end + limit.centre) * limit.unit
            for end in (limit.lo, limit.hi, min(lowest), max(highest))
        )
        share = sum(outside) / scores.size
        counted = (share, sum(right_outside), right)
        pair = _furthest(furthest)
        found.append(Domain(stage, statistic, lo, hi, seen_lo, seen_hi, *counted, furthest=pair))
    return scores, tuple(found)


FarPair = tuple[float, int, int]
"""By how much a pair is beyond a range, less than 0 inside it, and the rows of both items."""

OutsideCounts = tuple[float, float, int, int, FarPair]
"""Of a block of pairs: lowest, highest, how many are beyond a range, how many right, furthest."""


def outside_counts(
    values: FloatArray, ends: tuple[float, float], right: BoolArray, start: int
) -> OutsideCounts:
    """The counts of a block [rows, m] beyond `ends`; its first text is `start`."""
    by = np.maximum(ends[0] - values, values - ends[1])
    beyond = by > 0
    both = int(np.count_nonzero(beyond & right))
    row, column = divmod(int(by.argmax()), by.shape[1])
    furthest = float(by[row, column]), start + row, column
    return float(values.min()), float(values.max()), int(beyond.sum()), both, furthest


def _furthest(blocks: Iterable[FarPair]) -> tuple[int, int] | None:
    """The rows of the pair furthest beyond, the first of equal ones; None if none is."""
    by, text, video = max(blocks, key=lambda one: one[0])
    return (text, video) if by > 0 else None


def fitted_domain(
    stage: str,
    statistic: str,
    ends: tuple[float, float],
    blocks: Sequence[OutsideCounts],
    pairs: int,
    right: int,
) -> Domain:
    """The domain of a float score's statistic that was fitted on `ends`, of all `pairs`."""
    lowest, highest, beyond, right_beyond, furthest = zip(*blocks, strict=True)
    counted = (sum(beyond) / pairs, sum(right_beyond), right)
    seen = min(lowest), max(highest)
    return Domain(
        stage, statistic, *ends, *seen, *counted, fitted=True, furthest=_furthest(furthest)
    )


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


def clipped_rows(program: Program, data: Embeddings) -> tuple[ClippedRows, ...]:
    """Count the rows of each modality whose input an integer program clips, and find the worst.

    Where branches have quantizers of their own, a row counts by the one in which it loses most.
    """
    found = []
    for modality, x in zip(MODALITIES, (data.text, data.video), strict=True):
        lost = lost_shares(getattr(program, modality), x)
        clips, worst = int(np.count_nonzero(lost)), int(lost.argmax())
        large = int(np.count_nonzero(lost >= LARGE_LOSS))
        place = worst if clips else None
        found.append(ClippedRows(modality, clips, len(x), place, float(lost[worst]), large))
    return tuple(found)


def lost_shares(graph: Graph, x: Array) -> FloatArray:
    """The share [n] of each row's squared norm that lies beyond the limits of a quantizer.

    Of several quantizers it is that of the one that loses most, of a row of tokens that of the
    token that does.
    """
    quantizers = [(n.inputs[0], n.op) for n in graph.nodes if isinstance(n.op, Quantize)]
    sources = list(dict.fromkeys(name for name, _ in quantizers))
    read = replace(graph, outputs={name: name for name in sources}).pruned()
    tokens = {name: rows_of_item(read.types[name].shape[0])[0] for name in sources}

    def lost(values: dict[str, Array]) -> FloatArray:
        shares = [
            _lost(op, values[name]).reshape(-1, tokens[name]).max(axis=1) for name, op in quantizers
        ]
        largest: FloatArray = np.max(shares, axis=0)
        return largest

    return np.concatenate(Runner(read).over_blocks(x, sources, lost))


def _lost(op: Quantize, value: Array) -> FloatArray:
    """The share of the square of each item of `value` [n, ..] that is beyond the limits.

    What rounds to a limit is within it.
    """
    limited = np.clip(value, op.lo * op.scale, op.hi * op.scale)
    rounds = np.abs(value - limited) <= op.scale / 2
    beyond = np.where(rounds, 0.0, value - limited)
    gone, whole = (np.square(one).reshape(len(value), -1).sum(axis=1) for one in (beyond, value))
    shares: FloatArray = np.divide(gone, whole, out=np.zeros(len(value)), where=whole > 0)
    return shares
