"""A run paired with an earlier one on the same queries: which figures are worse, and how surely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.intervals import Change
from cimtool.base.json_files import significant
from cimtool.base.modality_names import Modalities, way_names
from cimtool.reference.bootstrap import Samples
from cimtool.reference.limits import LIMITED
from cimtool.reference.measures import RANKINGS, RankingMetric
from cimtool.reference.queries import Metrics, Queries, led, losses, metrics, once, uncertainties
from cimtool.reference.truth import Truth
from cimtool.verification.drift import COMPARED, KEPT, RANKED, KeptRun, kept_rows
from cimtool.verification.sections import FigureChange, figure_changes

AGREEMENT_TOLERANCE = 0.05
"""Top-1 agreement that may be lost where nothing else is said; equally good builds differ in it."""

RMSE_TOLERANCE = 0.5
"""The same of both RMSEs, as a share of what they were; a bit less of everything doubles them."""

RESOLUTION = 1e-5
"""The share of a figure that its 6 digits do not show: less is no difference."""

POWER = (1.959964 + 0.841621) / (2 * 1.959964)
"""A loss of this many widths of its interval shows in 80% of such draws of queries.

It is the sum of the normal quantiles of 97.5% and 80%, over the width of a 95% interval in standard
errors.
"""

Verdict = Literal["worse", "no difference", "better"]


@dataclass(frozen=True)
class FigureKind:
    """A figure of a run, and the name in LIMITS of its loss; a `share` is read in percent."""

    name: str
    label: str
    limit: str
    lower_is_better: bool
    share: bool


OF_REFERENCE = tuple(
    FigureKind(one.name, one.label, one.limit, one.lower_is_better, one.share) for one in LIMITED
)
"""Figures of the difference from the reference, which runs against the same one have in common."""


@dataclass(frozen=True)
class PairedFigure(FigureKind):
    """The figure of two runs and its paired `loss`, which is positive if the figure got worse.

    It fails if the whole interval is above `tolerance`. With a tolerance of None the figure is
    shown and never fails.
    """

    now: float
    before: float
    loss: Change
    tolerance: float | None

    @property
    def verdict(self) -> Verdict:
        """The direction of the difference, where its interval leaves out 0."""
        least = RESOLUTION * max(abs(self.now), abs(self.before))
        if self.loss.low > least:
            return "worse"
        return "better" if self.loss.high < -least else "no difference"

    @property
    def failed(self) -> bool:
        """True if the figure is worse, and surely by more than its tolerance."""
        return (
            self.tolerance is not None
            and self.verdict == "worse"
            and self.loss.low > self.tolerance
        )

    @property
    def detectable(self) -> float | None:
        """The loss that 80% of such draws of queries would show; None if no query differs."""
        width = self.loss.high - self.loss.low
        return POWER * width if width > 0 else None

    def sentence(self, file: str) -> str:
        """The loss and its tolerance, for a message."""
        loss = self.loss
        return (
            f"{self.label} is {self.now:.4g} and was {self.before:.4g} in {file}: worse by "
            f"{loss.value:.4g} ({loss.low:.4g} to {loss.high:.4g}); the tolerance is "
            f"{self.tolerance:g}"
        )


@dataclass(frozen=True, eq=False)
class EarlierRun:
    """A run by the file of its report; `digest` is that of its data.

    `sections` are the values of its sections, as the file has them.
    """

    file: str
    bundle: str
    target: str
    digest: str
    score: str
    reference: str
    compiled: Queries
    of_reference: Queries
    sections: Mapping[str, Any]

    def require_data(self, digest: str, file: str) -> None:
        """Raise CimError unless the run was on the data with this digest."""
        if digest != self.digest:
            raise CimError(
                f"{self.file}: reports on other data than {file}, or on other rows of it (SHA-256 "
                f"{self.digest[:12]} and {digest[:12]}); expected a report on the same"
            )


@dataclass(frozen=True)
class Comparison:
    """A run beside an earlier one on the same data, `texts` and `videos` of which were paired.

    `beside` are figures of sections, which are told and never fail.
    """

    file: str
    bundle: str
    target: str
    texts: int
    videos: int
    figures: tuple[PairedFigure, ...]
    beside: tuple[FigureChange, ...]
    notes: tuple[str, ...]

    @property
    def decisive(self) -> tuple[tuple[PairedFigure, tuple[str, ...]], ...]:
        """The figures with a tolerance, each with the sentence on its failure, if it has failed."""
        return tuple(
            (one, (one.sentence(self.file),) if one.failed else ())
            for one in self.figures
            if one.tolerance is not None
        )


@dataclass(frozen=True, eq=False)
class ThisRun:
    """The new side of a comparison: queries, what is right, score, reference, names.

    `sections` are the values of its sections.
    """

    kept: KeptRun
    truth: Truth
    score: str
    reference: str
    sections: Mapping[str, Any]
    called: Modalities


def compare_runs(
    run: ThisRun, before: EarlierRun, tolerances: Mapping[str, float], seed: int
) -> Comparison:
    """Pair a run with one of the past; `tolerances` are by names of LIMITS.

    Those that are not named: 0 of R@1 (of mAP where classes are known), AGREEMENT_TOLERANCE and
    RMSE_TOLERANCE; other figures are not compared, or never fail. Raises CimError if the queries
    are not the same, and for a tolerance of a figure that the runs do not have in common.
    """
    alike = (run.score, run.reference) == (before.score, before.reference)
    notes = () if alike else (_unlike(run, before, tolerances),)
    names = KEPT if alike else RANKED
    now, past = (one.only(names) for one in (run.kept.compiled.queries, before.compiled))
    lead = led(run.truth.by_class)[0]
    own, its = (one.only([lead.of]) for one in (run.kept.reference.queries, before.of_reference))
    require_alike(now, past, before.file)
    require_alike(own, its, before.file)
    told = dict.fromkeys((lead, RANKINGS[0], *(one for one in RANKINGS if one.loss in tolerances)))
    needed = (*dict.fromkeys(metric.of for metric in told), *COMPARED)
    now, past = now.only(needed), past.only(needed)
    kinds = [*(kind for metric in told for kind in _kinds(metric, run.called)), *OF_REFERENCE]
    allowed = {lead.loss: 0.0}
    errors = once(past) if alike else {}
    for kind in OF_REFERENCE:
        if not kind.lower_is_better:
            allowed[kind.limit] = AGREEMENT_TOLERANCE
        elif alike:
            allowed[kind.limit] = significant(RMSE_TOLERANCE * errors[kind.name])
    figures = _paired(now, past, kinds, allowed | dict(tolerances), run.truth, seed)
    if not figures:
        raise CimError(f"{before.file}: has no figure in common with this run: {'; '.join(notes)}")
    references = [
        replace(kind, label=f"{kind.label}, reference") for kind in _kinds(lead, run.called)
    ]
    figures += _paired(own, its, references, {}, run.truth, seed)
    beside = figure_changes(run.sections, before.sections)
    names_ = (before.file, before.bundle, before.target)
    rows = kept_rows(run.truth)
    return Comparison(*names_, len(rows.texts), len(rows.videos), figures, beside, notes)


def _unlike(run: ThisRun, before: EarlierRun, tolerances: Mapping[str, float]) -> str:
    """The note on runs against different references; ArgumentError if a tolerance needs one."""
    told = (
        f"of a {run.score} from {run.reference} here, and of a {before.score} from "
        f"{before.reference} in {before.file}"
    )
    for kind in OF_REFERENCE:
        if kind.limit in tolerances:
            raise ArgumentError(
                "{tolerance} {}: differences are {}; expected the same {reference}",
                kind.limit,
                told,
            )
    *labels, last = (kind.label for kind in OF_REFERENCE)
    return f"{', '.join(labels)} and {last} are not compared: they are {told}"


def _kinds(metric: RankingMetric, called: Modalities) -> list[FigureKind]:
    """A metric of rankings in each of its ways."""
    ways = way_names(called)
    return [
        FigureKind(
            name,
            metric.labelled(ways[way]),
            metric.loss,
            metric.lower_is_better,
            metric.share,
        )
        for way, name in metric.keys.items()
    ]


def require_alike(now: Queries, before: Queries, file: str) -> None:
    """Raise CimError unless an earlier run has the same measurements of as many queries.

    Which of them are no queries, NaN, follows from the data, and so is the same too.
    """
    for side in ("text", "video"):
        counts, others = (
            {name: len(values) for name, values in getattr(one, side).items()}
            for one in (now, before)
        )
        if counts != others:
            raise CimError(
                f"{file}: queries.{side} has {_counted(others)}; expected {_counted(counts)}"
            )
        for name, values in getattr(now, side).items():
            of_query, of_earlier = (~np.isnan(x) for x in (values, getattr(before, side)[name]))
            if (other := np.flatnonzero(of_query != of_earlier)).size:
                said, expected = (
                    ("a number", "null") if of_earlier[other[0]] else ("null", "a number")
                )
                raise CimError(
                    f"{file}: queries.{side}.{name}[{other[0]}] is {said}; expected {expected}, as "
                    "this run on the same data has"
                )


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} [{count}]" for name, count in counts.items()) or "nothing"


def _paired(
    now: Queries,
    before: Queries,
    kinds: Sequence[FigureKind],
    allowed: Mapping[str, float],
    truth: Truth,
    seed: int,
) -> tuple[PairedFigure, ...]:
    """The figures of these kinds that the queries have, resampled together."""

    def worse(samples: Samples) -> Metrics:
        own, other = metrics(now, samples), metrics(before, samples)
        found = losses(other, own)
        for kind in OF_REFERENCE:
            if kind.name in own:
                sign = 1 if kind.lower_is_better else -1
                found[kind.name] = sign * (own[kind.name] - other[kind.name])
        return found

    values, others = once(now), once(before)
    known = [kind for kind in kinds if kind.name in values]
    if not known:
        return ()
    rows = kept_rows(truth)
    right, videos = truth.text_to_video[rows.texts], len(rows.videos)
    (found,) = uncertainties([worse], lambda _: {}, right, videos, seed)
    return tuple(
        PairedFigure(
            **vars(kind),
            now=values[kind.name],
            before=others[kind.name],
            loss=Change(
                found.metrics[kind.name],
                found.intervals[kind.name].low,
                found.intervals[kind.name].high,
            ),
            tolerance=allowed.get(kind.limit),
        )
        for kind in known
    )
