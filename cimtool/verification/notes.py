"""Sentences that a reader of a report should see: warnings, faults, what the figures leave out.

Faults are of the float score, before any hardware.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from cimtool.base.intervals import Change
from cimtool.base.modality_names import TEXT_VIDEO, Modalities, item_names, name_of, sizes_text
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.matched_pairs import matched_warnings
from cimtool.bundle.simulate import recall
from cimtool.ir.heads import Head, Span
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.row_norms import other_scale
from cimtool.loading.score import statistics_note
from cimtool.reference.metrics import RAW
from cimtool.reference.montecarlo import DEFAULT_SAMPLES
from cimtool.reference.queries import Queries, metrics
from cimtool.reference.truth import Truth, all_equal
from cimtool.report.formats import percent
from cimtool.verification.drift import (
    DISTANCE,
    BaselineLoss,
    StageRow,
    baseline_losses,
    row_of,
    without_cosine,
)
from cimtool.verification.references import Scatter
from cimtool.verification.saturation import ClippedRows
from cimtool.verification.stages import FloatRun, StageRuns
from cimtool.verification.worth import FEW_QUERIES

ALIKE = 1e-9
"""Statistics that differ by no larger share are the same but for float64's rounding."""


def notes_of(
    bundle: Bundle, data: Embeddings, runs: StageRuns, warnings: Sequence[str]
) -> tuple[str, ...]:
    """All notes of a report, the `warnings` first."""
    head, truth = bundle.model.head, runs.table.truth
    notes = [f"warning: {text}" for text in warnings]
    if not head.is_surrogate:
        notes.append(head.closed_form_note)
    elif runs.scatter is None:
        notes.append(
            "the teacher's a and b are not known, so the exact and Monte Carlo rows are missing "
            "and drift is measured against the float polynomial; compile with a and b"
        )
    mapping = bundle.settings.score_mapping
    if bundle.gallery is None and mapping != "digital":
        notes.append(
            f"score_mapping = {mapping}: no gallery is in the arrays, so all pairs are scored "
            "digitally here; `cimtool program` puts one there, which `cimtool verify` then measures"
        )
    if bundle.gallery is not None and bundle.gallery.shortlist is not None:
        notes.append(_recall_note(bundle.gallery.shortlist, runs, data.called))
    return (*notes, *data_notes(data, truth, runs.table.queries[-1]))


def data_notes(data: Embeddings, truth: Truth, queries: Queries) -> list[str]:
    """Sentences on what is right in the data, on rows that cannot be ranked, and on few queries."""
    notes = []
    if data.alone:
        right = "the others of its class are right"
        if truth.judged is not None:
            right = "right items are those judged so"
        elif not truth.ranks:
            right = "no item is right without labels that two items share, so nothing is ranked"
        notes.append(f"items of one modality: an item does not find itself; {right}")
    if truth.ranks:
        notes += filter(None, [without_cosine(data)])
        notes += few_queries(*queries.counts.values(), called=data.called)
    notes += [*judged_by(data, truth), *data.notes]
    return [*notes, *unused_labels(data, truth.by_class or data.alone)]


def warnings_of(
    bundle: Bundle, data: Embeddings, runs: StageRuns, faults: Sequence[str], far: bool
) -> tuple[str, ...]:
    """The warnings of a report; `faults` are the sentences on the surrogate.

    One that is `far` off, if only by an offset, may be of other statistics.
    """
    head, model = bundle.model.head, bundle.model
    found = constant_score(head, runs.statistics, data) or all_equal(runs.scores, data.called)
    for modality, rows in (("text", data.text), ("video", data.video)):
        found += other_scale(rows, modality, model, data.file, name_of(modality, data.called))
    found += matched_warnings(bundle.stages[0].program, data)
    found += [*model.warnings, *faults]
    if far and head.takes_polynomial:
        found += filter(None, [statistics_note(model.layout, model.dimension)])
    return (*found, *filter(None, (domain.warning() for domain in runs.domains)))


def clipping_warnings(found: Sequence[ClippedRows], called: Modalities) -> tuple[str, ...]:
    """A sentence on each modality of which the input of rows clips too far."""
    said = (one.warning(name_of(one.modality, called)) for one in found)
    return tuple(filter(None, said))


