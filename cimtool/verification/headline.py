"""The headline: how far the compiled model is off, what caused it, and whether that matters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cimtool.reference.bootstrap import Change
from cimtool.reference.montecarlo import DEFAULT_SAMPLES
from cimtool.verification.drift import StageRow
from cimtool.verification.noisy import Noisy
from cimtool.verification.references import Scatter

BROKEN_SURROGATE = 2.0
"""A surrogate so many times as far off as Monte Carlo is off by more than sampling explains.

Monte Carlo of DEFAULT_SAMPLES: what it would be with thousands is no fault of a surrogate.
"""

BROKEN_RECALL = 0.01
"""One that loses so much of R@1, and more than other queries could explain, is broken as well."""


@dataclass(frozen=True)
class Headline:
    """The compiled model's drift, the step that adds most of it, and what it is worth.

    `reference_rmse` and `reference_top1` are against the reference; `compiled_rmse`,
    `relative_rmse` (of the float score's mean spread within a query, None where it has none) and
    `top1_agreement` against the float score. `equal_samples` is the K at which Monte Carlo
    would err as much, None where it is not known or nothing is off. `cause` is the dearest step,
    None where no step changes any score; it is the float score where the surrogate costs most.
    """

    reference_rmse: float | None
    reference_top1: float | None
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
    sentences: tuple[str, ...]


def headline(
    rows: Sequence[StageRow],
    reference: str,
    scatter: Scatter | None,
    score: str,
    faults: Sequence[str],
    surrogate: str,
) -> Headline:
    """Read the table: its last row is the compiled model's, `reference` names its reference's row.

    `surrogate` names that of the float score; `faults` are as in `surrogate_faults`. One that has
    any is the cause whatever the later rows are: it is what has to change first.
    """
    start = next(i for i, row in enumerate(rows) if row.stage == surrogate)
    trained, compiled = rows[start], rows[-1]
    exact = scatter is not None and scatter.rmse is not None
    if faults:
        before, worst = reference, trained
    else:
        before, worst = _dearest(rows, start, reference, exact)
    cause_rmse = worst.step_rmse or 0.0
    spread = trained.spread or 0.0
    rmse = compiled.float_rmse or 0.0
    found = Headline(
        reference_rmse=compiled.drift.logit_rmse if compiled.drift and scatter else None,
        reference_top1=compiled.drift.top1_agreement if compiled.drift and scatter else None,
        compiled_rmse=rmse,
        relative_rmse=rmse / spread if spread > 0 else None,
        top1_agreement=1.0 if compiled.float_top1 is None else compiled.float_top1,
        equal_samples=_equal_samples(compiled, scatter),
        surrogate_rmse=trained.drift.logit_rmse if trained.drift else None,
        surrogate_broken=bool(faults),
        cause=worst.stage if cause_rmse > 0 else None,
        cause_before=before if cause_rmse > 0 else None,
        cause_rmse=cause_rmse,
        r1_loss=compiled.losses.get("r1_loss"),
        sentences=(),
    )
    return _said(found, rows, scatter, score, trained)


def _dearest(
    rows: Sequence[StageRow], start: int, reference: str, exact: bool
) -> tuple[str, StageRow]:
    """The step that adds most and what stands before it; the surrogate's own where it is known."""
    steps = [(rows[i - 1].stage, rows[i]) for i in range(start + 1, len(rows))]
    if exact:
        steps.insert(0, (reference, rows[start]))
    return max(steps, key=lambda step: step[1].step_rmse or 0.0)


def _equal_samples(compiled: StageRow, scatter: Scatter | None) -> float | None:
    """K at which Monte Carlo's mean square error, which falls as 1/K, is the compiled model's."""
    if scatter is None or compiled.drift is None:
        return None
    if scatter.rmse is None:
        own, error = scatter.standard_error, compiled.float_rmse or 0.0
    else:
        own, error = scatter.rmse, compiled.drift.logit_rmse
    return scatter.samples * (own / error) ** 2 if error > 0 else None


def with_dies(found: Headline, noisy: Sequence[Noisy], compiled: StageRow, score: str) -> Headline:
    """The headline with what dies keep of the compiled model, where any were drawn.

    Their noise is the cause where it adds more to the median die than any step does, and the
    surrogate is not broken.
    """
    if not noisy:
        return found
    said = [sentence for one in noisy for sentence in one.sentences(compiled, score)]
    worst = max((one.median for one in noisy), key=lambda row: row.step_rmse or 0.0)
    rmse = worst.step_rmse or 0.0
    if rmse > found.cause_rmse and not found.surrogate_broken:
        said.insert(0, f"Noise of the devices adds more than any step: RMSE {rmse:.4g}.")
        found = replace(found, cause=worst.stage, cause_before=compiled.stage, cause_rmse=rmse)
    return replace(found, sentences=(*found.sentences, *dict.fromkeys(said)))


def _said(
    found: Headline,
    rows: Sequence[StageRow],
    scatter: Scatter | None,
    score: str,
    trained: StageRow,
) -> Headline:
    sentences = []
    if scatter is not None and scatter.rmse is not None:
        sentences += _of_exact(found, rows, scatter, score)
    else:
        share = ""
        if found.relative_rmse is not None:
            share = f", {found.relative_rmse:.1%} of its spread within a query"
        sentences.append(
            f"The compiled model is {found.compiled_rmse:.4g} ({score} RMSE) from the float "
            f"{trained.stage}{share}; top-1 agreement {found.top1_agreement:.1%}."
        )
        if scatter is not None:
            sentences += _of_scatter(found, scatter, trained)
    sentences += _of_steps(found, trained.stage)
    if found.r1_loss is not None:
        sentences.append(_of_recall(found.r1_loss))
    return replace(found, sentences=tuple(sentences))


def _of_exact(found: Headline, rows: Sequence[StageRow], scatter: Scatter, score: str) -> list[str]:
    """The compiled model beside Monte Carlo, both against the exact score."""
    compiled = rows[-1].drift
    if compiled is None or scatter.rmse is None or scatter.top1_agreement is None:
        raise TypeError("the compiled model has no drift from the exact score")
    sentences = [
        f"The compiled model is {compiled.logit_rmse:.4g} ({score} RMSE) from the exact score, "
        f"{_of_spread(compiled.relative_rmse)}; top-1 agreement {compiled.top1_agreement:.1%}."
    ]
    if found.equal_samples is None:
        return sentences
    closer = compiled.logit_rmse <= scatter.rmse
    sentences.append(
        f"That is {'closer' if closer else 'FURTHER'} than Monte Carlo at K={scatter.samples} is "
        f"({scatter.rmse:.4g}, top-1 agreement {scatter.top1_agreement:.1%}), which "
        f"{equal_text(found.equal_samples)}."
    )
    return sentences


def _of_spread(share: float) -> str:
    if math.isinf(share):
        return "whose scores do not differ within a query"
    return f"{share:.1%} of its spread within a query"


def equal_text(samples: float) -> str:
    """At which K Monte Carlo errs as much, to two digits: it is no more certain than that."""
    if samples < 1:
        return "would err less with a single sample a side"
    return f"would err as much at about K={float(f'{samples:.2g}'):,.0f}"


def _of_scatter(found: Headline, scatter: Scatter, trained: StageRow) -> list[str]:
    """What Monte Carlo's scatter says of a drift; no comfort where it hides the scores.

    Where the scores of a query do not differ at all, more samples would not make them.
    """
    rmse, error, spread = found.compiled_rmse, scatter.standard_error, trained.spread or 0.0
    hidden = 0 < spread < error
    said = []
    if rmse > error or not hidden:
        place = "within" if rmse <= error else "MORE than"
        equal = ""
        if found.equal_samples is not None:
            equal = f"; it {equal_text(found.equal_samples)}"
        said.append(
            f"That is {place} the scatter of the Monte Carlo score itself, whose standard error is "
            f"{error:.4g} at K={scatter.samples}{equal}."
        )
    if hidden:
        said.append(
            f"Monte Carlo at K={scatter.samples} scatters more (standard error {error:.4g}) than "
            f"the {trained.stage}'s scores differ within a query ({spread:.4g}): use more samples."
        )
    return said


def _of_steps(found: Headline, surrogate: str) -> list[str]:
    if found.cause is None:
        return ["No step changes any score."]
    if found.cause == surrogate:
        what = "is BROKEN" if found.surrogate_broken else "itself costs most"
        return [
            f"The surrogate {what}: the float {surrogate} is {found.cause_rmse:.4g} from the "
            f"{found.cause_before} score, and all that the compiler did adds "
            f"{found.compiled_rmse:.4g}."
        ]
    return [
        f'The step that adds most is "{found.cause}": RMSE {found.cause_rmse:.4g} against '
        f'"{found.cause_before}".'
    ]


def _of_recall(loss: Change) -> str:
    """Points of R@1, the worse of both directions, and whether they could be chance."""
    points = points_text(loss)
    if loss.low > 0:
        return f"R@1 LOSES more than other queries could explain: {points}."
    if loss.high < 0:
        gain = points_text(Change(-loss.value, -loss.high, -loss.low))
        return f"R@1 GAINS more than other queries could explain: {gain}."
    return f"The loss of R@1 is within what other queries would change: {points}."


def points_text(loss: Change) -> str:
    """A loss in points with its interval."""
    # Adding 0.0 makes a -0.0 a 0.0.
    ends = (round(100 * share, 1) + 0.0 for share in (loss.value, loss.low, loss.high))
    value, low, high = ends
    return f"{value:.1f} points ({low:.1f} to {high:.1f})"


def surrogate_faults(
    surrogate: StageRow, scatter: Scatter | None, score: str, jitter: float
) -> tuple[str, ...]:
    """What is wrong with the surrogate itself, before any hardware, a sentence each.

    It is further off than sampling explains; or it loses R@1; or `jitter`, the change of its score
    where ed or vd is 0.1% of its range off, is more than the scores differ within a query.
    """
    drift = surrogate.drift
    if scatter is None or drift is None:
        return ()
    exact = scatter.rmse is not None
    # Monte Carlo's mean square error falls as 1/K.
    usual = math.sqrt(max(scatter.samples / DEFAULT_SAMPLES, 1.0))
    error = usual * (scatter.standard_error if scatter.rmse is None else scatter.rmse)
    name = "exact" if exact else "Monte Carlo"
    faults = []
    if drift.logit_rmse > BROKEN_SURROGATE * error:
        times = "which has no scatter"
        if error > 0:
            measure = "own error" if exact else "standard error"
            samples = min(scatter.samples, DEFAULT_SAMPLES)
            times = f"{drift.logit_rmse / error:.1f} times Monte Carlo's {measure} at K={samples}"
        faults.append(
            f"the {surrogate.stage} itself is {drift.logit_rmse:.4g} ({score} RMSE) from the "
            f"{name} score, {times}: lost before any hardware"
        )
    lost = surrogate.losses.get("r1_loss")
    if exact and lost is not None and lost.low > 0 and lost.value >= BROKEN_RECALL:
        faults.append(
            f"the {surrogate.stage} itself loses {points_text(lost)} of R@1: lost before any "
            "hardware"
        )
    if exact and amplifies(surrogate, jitter):
        faults.append(
            f"the {surrogate.stage}'s terms are large and cancel: where ed or vd is 0.1% of its "
            f"range off, its {score} changes by {jitter:.4g}, more than the scores of a query "
            f"differ ({drift.spread:.4g}); no hardware computes it well, fit another one "
            "(`cimtool fit`)"
        )
    return tuple(faults)


def amplifies(surrogate: StageRow, jitter: float) -> bool:
    """Whether small errors of ed and vd move it by more than the scores of a query differ."""
    return surrogate.drift is not None and jitter > surrogate.drift.spread > 0
