"""Sentences that a reader must see before any figure of a sweep or a tuning, and after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from cimtool.bundle.matched_pairs import matched_warnings
from cimtool.experiments.sweeps.references import SweepReferences, head_digest
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.model import Model
from cimtool.loading.provenance import trained_on
from cimtool.loading.row_norms import median_norm, other_scale
from cimtool.reference.modality_names import name_of
from cimtool.verification.baselines import BaselineLoss
from cimtool.verification.faults import NOT_CHECKED, baseline_sentences
from cimtool.verification.notes import data_notes
from cimtool.verification.references import EXACT


@dataclass(frozen=True)
class Remarks:
    """Sentences beside figures: `faults` of float scores and `warnings` before them.

    `notes` on the data stand after them. A float score that is not `checked` is the reference
    itself, for want of a and b.
    """

    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    checked: bool = True

    @classmethod
    def of(
        cls,
        models: Mapping[str, Model],
        calibration: Embeddings,
        data: Embeddings,
        known: SweepReferences,
    ) -> Self:
        """The remarks on models that share their projectors, under the name of each score.

        Warnings are of rows that are not such as the model knows, of training on these rows, of
        scores that are not checked, and the models' own.
        """
        faults, warnings = list[str](), list[str]()
        checked = all(known.name == EXACT or not one.head.is_surrogate for one in models.values())
        for name, model in models.items():
            of = f" ({name})" * (len(models) > 1)
            own = known.faults[head_digest(model.head)]
            faults += [f"The surrogate{of} is BROKEN: {fault}." for fault in own]
            rows = data.text, data.video, data.called
            warnings += trained_on(model.provenance, model.name, *rows)
        first, *_ = models.values()
        warnings += _strange_rows(first, calibration, data)
        warnings += [NOT_CHECKED] * (not checked)
        warnings += [text for model in models.values() for text in model.warnings]
        notes = data_notes(data, known.truth, known.own)
        return cls(tuple(faults), tuple(dict.fromkeys(warnings)), tuple(notes), checked)

    @property
    def broken_reference(self) -> str:
        """The faults of a float score that is the reference itself; empty without any."""
        return "" if self.checked else " ".join(self.faults)

    def first(self, raw: Sequence[str]) -> list[str]:
        """All sentences before the figures, those on `raw` embeddings among them."""
        return [*self.faults, *raw, *self.warnings]


def _strange_rows(model: Model, calibration: Embeddings, data: Embeddings) -> list[str]:
    """Sentences where sides or signs are mixed up in one of both, or their scales differ."""
    norms = median_norm(calibration.text), median_norm(calibration.video)
    card = replace(model.card, row_norms=norms)
    found = [text for rows in (calibration, data) for text in matched_warnings(model.program, rows)]
    for modality, rows in (("text", data.text), ("video", data.video)):
        found += other_scale(rows, modality, card, data.file, name_of(modality, data.called))
    return found


def raw_sentences(losses: Sequence[BaselineLoss | None], chosen: int | None) -> list[str]:
    """A sentence where raw embeddings retrieve as well as the chosen point, or better.

    `losses` are those of all points against them. Where none is chosen, the point counts that does
    best.
    """
    known = {index: loss for index, loss in enumerate(losses) if loss is not None}
    if chosen is None and known:
        chosen = min(known, key=lambda index: known[index].loss.value)
    if chosen not in known:
        return []
    return [f"{text} (point {chosen})" for text in baseline_sentences([known[chosen]])]