def constant_score(head: Head, statistics: Mapping[str, Span], data: Embeddings) -> list[str]:
    """A sentence if the float score is the same for all pairs; `statistics` are their ranges."""
    if pairs_alike(statistics):
        return [f"{alike_text(statistics, data)}, so every pair gets the same score"]
    if head.constant_over(statistics):
        return [
            f"the {head.surrogate} is constant over these pairs, so every pair gets the same "
            "score; fit another one (`cimtool fit`)"
        ]
    return []


def pairs_alike(statistics: Mapping[str, Span]) -> bool:
    """Tell whether all pairs have the same statistics, so that the data tell nothing."""
    # What vd has beside its line may be nothing but rounding, of which ed is the measure.
    size = max((abs(hi) for _, hi in statistics.values()), default=0.0)
    return bool(statistics) and all(hi - lo <= ALIKE * size for lo, hi in statistics.values())


def alike_text(statistics: Iterable[str], data: Embeddings) -> str:
    """The clause on data whose pairs all have the same statistics."""
    return f"{data.file}: all pairs have the same {' and '.join(statistics)}"


def _recall_note(shortlist: int, runs: StageRuns, called: Modalities) -> str:
    best, ten = recall(runs.scores, runs.simulator, runs.features["text"], shortlist)
    texts, videos = item_names(called)
    return (
        f"hybrid score: what {texts} retrieve is after the shortlist of {shortlist}, which holds "
        f"the best item of {best:.1%} of the queries and {ten:.1%} of their best ten; drift, and "
        f"what {videos} retrieve, are of the exact scores of all pairs"
    )


def few_queries(texts: int, videos: int, *, called: Modalities = TEXT_VIDEO) -> list[str]:
    """A sentence if so few items of a side are queries that R@1 means little."""
    fewest, which = min(zip((texts, videos), item_names(called), strict=True))
    if fewest >= FEW_QUERIES:
        return []
    return [f"only {fewest} {which} are queries: below {FEW_QUERIES}, R@1 means little"]


def judged_by(data: Embeddings, truth: Truth) -> list[str]:
    """Sentences on the judgements that say what is right, and on queries without an answer."""
    judged = data.judged
    if judged is None:
        return []
    sizes = len(np.unique(judged.text)), len(np.unique(judged.video))
    notes = [
        f"right pairs are those that {judged.file} grades above 0, {len(judged.grade):,} pairs of "
        f"{sizes_text(sizes, data.called)}; grades are the gains of nDCG"
    ]
    every = len(data.text), len(data.video)
    for count, known, items in zip(every, sizes, item_names(data.called), strict=True):
        none = count - known
        if none and truth.knows_unanswered:
            few = f"; below {FEW_QUERIES} it means little" if none < FEW_QUERIES else ""
            notes.append(
                f"{none:,} {items} have no right item: answer AUROC compares the best scores of "
                f"the other {known:,} with theirs{few}"
            )
    return notes


def unused_labels(data: Embeddings, used: bool) -> list[str]:
    """A sentence if labels are known and not `used`."""
    if data.labels is None or used:
        return []
    texts, _ = item_names(data.called)
    return [
        f"labels are not used: {texts} of one {data.called[1]} have different labels, so mAP and "
        "nDCG go by pairs"
    ]


FAR_SURROGATE = 2.0
"""Multiple of Monte Carlo's error from which on a surrogate's distance is a warning.

With DEFAULT_SAMPLES: the error of thousands of samples would be no measure of a surrogate.
"""

BROKEN_RECALL = 0.01
"""A surrogate is broken if it loses this much of R@1, and more than other queries could explain."""


def points_text(loss: Change) -> str:
    """A loss in points with its interval."""
    return f"{percent(loss.value)} points ({percent(loss.low)} to {percent(loss.high)})"


