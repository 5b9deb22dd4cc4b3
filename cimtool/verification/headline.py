"""Findings of drift: the rows of all stages and dies, and the headline with what caused it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from cimtool.ir.heads import Head
from cimtool.loading.embeddings import Embeddings
from cimtool.reference.bootstrap import Change
from cimtool.verification.baselines import RAW, BaselineLoss
from cimtool.verification.drift import StageRow
from cimtool.verification.faults import NOT_CHECKED, baseline_sentences, points_text
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
) -> Iterator[str]:
    reference, rmse, top1 = f"float {trained.stage}", found.compiled_rmse, found.top1_agreement
    share = found.relative_rmse
    exact = scatter is not None and scatter.rmse is not None and "logit_rmse" in compiled.metrics
    if exact:
        names = ("logit_rmse", "top1_agreement", "relative_rmse")
        reference, (rmse, top1, share) = "exact score", (compiled.metrics[name] for name in names)
    spread = "whose scores do not differ within a query"
    if share is not None and math.isfinite(share):
        spread = f"{share:.1%} of its spread within a query"
    yield (
        f"The compiled model is {rmse:.4g} ({score} RMSE) from the {reference}, {spread}; top-1 "
        f"agreement {top1:.1%}."
    )
    if scatter is not None and not exact:
        yield from _of_scatter(found, scatter, trained)
    elif scatter is not None and found.equal_samples is not None:
        yield (
            f"That is {'closer' if found.equal_samples >= scatter.samples else 'FURTHER'} than "
            f"Monte Carlo at K={scatter.samples} is ({scatter.rmse:.4g}, top-1 agreement "
            f"{scatter.top1_agreement:.1%}), which {equal_text(found.equal_samples)}."
        )
    yield _of_steps(found, trained.stage)
    for label, loss in (("mAP", found.class_loss), ("R@1", found.r1_loss)):
        if loss is not None:
            yield _of_loss(label, loss)


def equal_text(samples: float) -> str:
    """The K at which Monte Carlo has the same error, to two digits, which is its precision."""
    if samples < 1:
        return "would err less with a single sample a side"
    return f"would err as much at about K={float(f'{samples:.2g}'):,.0f}"


def _of_scatter(found: Headline, scatter: Scatter, trained: StageRow) -> Iterator[str]:
    """The drift beside Monte Carlo's scatter; no comfort where that hides the scores.

    Where the scores of a query do not differ at all, more samples would not make them.
    """
    rmse, error = found.compiled_rmse, scatter.standard_error
    spread = trained.get("own_spread") or 0.0
    hidden = 0 < spread < error
    if rmse > error or not hidden:
        place = "within" if rmse <= error else "MORE than"
        equal = "" if found.equal_samples is None else f"; it {equal_text(found.equal_samples)}"
        yield (
            f"That is {place} the scatter of the Monte Carlo score itself, whose standard error is "
            f"{error:.4g} at K={scatter.samples}{equal}."
        )
    if hidden:
        yield (
            f"Monte Carlo at K={scatter.samples} scatters more (standard error {error:.4g}) than "
            f"the {trained.stage}'s scores differ within a query ({spread:.4g}): use more samples."
        )


def _of_steps(found: Headline, surrogate: str) -> str:
    if found.cause is None:
        return "No step changes any score."
    if found.cause == surrogate and found.cause_before is None:
        return (
            f"The surrogate is BROKEN, before all that the compiler did, which adds "
            f"{found.compiled_rmse:.4g}."
        )
    if found.cause == surrogate:
        what = "is BROKEN" if found.surrogate_broken else "itself costs most"
        return (
            f"The surrogate {what}: the float {surrogate} is {found.cause_rmse:.4g} from the "
            f"{found.cause_before} score, and all that the compiler did adds "
            f"{found.compiled_rmse:.4g}."
        )
    return (
        f'The step that adds most is "{found.cause}": RMSE {found.cause_rmse:.4g} against '
        f'"{found.cause_before}".'
    )


def _of_loss(label: str, loss: Change) -> str:
    """Points of a metric, the worse of both directions, and whether they could be chance."""
    points = points_text(loss)
    if loss.low > 0:
        return f"{label} LOSES more than other queries could explain: {points}."
    if loss.high < 0:
        gain = points_text(Change(-loss.value, -loss.high, -loss.low))
        return f"{label} GAINS more than other queries could explain: {gain}."
    return f"The loss of {label} is within what other queries would change: {points}."


@dataclass(frozen=True)
class DriftFindings:
    """Drift from the reference; `rows` end with the ONNX files, `noisy` are dies at one time each.

    `score` says what is compared, `logit` or `score` (where the head predicts none); `surrogate` is
    the stage of its float score, the trained program before any pass; `scatter` is
    Monte Carlo's own, None where a and b are not known. With `by_class` classes say what is right,
    and metrics of classes come first.
    """

    score: str
    surrogate: str
    reference: str
    scatter: Scatter | None
    by_class: bool
    headline: Headline
    rows: tuple[StageRow, ...]
    baselines: tuple[BaselineLoss, ...]
    noisy: tuple[Noisy, ...]
    margins: tuple[Margin, ...]
    curves: tuple[RecallCurve, ...]
    pairs: PairSample

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
    by_class = truth.labels is not None
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
    )
