"""How far the compiled model drifts: the rows of all stages and dies, the headline, the margins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cimtool.ir.heads import Head
from cimtool.loading.embeddings import Embeddings
from cimtool.verification.drift import StageRow
from cimtool.verification.headline import Headline, headline, with_dies
from cimtool.verification.margins import (
    Margin,
    PairSample,
    RecallCurve,
    margins,
    pair_sample,
    recall_curves,
)
from cimtool.verification.noisy import Noisy
from cimtool.verification.references import Reference, Scatter
from cimtool.verification.stages import StageRuns


@dataclass(frozen=True)
class DriftFindings:
    """Drift from the reference; `rows` end with the ONNX files, `noisy` are dies at one time each.

    `score` says what is compared, `logit` or `score` (where the head predicts none); `surrogate` is
    the stage of its float score, the trained program before any pass; `scatter` is
    Monte Carlo's own, None where a and b are not known.
    """

    score: str
    surrogate: str
    reference: Reference
    scatter: Scatter | None
    headline: Headline
    rows: tuple[StageRow, ...]
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
        return self.rows[names.index(self.surrogate) :]

    @property
    def survivors(self) -> tuple[StageRow, ...]:
        """The rows that tell survival: reference, surrogate, compiled model, dies."""
        start = [row for row in self.rows if row.stage in (self.reference.name, self.surrogate)]
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
    noisy: tuple[Noisy, ...],
    data: Embeddings,
    seed: int,
) -> DriftFindings:
    """Read the `rows` of stages; `faults` are those of the surrogate."""
    score, surrogate = head.measure, head.surrogate
    first = headline(rows, runs.reference.name, runs.scatter, score, faults, surrogate)
    reference = runs.table.scores
    known = rows[-1].drift is not None and len(data.video) > 1
    return DriftFindings(
        score=score,
        surrogate=surrogate,
        reference=runs.reference,
        scatter=runs.scatter,
        headline=with_dies(first, noisy, rows[-1], score),
        rows=rows,
        noisy=noisy,
        margins=margins(reference, runs.scores, data.right) if known else (),
        curves=_curves(runs, rows, data, surrogate),
        pairs=pair_sample(reference, runs.scores, data.right, seed),
    )


def _curves(
    runs: StageRuns, rows: Sequence[StageRow], data: Embeddings, surrogate: str
) -> tuple[RecallCurve, ...]:
    """The curves of the reference, the float score and the compiled model."""
    names, queries = [row.stage for row in rows], runs.table.queries
    first = next(i for i, one in enumerate(queries) if "rank" in one.text)
    shown = dict.fromkeys((first, names.index(surrogate), len(rows) - 1))
    texts = np.bincount(data.right, minlength=len(data.video))
    return recall_curves([(names[i], queries[i]) for i in shown], texts)
