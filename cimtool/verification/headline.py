"""Findings of drift: the rows of all stages and dies, and the headline with what caused it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from cimtool.ir.heads import Head
from cimtool.loading.embeddings import Embeddings
from cimtool.reference.bootstrap import Change
from cimtool.reference.metrics import RAW
from cimtool.reference.modality_names import Modalities
from cimtool.report.page import render_text
from cimtool.verification.baselines import BaselineLoss
from cimtool.verification.drift import StageRow
from cimtool.verification.faults import NOT_CHECKED, baseline_sentences, points_text
from cimtool.verification.kept import KeptRun, kept_run
from cimtool.verification.margins import (
    Margin,
    PairSample,
    RecallCurve,
    margins,
    pair_sample,
    recall_curves,
)
from cimtool.verification.noisy import Noisy
from cimtool.verification.references import Scatter
from cimtool.verification.stages import StageRuns


@dataclass(frozen=True)
class Headline:
    """The compiled model's drift, the step that adds most of it, and the equivalent Monte Carlo.

    `compiled_rmse`, `relative_rmse` (of the float score's mean spread within a query, None where it
    has none) and `top1_agreement` are against the float score. `equal_samples` is the K at which
    Monte Carlo would err as much, None where it is not known or nothing is off. `cause` is the
    dearest step, None where no step changes any score; it is the float score where the surrogate
    costs most or is broken, without `cause_before` where it cannot be compared. `class_loss` is
    that of mAP, where classes are known.
    """

    compiled_rmse: float
    relative_rmse: float | None
    top1_agreement: float
    equal_samples: float | None
    surrogate_rmse: float | None
    surrogate_broken: bool
    cause: str | None
    cause_before: str | None
    cause_rmse: float
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
    first: Sequence[str] = (),
) -> Headline:
    """Read the table: its last row is the compiled model's, `reference` names its reference's row.

    `surrogate` names that of the float score; `faults` are as in `surrogate_faults`. One that has
    any is the cause whatever the later rows are: it is what has to change first. The sentences
    `first` are told before all others.
    """
    start = next(i for i, row in enumerate(rows) if row.stage == surrogate)
    trained, compiled = rows[start], rows[-1]
    exact = scatter is not None and scatter.rmse is not None
    before, worst = (
        (reference, trained) if faults else _dearest(rows, start, reference if exact else None)
    )
    step = worst.get("step_rmse") or 0.0
    spread, rmse = trained.get("own_spread") or 0.0, compiled.get("float_rmse") or 0.0
    found = Headline(
        compiled_rmse=rmse,
        relative_rmse=rmse / spread if spread > 0 else None,
        top1_agreement=compiled.metrics.get("float_top1", 1.0),
        equal_samples=_equal_samples(compiled, scatter),
        surrogate_rmse=trained.get("logit_rmse"),
        surrogate_broken=bool(faults),
        cause=worst.stage if step or faults else None,
        cause_before=before if step else None,
        cause_rmse=step,
        r1_loss=compiled.losses.get("r1_loss"),
        class_loss=compiled.losses.get("map_loss") if by_class else None,
        sentences=(),
    )
    said = _sentences(found, compiled, trained, scatter, score)
    return replace(found, sentences=(*first, *said))


def _dearest(rows: Sequence[StageRow], start: int, reference: str | None) -> tuple[str, StageRow]:
    """The step that adds most and what stands before it; the surrogate's own from a `reference`."""
    steps = [(before.stage, row) for before, row in pairwise(steps_of(rows[start:]))]
    if reference is not None:
        steps.insert(0, (reference, rows[start]))
    return max(steps, key=lambda step: step[1].get("step_rmse") or 0.0)


def steps_of(rows: Sequence[StageRow]) -> tuple[StageRow, ...]:
    """The rows that are stages of the compiler: the first one, and those compared with another."""
    first, *others = rows
    return (first, *(row for row in others if "step_rmse" in row.metrics))


def _equal_samples(compiled: StageRow, scatter: Scatter | None) -> float | None:
    """K at which Monte Carlo's mean square error, which falls as 1/K, is the compiled model's."""
    if scatter is None or compiled.get("logit_rmse") is None:
        return None
    own = scatter.standard_error if scatter.rmse is None else scatter.rmse
    error = compiled.get("float_rmse" if scatter.rmse is None else "logit_rmse") or 0.0
    return scatter.samples * (own / error) ** 2 if error > 0 else None


def with_dies(found: Headline, noisy: Sequence[Noisy], compiled: StageRow, score: str) -> Headline:
    """The headline with what dies keep of the compiled model, where any were drawn.

    Their noise is the cause where it adds more to the median die than any step does, and the
    surrogate is not broken.
    """
    if not noisy:
        return found
    said = [sentence for one in noisy for sentence in one.sentences(compiled, score)]
    worst = max((one.median for one in noisy), key=lambda row: row.get("step_rmse") or 0.0)
    rmse = worst.get("step_rmse") or 0.0
    if rmse > found.cause_rmse and not found.surrogate_broken:
        said.insert(0, f"Noise of the devices adds more than any step: RMSE {rmse:.4g}.")
        found = replace(found, cause=worst.stage, cause_before=compiled.stage, cause_rmse=rmse)
    return replace(found, sentences=(*found.sentences, *dict.fromkeys(said)))