def surrogate_faults(
    surrogate: StageRow,
    scatter: Scatter | None,
    score: str,
    jitter: float,
    baselines: Sequence[BaselineLoss] = (),
    by_class: bool = False,
) -> tuple[str, ...]:
    """Faults of the surrogate's ranking, before any hardware, one sentence each.

    A surrogate with a fault is broken. It surely loses R@1 (`by_class` mAP) against the exact
    score, its samples, or -ed; or its `jitter`, the change of the score if ed or vd is off by 0.1%
    of its range, is larger than the differences of scores within a query. The last two need no a
    and b. An error against the exact score that loses no R@1 is no fault (`surrogate_remarks`).
    """
    faults: list[str] = []
    exact = scatter is not None and scatter.is_exact
    metric, name = ("mAP", "map_loss") if by_class else ("R@1", "r1_loss")
    lost = surrogate.losses.get(name)
    if scatter is not None and lost is not None and _is_sure(lost):
        faults.append(
            f"the {surrogate.stage} itself loses {points_text(lost)} of {metric}: lost before any "
            "hardware"
        )
    for one in baselines:
        if one.baseline == DISTANCE and _is_sure(one.loss):
            faults.append(
                f"the {surrogate.stage} itself loses {points_text(one.loss)} of {one.metric} "
                "against -ed, the plain distance: lost before any hardware, fit another one "
                "(`cimtool fit`)"
            )
    spread = surrogate.metrics.get("spread" if exact else "own_spread", 0.0)
    if jitter > spread > 0:
        faults.append(
            f"the {surrogate.stage}'s terms are large and cancel: if ed or vd is off by 0.1% of "
            f"its range, its {score} changes by {jitter:.4g}, more than the scores of a query "
            f"differ ({spread:.4g}); no hardware computes it well, so fit another one (`cimtool "
            "fit`)"
        )
    return tuple(faults)


def _is_sure(loss: Change) -> bool:
    return loss.low > 0 and loss.value >= BROKEN_RECALL


def float_faults(run: FloatRun, head: Head, seed: int) -> tuple[str, ...]:
    """Faults of the float score of a run, which nothing has compiled yet."""
    table = run.table
    (own,) = table.uncertainties([partial(metrics, table.queries[-1])], seed)
    row = row_of(head.surrogate, table.queries[-1], own)
    baselines = baseline_losses(table, [(DISTANCE, head.surrogate)], seed)
    by_class = table.truth.by_class
    return surrogate_faults(row, run.scatter, head.measure, run.jitter, baselines, by_class)


def surrogate_remarks(surrogate: StageRow, scatter: Scatter | None, score: str) -> Iterator[str]:
    """A sentence if the surrogate is further from its reference than sampling explains.

    The mean difference of each query is left out, because it changes no rank. The surrogate may
    still rank as well.
    """
    error = surrogate.get("centred_rmse")
    if scatter is None or error is None:
        return
    usual = _usual(scatter.centred_error, scatter)
    if error <= FAR_SURROGATE * usual:
        return
    times = "which has no scatter"
    if usual > 0:
        samples = min(scatter.samples, DEFAULT_SAMPLES)
        times = f"{error / usual:.1f} times Monte Carlo's own error at K={samples}"
    yield (
        f"the {surrogate.stage} itself is {error:.4g} (centred {score} RMSE) from the "
        f"{'exact' if scatter.is_exact else 'Monte Carlo'} score, {times}: lost before any hardware"
    )


def offset_of(surrogate: StageRow, scatter: Scatter | None) -> float | None:
    """Its bias, if sampling does not explain it; None for less, or without a reference."""
    bias = surrogate.get("bias")
    if scatter is None or bias is None:
        return None
    return bias if abs(bias) > FAR_SURROGATE * _usual(scatter.whole_error, scatter) else None


def _usual(error: float, scatter: Scatter) -> float:
    """Monte Carlo's error at DEFAULT_SAMPLES or fewer; its mean square falls as 1/K."""
    return math.sqrt(max(scatter.samples / DEFAULT_SAMPLES, 1.0)) * error


def baseline_sentences(baselines: Sequence[BaselineLoss]) -> Iterator[str]:
    """A sentence if raw embeddings retrieve as well as the compiled model, or better."""
    for one in baselines:
        if one.baseline != RAW or one.loss.high < 0:
            continue
        how = "BETTER" if one.loss.low > 0 else "as well, as far as these queries tell"
        yield (
            f"Raw embeddings retrieve {how}: {one.metric} {percent(one.of_baseline)}% by their "
            f"cosine, {percent(one.of_stage)}% compiled, a loss of {points_text(one.loss)}."
        )


NOT_CHECKED = (
    "The surrogate was NOT CHECKED against the sampled score, as the teacher's a and b are not "
    "known: drift is only what the compiler adds."
)
