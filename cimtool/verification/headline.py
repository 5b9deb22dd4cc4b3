"""Findings of drift: the rows of all stages and dies, and the headline with what caused it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from cimtool.base.intervals import Change, Interval
from cimtool.base.modality_names import Modalities
from cimtool.ir.heads import Head
from cimtool.loading.embeddings import Embeddings
from cimtool.reference.measures import RELIABILITY
from cimtool.reference.metrics import RAW
from cimtool.reference.queries import relative
from cimtool.report.formats import percent_range
from cimtool.verification.drift import (
    DISTANCE,
    BaselineLoss,
    DriftTable,
    KeptRun,
    StageRow,
    kept_run,
)
from cimtool.verification.margins import (
    Margin,
    PairSample,
    RecallCurve,
    margins,
    pair_sample,
    recall_curves,
)
from cimtool.verification.noisy import Noisy
from cimtool.verification.notes import NOT_CHECKED, baseline_sentences, offset_of, points_text
from cimtool.verification.references import EXACT, Scatter
from cimtool.verification.stages import StageRuns
from cimtool.verification.worth import Worth


@dataclass(frozen=True)
class Headline:
    """The compiled model's drift, the step that adds most of it, and the equivalent Monte Carlo.

    Figures have the names that rows have. `centred_rmse`, `logit_rmse`, `bias` and `top1_agreement`
    are against the reference; `float_*` against the float score, and `float_relative_centred_rmse`
    is of that one's spread, None if it has none. `equal_samples_centred` and `equal_samples` are
    the K at which Monte Carlo would err as much by the centred RMSE and by the RMSE, None if it
    is not known or nothing is off. `cause` is the step of the largest centred RMSE, None if no
    step changes any score; it is the float score where the surrogate costs most or is broken,
    without `cause_before` where it cannot be compared. `class_loss` is that of mAP, where classes
    are known.
    """

    centred_rmse: float
    logit_rmse: float
    bias: float
    top1_agreement: float
    float_centred_rmse: float
    float_relative_centred_rmse: float | None
    float_rmse: float
    float_top1: float
    equal_samples_centred: float | None
    equal_samples: float | None
    surrogate_centred_rmse: float | None
    surrogate_broken: bool
    cause: str | None
    cause_before: str | None
    cause_centred_rmse: float
    r1_loss: Change | None
    class_loss: Change | None
    sentences: tuple[str, ...]

    @property
    def lead(self) -> tuple[str, Change | None]:
        """The metric of retrieval that is told first, and its loss."""
        return ("R@1", self.r1_loss) if self.class_loss is None else ("mAP", self.class_loss)


def make_headline(
    rows: Sequence[StageRow],
    reference: str,
    scatter: Scatter | None,
    score: str,
    faults: Sequence[str],
    surrogate: str,
    by_class: bool = False,
) -> Headline:
    """Read the table: its last row is the compiled model's, `reference` names its reference's row.

    `surrogate` names the float score's row; `faults` are as in `surrogate_faults`. If the surrogate
    has faults, it is the cause, even if a later step adds more: it has to be fixed first.
    """
    start = next(i for i, row in enumerate(rows) if row.stage == surrogate)
    trained, compiled = rows[start], rows[-1]
    exact = scatter is not None and scatter.is_exact
    before, worst = (
        (reference, trained) if faults else _dearest(rows, start, reference if exact else None)
    )
    step = _step(worst)
    centred, spread = compiled.get("float_centred_rmse") or 0.0, _own_spread(trained)
    found = Headline(
        centred_rmse=compiled.get("centred_rmse") or 0.0,
        logit_rmse=compiled.get("logit_rmse") or 0.0,
        bias=compiled.get("bias") or 0.0,
        top1_agreement=compiled.metrics.get("top1_agreement", 1.0),
        float_centred_rmse=centred,
        float_relative_centred_rmse=relative(centred, spread) if spread > 0 else None,
        float_rmse=compiled.get("float_rmse") or 0.0,
        float_top1=compiled.metrics.get("float_top1", 1.0),
        equal_samples_centred=_equal_samples(compiled, scatter, centred=True),
        equal_samples=_equal_samples(compiled, scatter, centred=False),
        surrogate_centred_rmse=trained.get("centred_rmse"),
        surrogate_broken=bool(faults),
        cause=worst.stage if step or faults else None,
        cause_before=before if step else None,
        cause_centred_rmse=step,
        r1_loss=compiled.losses.get("r1_loss"),
        class_loss=compiled.losses.get("map_loss") if by_class else None,
        sentences=(),
    )
    said = _sentences(found, compiled, trained, scatter, score)
    return replace(found, sentences=tuple(said))


def _step(row: StageRow) -> float:
    return row.get("step_centred_rmse") or 0.0


def _own_spread(trained: StageRow) -> float:
    """Spread of the float score within a query: the smaller of both directions."""
    return min(trained.get("own_spread") or 0.0, trained.get("own_video_spread") or 0.0)


def _dearest(rows: Sequence[StageRow], start: int, reference: str | None) -> tuple[str, StageRow]:
    """The row with the largest step error, and the stage before it.

    With a `reference`, the surrogate counts as a step from it.
    """
    steps = [(before.stage, row) for before, row in pairwise(steps_of(rows[start:]))]
    if reference is not None:
        steps.insert(0, (reference, rows[start]))
    return max(steps, key=lambda step: _step(step[1]))


def steps_of(rows: Sequence[StageRow]) -> tuple[StageRow, ...]:
    """The rows that are stages of the compiler: the first one, and those compared with another."""
    first, *others = rows
    return (first, *(row for row in others if "step_rmse" in row.metrics))


def _equal_samples(compiled: StageRow, scatter: Scatter | None, centred: bool) -> float | None:
    """K at which Monte Carlo's mean square error, which falls as 1/K, is the compiled model's."""
    if scatter is None or compiled.get("logit_rmse") is None:
        return None
    if centred:
        own, name = scatter.centred_error, "centred_rmse"
        error = compiled.get(name if scatter.is_exact else f"float_{name}") or 0.0
    else:
        own = scatter.whole_error
        error = compiled.get("logit_rmse" if scatter.is_exact else "float_rmse") or 0.0
    return scatter.samples * (own / error) ** 2 if error > 0 else None


def with_dies(found: Headline, noisy: Sequence[Noisy], compiled: StageRow, score: str) -> Headline:
    """The headline with the sentences on dies; unchanged if none were drawn.

    If the surrogate is not broken and noise adds more to the median die than any step adds, noise
    becomes the cause.
    """
    if not noisy:
        return found
    said = [sentence for one in noisy for sentence in one.sentences(compiled, score)]
    worst = max((one.median for one in noisy), key=_step)
    error = _step(worst)
    if error > found.cause_centred_rmse and not found.surrogate_broken:
        said.insert(0, f"Noise of the devices adds more than any step: centred RMSE {error:.4g}.")
        found = replace(
            found, cause=worst.stage, cause_before=compiled.stage, cause_centred_rmse=error
        )
    return replace(found, sentences=(*found.sentences, *dict.fromkeys(said)))


def _sentences(
    found: Headline, compiled: StageRow, trained: StageRow, scatter: Scatter | None, score: str
) -> list[str]:
    exact = scatter is not None and scatter.is_exact and "logit_rmse" in compiled.metrics
    centred, rmse, top1 = found.float_centred_rmse, found.float_rmse, found.float_top1
    share = found.float_relative_centred_rmse
    bias = found.bias - (trained.get("bias") or 0.0)  # from the float score, as the rest
    if exact:
        bias = found.bias
        centred, rmse, top1 = found.centred_rmse, found.logit_rmse, found.top1_agreement
        share = compiled.metrics["relative_centred_rmse"]
    spread = _own_spread(trained)
    intervals = compiled.intervals
    ends = [
        "" if name not in intervals else f" {form(intervals[name])}"
        for name, form in (
            ("centred_rmse" if exact else "float_centred_rmse", _ends),
            ("top1_agreement" if exact else "float_top1", _percents),
        )
    ]
    said = [_distance(trained.stage, exact, score, centred, share, top1, ends)]
    told, K = True, 0 if scatter is None else scatter.samples
    if scatter is not None and exact and found.equal_samples_centred is not None:
        than = "closer" if found.equal_samples_centred >= K else "FURTHER"
        said.append(
            f"That is {than} than Monte Carlo at K={K} is ({scatter.centred_error:.4g}, top-1 "
            f"agreement {scatter.top1_agreement:.1%}), which "
            f"{equal_text(found.equal_samples_centred)}."
        )
    elif scatter is not None and not exact:
        error = scatter.centred_error
        # No comfort where the scatter hides the scores; if they do not differ, samples do not help.
        hidden = 0 < spread < error
        told = not (centred <= error and hidden)
        if told:
            samples = found.equal_samples_centred
            said.append(
                f"That is {'within' if centred <= error else 'MORE than'} the scatter of the Monte "
                f"Carlo score itself, which is {error:.4g} at K={K}"
                f"{'' if samples is None else f'; it {equal_text(samples)}'}."
            )
        if hidden:
            said.append(
                f"Monte Carlo at K={K} scatters more ({error:.4g}) than the {trained.stage}'s "
                f"scores differ within a query ({spread:.4g}): use more samples."
            )
    beside = ""
    if scatter is not None and found.equal_samples is not None and told:
        equal = equal_text(found.equal_samples)
        beside = f"; Monte Carlo's is {scatter.whole_error:.4g}, and it {equal}"
    said.append(
        f"Counting each query's mean error too, which changes no rank, the {score} RMSE is "
        f"{rmse:.4g} (bias {bias:+.3g}){beside}."
    )
    offset = offset_of(trained, scatter)
    if offset is not None:
        said.append(
            f"The float {trained.stage} is {offset:+.3g} off on average (bias): an offset changes "
            "no rank."
        )
    losses = {"mAP": found.class_loss, "R@1": found.r1_loss}
    changes = [_change(label, loss) for label, loss in losses.items() if loss is not None]
    return [*said, _cause(found, trained.stage), *changes]


def _distance(
    surrogate: str,
    exact: bool,
    score: str,
    centred: float,
    share: float | None,
    top1: float,
    ends: Sequence[str],
) -> str:
    """The distance of the compiled model from the exact score, or from the float one.

    `ends` are the intervals of the error and of the agreement, as texts.
    """
    of = "exact score" if exact else f"float {surrogate}"
    spread = "whose scores do not differ within a query"
    if share is not None and math.isfinite(share):
        spread = f"{share:.1%} of its spread within a query"
    return (
        f"The compiled model is {centred:.4g}{ends[0]} (centred {score} RMSE) from the {of}, "
        f"{spread}; top-1 agreement {top1:.1%}{ends[1]}."
    )


def _ends(one: Interval) -> str:
    return f"[{one.low:.4g}, {one.high:.4g}]"


def _percents(one: Interval) -> str:
    return percent_range(one.low, one.high)


def _cause(found: Headline, surrogate: str) -> str:
    """The step that adds most."""
    if found.cause is None:
        return "No step changes any score."
    if found.cause != surrogate:
        return (
            f'The step that adds most is "{found.cause}": centred RMSE '
            f'{found.cause_centred_rmse:.4g} against "{found.cause_before}".'
        )
    if found.cause_before is None:
        return (
            "The surrogate is BROKEN, before all that the compiler did, which adds "
            f"{found.float_centred_rmse:.4g}."
        )
    return (
        f"The surrogate {'is BROKEN' if found.surrogate_broken else 'itself costs most'}: the "
        f"float {found.cause} is {found.cause_centred_rmse:.4g} from the {found.cause_before} "
        f"score, and all that the compiler did adds {found.float_centred_rmse:.4g} (centred RMSE)."
    )


def _change(label: str, loss: Change) -> str:
    """The loss of a metric of retrieval, and whether other queries could explain it."""
    if loss.low > 0:
        return f"{label} LOSES more than other queries could explain: {points_text(loss)}."
    if loss.high < 0:
        return f"{label} GAINS more than other queries could explain: {points_text(loss.reversed)}."
    return f"The loss of {label} is within what other queries would change: {points_text(loss)}."


def equal_text(samples: float) -> str:
    """The K at which Monte Carlo has the same error, to two digits, which is its precision."""
    if samples < 1:
        return "has a smaller error even with one sample per side"
    return f"has the same error at about K={float(f'{samples:.2g}'):,.0f}"


@dataclass(frozen=True)
class Reliability:
    """Mean predicted probability of a stage in each bin, and the share of right pairs there."""

    stage: str
    predicted: tuple[float, ...]
    observed: tuple[float, ...]


def reliability_of(table: DriftTable, stages: Iterable[str]) -> Iterator[Reliability]:
    """The reliability of the stages that have one, of all texts."""
    for stage in stages:
        queries = table.queries_of(stage)
        if queries is None or RELIABILITY not in queries.text:
            continue
        bins = queries.text[RELIABILITY]
        known = bins[~np.isnan(bins[:, 0, 0])]
        weight, predicted, observed = known.sum(axis=0)[known.sum(axis=0)[:, 0] > 0].T
        ends = (tuple((one / weight).tolist()) for one in (predicted, observed))
        yield Reliability(stage, *ends)


@dataclass(frozen=True)
class DriftFindings:
    """Drift from the reference; `rows` end with the ONNX files, `noisy` are dies at one time each.

    `score` says what is compared, `logit` or `score` (where the head predicts none); `surrogate` is
    the stage of its float score, the trained program before any pass; `scatter` is
    Monte Carlo's own, None if a and b are not known. With `by_class` classes or judgements say
    what is right, and metrics of classes come first. `modalities` are the names of both
    sides in the data.
    """

    score: str
    surrogate: str
    reference: str
    scatter: Scatter | None
    by_class: bool
    headline: Headline
    worth: Worth = field(repr=False)
    rows: tuple[StageRow, ...] = field(repr=False)
    baselines: tuple[BaselineLoss, ...] = field(repr=False)
    noisy: tuple[Noisy, ...] = field(repr=False)
    reliability: tuple[Reliability, ...] = field(repr=False)
    margins: tuple[Margin, ...] = field(repr=False)
    curves: tuple[RecallCurve, ...] = field(repr=False)
    pairs: PairSample = field(repr=False)
    queries: KeptRun = field(repr=False)
    modalities: Modalities

    @property
    def shown(self) -> tuple[StageRow, ...]:
        """The rows of the drift table: the stages, then the dies if any were drawn."""
        return (*self.rows, *(row for one in self.noisy for row in one.rows))

    @property
    def compiled_rows(self) -> tuple[StageRow, ...]:
        """The rows of the stages, from the float score on."""
        names = [row.stage for row in self.rows]
        return steps_of(self.rows[names.index(self.surrogate) :])

    @property
    def survivors(self) -> tuple[StageRow, ...]:
        """The rows that tell survival: references, raw embeddings, surrogate, compiled, dies."""
        told = (self.reference, RAW, self.surrogate, EXACT)
        start = [row for row in self.rows if row.stage in told and row.metrics]
        compiled = replace(self.final, stage="compiled model")
        return (*start, compiled, *self.shown[len(self.rows) :])

    @property
    def final(self) -> StageRow:
        """The row of the compiled model, as its ONNX files compute it."""
        return self.rows[-1]


@dataclass(frozen=True)
class DriftRows:
    """The rows of stages, the losses against baselines, those of dies, and the verdict."""

    stages: tuple[StageRow, ...]
    baselines: tuple[BaselineLoss, ...]
    worth: Worth
    noisy: tuple[Noisy, ...]


def find_drift(
    head: Head,
    runs: StageRuns,
    measured: DriftRows,
    faults: Sequence[str],
    data: Embeddings,
    seed: int,
) -> DriftFindings:
    """Read the rows of stages; `faults` are those of the surrogate."""
    rows, baselines, noisy = measured.stages, measured.baselines, measured.noisy
    score, surrogate = head.measure, head.surrogate
    reference, truth = runs.table.scores, runs.table.truth
    by_class = truth.by_class
    said = [*baseline_sentences(baselines)]
    said += [NOT_CHECKED] * (head.is_surrogate and runs.scatter is None)
    first = make_headline(rows, runs.reference, runs.scatter, score, faults, surrogate, by_class)
    first = replace(first, sentences=(*said, *first.sentences))
    names, queries = [row.stage for row in rows], runs.table.queries
    shown = dict.fromkeys((names.index(runs.reference), names.index(surrogate), len(rows) - 1))
    told = (runs.reference, DISTANCE, surrogate, names[-1])
    ranked = [(names[i], queries[i]) for i in shown if truth.ranks]
    known = "logit_rmse" in rows[-1].metrics and len(data.video) > 1
    return DriftFindings(
        score=score,
        surrogate=surrogate,
        reference=runs.reference,
        scatter=runs.scatter,
        by_class=by_class,
        headline=with_dies(first, noisy, rows[-1], score),
        worth=measured.worth,
        rows=rows,
        baselines=baselines,
        noisy=noisy,
        reliability=tuple(reliability_of(runs.table, told)),
        margins=margins(reference, runs.scores, truth) if known else (),
        curves=recall_curves(ranked, truth.rivals),
        pairs=pair_sample(reference, runs.scores, truth, seed),
        queries=kept_run(runs.table),
        modalities=data.called,
    )