def _sentences(
    found: Headline, compiled: StageRow, trained: StageRow, scatter: Scatter | None, score: str
) -> list[str]:
    rmse, share, top1 = found.compiled_rmse, found.relative_rmse, found.top1_agreement
    exact = scatter is not None and scatter.rmse is not None and "logit_rmse" in compiled.metrics
    if exact:
        names = ("logit_rmse", "relative_rmse", "top1_agreement")
        rmse, share, top1 = (compiled.metrics[name] for name in names)
    text = render_text(
        "cimtool.verification",
        "headline.txt",
        found=found,
        trained=trained,
        scatter=scatter,
        score=score,
        exact=exact,
        rmse=rmse,
        share=share if share is not None and math.isfinite(share) else None,
        top1=top1,
        spread=trained.get("own_spread") or 0.0,
        losses={"mAP": found.class_loss, "R@1": found.r1_loss},
        equal_text=equal_text,
        points_text=points_text,
        Change=Change,
    )
    return text.splitlines()


def equal_text(samples: float) -> str:
    """The K at which Monte Carlo has the same error, to two digits, which is its precision."""
    if samples < 1:
        return "would err less with a single sample a side"
    return f"would err as much at about K={float(f'{samples:.2g}'):,.0f}"


@dataclass(frozen=True)
class DriftFindings:
    """Drift from the reference; `rows` end with the ONNX files, `noisy` are dies at one time each.

    `score` says what is compared, `logit` or `score` (where the head predicts none); `surrogate` is
    the stage of its float score, the trained program before any pass; `scatter` is
    Monte Carlo's own, None where a and b are not known. With `by_class` classes or judgements say
    what is right, and metrics of classes come first. `modalities` are the names of both
    sides in the data.
    """

    score: str
    surrogate: str
    reference: str
    scatter: Scatter | None
    by_class: bool
    headline: Headline
    rows: tuple[StageRow, ...] = field(repr=False)
    baselines: tuple[BaselineLoss, ...] = field(repr=False)
    noisy: tuple[Noisy, ...] = field(repr=False)
    margins: tuple[Margin, ...] = field(repr=False)
    curves: tuple[RecallCurve, ...] = field(repr=False)
    pairs: PairSample = field(repr=False)
    queries: KeptRun = field(repr=False)
    modalities: Modalities

    @property
    def shown(self) -> tuple[StageRow, ...]:
        """The rows of the drift table: the stages, then what dies keep where any were drawn."""
        return (*self.rows, *(row for one in self.noisy for row in one.rows))

    @property
    def compiled_rows(self) -> tuple[StageRow, ...]:
        """The rows of the stages, from the float score on."""
        names = [row.stage for row in self.rows]
        return steps_of(self.rows[names.index(self.surrogate) :])

    @property
    def survivors(self) -> tuple[StageRow, ...]:
        """The rows that tell survival: reference, raw embeddings, surrogate, compiled, dies."""
        told = (self.reference, RAW, self.surrogate)
        start = [row for row in self.rows if row.stage in told]
        compiled = replace(self.final, stage="compiled model")
        return (*start, compiled, *self.shown[len(self.rows) :])

    @property
    def final(self) -> StageRow:
        """The row of the compiled model, as its ONNX files compute it."""
        return self.rows[-1]


def find_drift(
    head: Head,
    runs: StageRuns,
    rows: tuple[StageRow, ...],
    faults: Sequence[str],
    baselines: tuple[BaselineLoss, ...],
    noisy: tuple[Noisy, ...],
    data: Embeddings,
    seed: int,
) -> DriftFindings:
    """Read the `rows` of stages; `faults` are those of the surrogate."""
    score, surrogate = head.measure, head.surrogate
    reference, truth = runs.table.scores, runs.table.truth
    by_class = truth.by_class
    said = [*baseline_sentences(baselines)]
    said += [NOT_CHECKED] * (head.is_sampled and runs.scatter is None)
    first = make_headline(
        rows, runs.reference, runs.scatter, score, faults, surrogate, by_class, said
    )
    names, queries = [row.stage for row in rows], runs.table.queries
    shown = dict.fromkeys((names.index(runs.reference), names.index(surrogate), len(rows) - 1))
    ranked = [(names[i], queries[i]) for i in shown if truth.ranks]
    known = "logit_rmse" in rows[-1].metrics and len(data.video) > 1
    return DriftFindings(
        score=score,
        surrogate=surrogate,
        reference=runs.reference,
        scatter=runs.scatter,
        by_class=by_class,
        headline=with_dies(first, noisy, rows[-1], score),
        rows=rows,
        baselines=baselines,
        noisy=noisy,
        margins=margins(reference, runs.scores, truth) if known else (),
        curves=recall_curves(ranked, truth.rivals),
        pairs=pair_sample(reference, runs.scores, truth, seed),
        queries=kept_run(runs.table),
        modalities=data.called,
    )
