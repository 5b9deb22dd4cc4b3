"""Every stage on the same float inputs: the references, the drift table, the results to compare."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import CimError
from cimtool.base.progress import Say
from cimtool.base.threads import ahead
from cimtool.bundle.simulate import left_by, listed_items
from cimtool.ir.heads import Head, Span
from cimtool.ir.heads.maxsim import tokens_of
from cimtool.ir.program import MODALITIES, Program
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.model import ModelCard
from cimtool.passes.fold import FoldPass
from cimtool.passes.lower import LowerPass
from cimtool.passes.pipeline import Stage, stage_of
from cimtool.reference.metrics import RAW, RAW_INT8, cosines, int8_products, on_grid
from cimtool.reference.truth import Truth
from cimtool.simulation.simulator import Features, Simulator, block_height
from cimtool.verification.drift import DISTANCE, DriftTable, without_cosine
from cimtool.verification.references import (
    EXACT,
    References,
    Scatter,
    TeacherScores,
    gaussians,
    reference_scores,
    trained_features,
    within_float64,
)
from cimtool.verification.saturation import (
    Domain,
    OutsideCounts,
    fitted_domain,
    outside_counts,
    score_and_domains,
)
from cimtool.verification.shared_values import SharingStage, sharing
from cimtool.verification.worth import mean_variance

JITTER = 1e-3
"""The share of the range of each statistic by which the float score is tried."""

JITTER_PAIRS = 10_000
"""Pairs on which it is tried."""


@dataclass(frozen=True)
class FiniteCount:
    """The number of `logits` that a file computes on the data, and of those that are finite."""

    file: str
    logits: int
    finite: int

    @property
    def failures(self) -> tuple[str, ...]:
        """A sentence if some are not."""
        if self.finite == self.logits:
            return ()
        return (f"{self.file}: {self.logits - self.finite} of {self.logits} logits are not finite",)


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """The trained program on data: its features, its scores [n, m] and the references.

    `known` is None if the teacher's a and b are not known, or say nothing of the head's items.
    Drift is measured from `against`, which is None if the head approximates no other score. `ed`
    [n, m] is the statistic of a polynomial.
    """

    simulator: Simulator
    features: dict[str, Features]
    scores: FloatArray
    ed: FloatArray | None
    known: TeacherScores | None
    against: TeacherScores | None
    statistics: Mapping[str, Span]  # ranges of ed and vd
    jitter: float  # of the score, where a statistic is JITTER of its range off
    fitted: tuple[Domain, ...]  # against the ranges that the score was fitted on
    variance: float | None  # mean of a^2 vd; None without a or variances

    @property
    def scatter(self) -> Scatter | None:
        """The scatter of Monte Carlo, if drift is from the sampled score or the exact one."""
        return None if self.against is None else self.against.scatter


@dataclass(frozen=True, eq=False)
class FloatRun(TrainedRun):
    """A trained run, with the `table` up to its row."""

    table: DriftTable


@dataclass(frozen=True, eq=False)
class StageRuns:
    """Results of all stages: the drift rows, and the compiled program's features and scores.

    Texts are answered by `answers`: the scores, or what a shortlist leaves of them.
    `scatter`, `statistics`, `jitter` and `variance` are the trained program's, as in a TrainedRun;
    `domains` begin with the ranges that it was fitted on.
    """

    reference: str
    scatter: Scatter | None
    table: DriftTable
    simulator: Simulator
    features: dict[str, Features]
    scores: FloatArray
    answers: FloatArray
    domains: tuple[Domain, ...]
    statistics: Mapping[str, Span]
    jitter: float
    variance: float | None
    finite: FiniteCount


def run_float(
    program: Program, model: ModelCard, data: Embeddings, references: References, say: Say
) -> FloatRun:
    """Run the trained program, and fill the table with references, baselines and its own row.

    Raises CimError if its scores are not finite.
    """
    run = _run_trained(program, model, data, references, say)
    return FloatRun(**vars(run), table=_table(program, model, data, references, run))


def _run_trained(
    program: Program, model: ModelCard, data: Embeddings, references: References, say: Say
) -> TrainedRun:
    """Run the trained program, and compute the references."""
    trained = Simulator(program)
    features = trained_features(trained, data)
    with within_float64(data):
        scored = _score_with_statistics(trained, features, model.head, data.truth)
    known = reference_scores(references, model, features, data, say)
    against = known if model.head.is_surrogate else None
    jitter = model.head.jitter(scored.some, JITTER)
    variance = None
    if model.head.is_sampled and model.a is not None:
        variance = mean_variance(*gaussians(features), model.a)
    return TrainedRun(
        simulator=trained,
        features=features,
        scores=scored.scores,
        ed=scored.ed,
        known=known,
        against=against,
        statistics=scored.spans,
        jitter=jitter,
        fitted=scored.fitted,
        variance=variance,
    )


def run_stages(
    stages: tuple[Stage, ...],
    model: ModelCard,
    data: Embeddings,
    references: References,
    float_file: Path,
    say: Say,
    shortlist: int | None = None,
) -> StageRuns:
    """Run every stage, the first being the trained program, and fill the drift table.

    With a `shortlist` of so many items, texts of the last stage are answered by what it leaves.
    The trained program's `float_file` is run beside them. The next are computed while a row is
    measured, those that share values one after the other. Raises CimError if a stage's scores
    are not finite, and for a file that is not the program's.
    """
    trained = stages[0].program
    limited = {name: name for name in trained.score.statistics} | dict(model.head.limited)
    counted = dict.fromkeys((LowerPass.name, stages[-1].name), limited)
    calls: list[Callable[[], Any]] = [
        partial(_run_trained, trained, model, data, references, say),
        partial(_score_file, float_file, stage_of(stages, FoldPass).program, data, say),
        *(partial(run_sharing, some, data, counted, say) for some in sharing(stages[1:])),
    ]
    computed: Iterator[Any] = ahead(calls)
    run: TrainedRun = next(computed)
    name = model.head.surrogate if run.against is None else references.name
    scatter, statistics, jitter, found = run.scatter, run.statistics, run.jitter, run.fitted
    variance = run.variance
    table = _table(trained, model, data, references, run)
    del run
    logits: Array = next(computed)
    table.add_beside(float_file.name, logits)
    finite = FiniteCount(float_file.name, logits.size, int(np.isfinite(logits).sum()))
    del logits
    results = chain.from_iterable(computed)
    for stage in stages[1:]:
        last: StageResult = next(results)
        table.add(stage.name, last.scores, *real_means(last.simulator.program, last.features))
        found += last.domains
    answers = last.scores
    if shortlist is not None:
        scores = on_grid(last.scores)
        listed = listed_items(last.simulator, last.features["text"], scores.shape[1], shortlist)
        answers = left_by(listed, scores)
        table.answer_by(answers)
    return StageRuns(
        reference=name,
        scatter=scatter,
        table=table,
        simulator=last.simulator,
        features=last.features,
        scores=last.scores,
        answers=answers,
        domains=found,
        statistics=statistics,
        jitter=jitter,
        variance=variance,
        finite=finite,
    )


def _score_file(float_file: Path, folded: Program, data: Embeddings, say: Say) -> Array:
    """`logit` [n, m] of `float.onnx`, which must be the folded program's."""
    from cimtool.emit.own_files import require_own_float_file
    from cimtool.emit.runtime import FLOAT_PAIRS, Session  # not for those who read features alone

    require_own_float_file(float_file, folded)
    most = min(block_height(graph, FLOAT_PAIRS) for graph in (folded.text, folded.video))
    if any(node.op.holds_dimensions for node in folded.score.nodes):
        most = min(most, math.isqrt(FLOAT_PAIRS // folded.text.extent(folded.text.outputs["mu"])))
    most = min(most, math.isqrt(FLOAT_PAIRS // folded.score.numbers_of_pair))
    say(f"{float_file.name}: {len(data.text)} x {len(data.video)} pairs")
    return Session(float_file).score_rows(data.text, data.video, most)


@dataclass(frozen=True, eq=False)
class StageResult:
    """A stage made ready, its features, its scores [n, m] and the domains that were counted."""

    simulator: Simulator
    features: dict[str, Features]
    scores: FloatArray
    domains: tuple[Domain, ...]


def run_sharing(
    stages: Sequence[SharingStage],
    data: Embeddings,
    counted: Mapping[str, Mapping[str, str]],
    say: Say,
) -> Iterator[StageResult]:
    """Results of stages that share values; `counted` are values whose domains count, by stage."""
    found: list[StageResult] = []
    inner: dict[str, dict[str, Array]] = {}
    for one, after in zip(stages, (*stages[1:], None), strict=True):
        say(f"{one.name}: encoding and scoring")
        simulator = Simulator(one.program)
        ranges: tuple[Domain, ...] = ()
        if one.same:
            features, scores = found[-1].features, found[-1].scores
        else:
            features, inner = _encoded(simulator, data, one, inner, after)
        if one.name in counted:
            limited = counted[one.name]
            scores, ranges = score_and_domains(simulator, one.name, features, data.truth, limited)
        elif not one.same:
            scores = simulator.score(features["text"], features["video"])
        found.append(StageResult(simulator, features, scores, ranges))
    # Each goes as its row is measured.
    return (found.pop(0) for _ in stages)


def _encoded(
    simulator: Simulator,
    data: Embeddings,
    stage: SharingStage,
    inner: Mapping[str, Mapping[str, Array]],
    after: SharingStage | None,
) -> tuple[dict[str, Features], dict[str, dict[str, Array]]]:
    """Features of both modalities, and the values that the stage `after` takes over.

    `inner` are those that this stage takes over.
    """
    features: dict[str, Features] = {}
    kept: dict[str, dict[str, Array]] = {}
    for modality in MODALITIES:
        given = {
            name: None if value is None else inner[modality][value]
            for name, value in stage.taken[modality].items()
        }
        wanted = {} if after is None else after.taken[modality]
        more = [value for value in wanted.values() if value is not None]
        runner = simulator.runner(modality)
        outputs = runner.graph.outputs
        names = list(dict.fromkeys([*outputs.values(), *more]))
        values = runner.rows_of(getattr(data, modality), names, given)
        features[modality] = {name: values[value] for name, value in outputs.items()}
        kept[modality] = {value: values[value] for value in more}
    return features, kept


def _table(
    program: Program,
    model: ModelCard,
    data: Embeddings,
    references: References,
    run: TrainedRun,
) -> DriftTable:
    """The table with the rows of the references that the head has, of baselines and of the score.

    Beside a score of its own stand those of the matching probability. Raises CimError if a score
    is not finite.
    """
    head, against, means = model.head, run.against, real_means(program, run.features)
    if against is None:
        table = DriftTable(data.truth, None, head.predicts_logit)
        names = (references.name, references.monte_carlo_name) if head.is_surrogate else ()
        for name in dict.fromkeys(names):
            table.add_reference(name, *means)
    else:
        scores = against.monte_carlo if against.exact is None else against.exact
        table = DriftTable(data.truth, scores, head.predicts_logit)
        table.add_reference(references.name, *means)
        if against.exact is not None:
            name = references.monte_carlo_name
            table.add_monte_carlo(name, against.monte_carlo, against.drawn)
    if without_cosine(data) is None:
        table.add_baseline(RAW, cosines(data.text, data.video))
        table.add_baseline(RAW_INT8, int8_products(data.text, data.video))
    if run.ed is not None:
        if model.a is None or model.b is None:
            table.add_baseline(DISTANCE, -run.ed)
        else:
            table.add_baseline(DISTANCE, model.b - model.a * run.ed, of_logit=True)
    table.add(head.surrogate, run.scores, *means)
    if run.known is not None and against is None:
        beside = {EXACT: run.known.exact, references.monte_carlo_name: run.known.monte_carlo}
        for name, probabilities in beside.items():
            if probabilities is not None:
                table.add_beside(name, probabilities)
    return table


def encode(simulator: Simulator, data: Embeddings) -> dict[str, Features]:
    """Features of both modalities' embeddings."""
    return {m: simulator.encode(m, getattr(data, m)) for m in MODALITIES}


@dataclass(frozen=True, eq=False)
class ScoredStatistics:
    """Scores [n, m] of the trained program, and what was seen of its statistics.

    `spans` are their ranges, `some` their values of some pairs, `ed` [n, m] that of a polynomial.
    """

    scores: FloatArray
    spans: dict[str, Span]
    some: dict[str, FloatArray]
    ed: FloatArray | None
    fitted: tuple[Domain, ...]


def _score_with_statistics(
    trained: Simulator, features: dict[str, Features], head: Head, truth: Truth
) -> ScoredStatistics:
    """Score all pairs, a block of rows at a time."""
    logit, statistics = trained.program.score.outputs["logit"], trained.program.score.statistics
    distances: list[FloatArray] = []
    parts: list[FloatArray] = []
    ends: dict[str, list[Span]] = {name: [] for name in statistics}
    some: dict[str, list[FloatArray]] = {name: [] for name in statistics}
    ranges = head.fitted_ranges or {}
    if other := [name for name in ranges if name not in statistics]:
        raise CimError(
            f"stages: the trained score does not read {' and '.join(other)}, which the polynomial "
            "of the bundle was fitted on; compile again"
        )
    beyond: dict[str, list[OutsideCounts]] = {name: [] for name in ranges}
    right = 0
    wanted = (logit, *statistics)
    for rows, values in trained.iter_score(features["text"], features["video"], wanted):
        parts.append(values[logit])
        if head.takes_polynomial and "ed" in values:
            distances.append(values["ed"])
        apart = -(-values[logit].size // JITTER_PAIRS)
        for name in statistics:
            ends[name].append((float(values[name].min()), float(values[name].max())))
            some[name].append(values[name].reshape(-1)[::apart])
        if ranges:
            pairs = truth.right_pairs(rows)
            right += int(np.count_nonzero(pairs))
            for name, range_ in ranges.items():
                counts = outside_counts(values[name], range_, pairs, rows.start)
                beyond[name].append(counts)
    scores = np.concatenate(parts)
    return ScoredStatistics(
        scores,
        {name: (min(lo for lo, _ in v), max(hi for _, hi in v)) for name, v in ends.items()},
        {name: np.concatenate(v) for name, v in some.items()},
        np.concatenate(distances) if distances else None,
        tuple(
            fitted_domain(head.surrogate, name, range_, beyond[name], scores.size, right)
            for name, range_ in ranges.items()
        ),
    )


def real_means(program: Program, features: Mapping[str, Features]) -> tuple[Array, Array]:
    """`mu` of both modalities as real numbers, [n, d] and [m, d]; of tokens, the mean of each item.

    A score of tokens adds maxima over them.
    """
    means = []
    for graph, count in zip((program.text, program.video), tokens_of(program.score), strict=True):
        unit = graph.types[graph.outputs["mu"]].scale
        mu = features[graph.name]["mu"]
        if count > 1:
            mu = mu.reshape(len(mu), count, -1).mean(axis=1)
        means.append(mu if unit is None else mu * unit)
    return means[0], means[1]
