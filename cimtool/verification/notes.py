"""Sentences that a reader of a report should see: warnings, and what the figures leave out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from cimtool.base.modality_names import TEXT_VIDEO, Modalities, item_names, name_of, sizes_text
from cimtool.bundle.bundle import Bundle
from cimtool.bundle.matched_pairs import matched_warnings
from cimtool.bundle.simulate import recall
from cimtool.ir.heads import Head, Span
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.row_norms import other_scale
from cimtool.loading.score import statistics_note
from cimtool.reference.queries import Queries
from cimtool.reference.truth import Truth, all_equal
from cimtool.verification.baselines import without_cosine
from cimtool.verification.stages import StageRuns

FEW_QUERIES = 200
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
            "the teacher's a and b are not known, so the exact and Monte Carlo rows are not known "
            "and drift is measured against the float polynomial; compile with them"
        )
    if bundle.gallery is not None and bundle.gallery.shortlist is not None:
        notes.append(_recall_note(bundle.gallery.shortlist, runs))
    return (*notes, *data_notes(data, truth, runs.table.queries[-1]))


def data_notes(data: Embeddings, truth: Truth, queries: Queries) -> list[str]:
    """Sentences on what is right in the data, on rows that cannot be ranked, and on few queries."""
    notes = []
    if data.alone:
        right = "right are the others of its class"
        if truth.judged is not None:
            right = "right is what is judged so"
        elif not truth.ranks:
            right = "nothing is right without labels that two items share, so nothing is ranked"
        notes.append(f"items of one modality: an item does not find itself; {right}")
    if truth.ranks:
        notes += filter(None, [without_cosine(data)])
        notes += few_queries(*queries.counts.values(), called=data.called)
    notes += [*judged_by(data), *data.notes]
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


def constant_score(head: Head, statistics: Mapping[str, Span], data: Embeddings) -> list[str]:
    """A sentence where the float score is the same for all pairs, whose `statistics` lie so."""
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
    return bool(statistics) and all(hi - lo <= ALIKE * abs(hi) for lo, hi in statistics.values())


def alike_text(statistics: Iterable[str], data: Embeddings) -> str:
    """The clause on data whose pairs all have the same statistics."""
    return f"{data.file}: all pairs have the same {' and '.join(statistics)}"


def _recall_note(shortlist: int, runs: StageRuns) -> str:
    best, ten = recall(runs.scores, runs.simulator, runs.features["text"], shortlist)
    return (
        f"hybrid score: the scores above are the exact ones of all pairs; the shortlist of "
        f"{shortlist} holds the best item of {best:.1%} of the queries and {ten:.1%} of their best "
        "ten"
    )


def few_queries(texts: int, videos: int, *, called: Modalities = TEXT_VIDEO) -> list[str]:
    """A sentence where so few items of a side are queries that R@1 means little."""
    fewest, which = min(zip((texts, videos), item_names(called), strict=True))
    if fewest >= FEW_QUERIES:
        return []
    return [f"only {fewest} {which} are queries: below {FEW_QUERIES}, R@1 means little"]


def judged_by(data: Embeddings) -> list[str]:
    """A sentence on the judgements that say what is right, where there are any."""
    judged = data.judged
    if judged is None:
        return []
    sizes = len(np.unique(judged.text)), len(np.unique(judged.video))
    return [
        f"right is what {judged.file} grades above 0, {len(judged.grade):,} pairs of "
        f"{sizes_text(sizes, data.called)}; grades are the gains of nDCG"
    ]


def unused_labels(data: Embeddings, used: bool) -> list[str]:
    """A sentence where labels are known and not `used`."""
    if data.labels is None or used:
        return []
    texts, _ = item_names(data.called)
    return [
        f"labels are not used: {texts} of one {data.called[1]} have different ones, so mAP and "
        "nDCG go by pairs"
    ]
