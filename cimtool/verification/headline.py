"""The headline: how far the compiled model is off, what caused it, and whether that matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cimtool.verification.drift import POLYNOMIAL, Row
from cimtool.verification.evaluate import Reference

BROKEN_SURROGATE = 2.0
"""A surrogate this many standard errors from Monte Carlo is off by more than sampling explains."""


@dataclass(frozen=True)
class Headline:
    """The compiled model's drift from the float polynomial, and the step that adds most of it.

    `relative_rmse` is that drift over the polynomial's mean spread within a query, None where it
    has none. `within_scatter` says whether the drift is at most the Monte Carlo score's own
    standard error, None where that is not known. `cause` is None where no step changes any score.
    """

    compiled_rmse: float
    relative_rmse: float | None
    top1_agreement: float
    standard_error: float | None
    within_scatter: bool | None
    cause: str | None
    cause_before: str | None
    cause_rmse: float
    surrogate_rmse: float | None
    sentences: tuple[str, ...]


def headline(rows: Sequence[Row], reference: Reference, score: str) -> Headline:
    """Read the table: its last row is the compiled model, the cause a step after `polynomial`."""
    start = next(i for i, row in enumerate(rows) if row.stage == POLYNOMIAL)
    compiled = rows[-1]
    steps = list(zip(rows[start:], rows[start + 1 :], strict=False))
    before, worst = max(steps, key=lambda pair: pair[1].step_rmse or 0.0)
    cause_rmse = worst.step_rmse or 0.0
    drift = rows[start].drift
    error = reference.standard_error
    spread = rows[start].spread or 0.0
    rmse = compiled.polynomial_rmse or 0.0
    relative = rmse / spread if spread > 0 else None
    within = None if error is None else rmse <= error
    top1 = compiled.polynomial_top1 if compiled.polynomial_top1 is not None else 1.0
    share = f", {relative:.1%} of its spread within a query" if relative is not None else ""
    sentences = [
        f"The compiled model is {rmse:.4g} ({score} RMSE) from the float polynomial{share}; top-1 "
        f"agreement {top1:.1%}."
    ]
    if error is not None:
        sentences += _scatter(rmse, error, spread, reference.samples)
    if cause_rmse > 0:
        sentences.append(
            f'The step that adds most is "{worst.stage}": RMSE {cause_rmse:.4g} against '
            f'"{before.stage}".'
        )
    else:
        sentences.append("No step changes any score.")
    return Headline(
        compiled_rmse=rmse,
        relative_rmse=relative,
        top1_agreement=top1,
        standard_error=error,
        within_scatter=within,
        cause=worst.stage if cause_rmse > 0 else None,
        cause_before=before.stage if cause_rmse > 0 else None,
        cause_rmse=cause_rmse,
        surrogate_rmse=drift.logit_rmse if drift else None,
        sentences=tuple(sentences),
    )


def _scatter(rmse: float, error: float, spread: float, samples: int) -> list[str]:
    """What Monte Carlo's scatter says of a drift of `rmse`; no comfort where it hides the scores.

    Where the scores of a query do not differ at all, more samples would not make them.
    """
    hidden = 0 < spread < error
    said = []
    if rmse > error or not hidden:
        place = "within" if rmse <= error else "MORE than"
        said.append(
            f"That is {place} the scatter of the Monte Carlo score itself, whose standard error is "
            f"{error:.4g} at K={samples}."
        )
    if hidden:
        said.append(
            f"Monte Carlo at K={samples} scatters more (standard error {error:.4g}) than the "
            f"polynomial's scores differ within a query ({spread:.4g}): use more samples."
        )
    return said


def surrogate_warning(rows: Sequence[Row], reference: Reference) -> str | None:
    """A sentence where the polynomial itself is further from Monte Carlo than sampling explains."""
    row = next(row for row in rows if row.stage == POLYNOMIAL)
    error = reference.standard_error
    if error is None or row.drift is None or row.drift.logit_rmse <= BROKEN_SURROGATE * error:
        return None
    times = (
        f"{row.drift.logit_rmse / error:.1f} times that score's standard error"
        if error > 0
        else "which has no scatter"
    )
    return (
        f"the polynomial itself is {row.drift.logit_rmse:.4g} from the Monte Carlo score, {times}: "
        "a loss of the fit, before any hardware"
    )
