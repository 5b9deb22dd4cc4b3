"""Reference scores that compiled points are measured against, and the remarks on them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Self

import numpy as np
from safetensors.numpy import save

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.errors import CimError
from cimtool.base.files import replace_files
from cimtool.base.json_files import parse_json
from cimtool.base.modality_names import TEXT_VIDEO, Modalities, name_of
from cimtool.base.progress import Say
from cimtool.bundle.arrays_file import read_arrays
from cimtool.bundle.matched_pairs import matched_warnings
from cimtool.ir.heads import Head
from cimtool.loading.embeddings import Embeddings
from cimtool.loading.model import Model
from cimtool.loading.provenance import trained_on
from cimtool.loading.row_norms import median_norm, other_scale
from cimtool.reference.limits import limit_changes, limit_metrics
from cimtool.reference.measures import RANKINGS, WAYS
from cimtool.reference.metrics import RAW_INT8, ReferenceScores, common_mean, on_grid
from cimtool.reference.montecarlo import DEFAULT_SAMPLES
from cimtool.reference.queries import (
    RANKINGS_BY_KEY,
    Queries,
    Selection,
    Uncertainty,
    both_sides,
    compared,
    led,
    metrics,
    once,
    uncertainties,
)
from cimtool.reference.retrieval import RETRIEVED, after_shortlist, measured, of_means
from cimtool.reference.statistics import Gaussians
from cimtool.reference.truth import Truth
from cimtool.report.document import Block, Note, Sentence
from cimtool.simulation.simulator import Simulator
from cimtool.verification.drift import BaselineLoss, baseline_loss
from cimtool.verification.notes import (
    NOT_CHECKED,
    constant_score,
    data_notes,
    float_faults,
)
from cimtool.verification.references import EXACT, References, gaussians, trained_features
from cimtool.verification.stages import real_means, run_float
from cimtool.verification.worth import (
    LargerGallery,
    Worth,
    by_chance,
    in_names,
    sampled_alike,
    worst_share,
)

KEPT = ("scores", "sampled", "mean")
DRIFTS = ("float_rmse", "float_centred_rmse", "bias", "spread")
"""Metrics of differences that a point has beside the metrics of limits."""

OF_LOGITS = ("logit_squares", "centred_squares", "bias", "largest")
"""Differences from the exact score that only a logit has."""


OF_MEANS = tuple(one.of for one in RANKINGS if one.of_means is not None)
"""Measurements of means."""


@dataclass(frozen=True, eq=False)
class SweepReferences:
    """Scores [n, m] of the evaluation pairs, computed without hardware.

    `scores` are from the reference called `name`. `floats` has the float scores by the digest of
    their heads, `faults` the sentences on each, as in `verify`. `sampled` are Monte Carlo's scores,
    if the teacher is known. `of_means` are measurements of the trained means; `mean` [d] is their
    common mean. `raw` is the retrieval of raw rows in 8 bits, None if widths differ or nothing is
    ranked. Monte Carlo has `samples` per side. With `of_logit` the reference's scores are logits.
    `called` names the modalities.
    """

    name: str
    truth: Truth
    scores: FloatArray
    floats: Mapping[str, FloatArray]
    mean: FloatArray
    sampled: FloatArray | None = None
    of_means: Queries = field(default_factory=Queries)
    faults: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    raw: Queries | None = None
    samples: int = DEFAULT_SAMPLES
    of_logit: bool = True
    called: Modalities = TEXT_VIDEO
    _of_floats: dict[str, Queries] = field(default_factory=dict, init=False)

    @cached_property
    def against(self) -> ReferenceScores:
        """The reference prepared for comparisons."""
        return ReferenceScores(self.scores, self.truth.leave_one_out)

    @cached_property
    def own(self) -> Queries:
        """Retrieval by the reference itself, query by query."""
        return measured(self.scores, self.truth, self.of_logit).merged(self.of_means)

    def measured(self, scores: Array, text_mu: Array, video_mu: Array, head: Head) -> Queries:
        """Retrieval of scores [n, m] by a head and means, and the differences from the reference.

        If the score is not a logit, only the order of items is compared with the exact score.
        """
        offset = self.mean - common_mean(text_mu, video_mu)
        told = of_means(self.truth, text_mu + offset, video_mu + offset)
        return self._measured(on_grid(scores), told, head)

    def after_shortlist(self, queries: Queries, left: Array) -> Queries:
        """Queries of all scores, with the retrieval of texts by those that a shortlist `left`."""
        return after_shortlist(queries, left, self.truth, {"same_best": self.against})

    def sampled_queries(self, scores: FloatArray) -> Queries:
        """`measured` for scores from samples of the trained means and variances."""
        return self._measured(on_grid(scores), self.of_means, None)

    def _measured(self, scores: Array, told: Queries, head: Head | None) -> Queries:
        of_logit = head is None or head.predicts_logit
        found = measured(scores, self.truth, of_logit).merged(compared(scores, self.against))
        if head is not None:
            trained = ReferenceScores(self.floats[head_digest(head)])
            found.text["float_squares"] = trained.squares(scores)
            centred = trained.centred_squares(scores)
            found = found.merged(both_sides({"float_centred_squares": centred}))
            if self.name == EXACT and not head.is_sampled:
                for name in OF_LOGITS:
                    del found.text[name]
        return found.merged(told)

    def metrics(self, queries: Queries, chosen: Selection | None = None) -> dict[str, float]:
        """Drift of measured queries, or of the `chosen` queries, from the reference, by name.

        These are the metrics of LIMITS, of DRIFTS such as `float_rmse` (the distance from the float
        score), and of RANKINGS. Metrics of rankings are missing if nothing is ranked.
        """
        both = (queries, self.own)
        own, reference = (once(one if chosen is None else one.of(chosen)) for one in both)
        kept = [name for name in (*DRIFTS, *RANKINGS_BY_KEY) if name in own]
        return limit_metrics(own, reference) | {name: own[name] for name in kept}

    def intervals(self, *rows: Queries) -> list[dict[str, tuple[float, float]]]:
        """The intervals of each row's metrics over resamples of the queries, by name."""
        reference, truth = partial(metrics, self.own), self.truth
        measured = [partial(metrics, queries) for queries in rows]
        right, videos = truth.text_to_video, truth.videos
        found = uncertainties(measured, reference, right, videos, seed=0, queries=rows)
        return [_ends(one) for one in found]

    def baselines(self, heads: Mapping[str, Head]) -> dict[str, Queries]:
        """Measured queries by score: float under named heads, Monte Carlo, and raw rows."""
        found = {name: self._float_queries(head) for name, head in heads.items()}
        if self.sampled is not None:
            found[f"Monte Carlo (K={self.samples})"] = self._sampled_queries
        return found | ({} if self.raw is None else {RAW_INT8: self.raw})

    def baseline_metrics(
        self, heads: Mapping[str, Head]
    ) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, tuple[float, float]]]]:
        """The metrics of `baselines` and their intervals, by the names of the scores."""
        beside = self.baselines(heads)
        intervals = dict(zip(beside, self.intervals(*beside.values()), strict=True))
        return {name: self.metrics(one) for name, one in beside.items()}, intervals

    def worth(self, queries: Queries, head: Head, larger: LargerGallery | None) -> Worth:
        """The verdict on a compiled model's queries, beside the float score under its `head`."""
        of_float = sampled = None
        if self.truth.ranks:
            of_float = self._loss_from(head.surrogate, self._float_queries(head), queries)
        squares = queries.text.get("centred_squares")
        if self.sampled is not None and squares is not None:
            sampled = sampled_alike(queries, self._sampled_queries, self.samples, self.truth, 0)
        return Worth(
            broken=False,
            sampled=sampled,
            of_float=of_float,
            of_raw=None if self.raw is None else self._loss_from(RAW_INT8, self.raw, queries),
            items=self.truth.videos,
            variance=None,
            worst_share=None if squares is None else worst_share(squares),
            larger=larger,
            raw_by_chance=by_chance(self.raw, self.truth),
        )

    def _loss_from(self, name: str, baseline: Queries, queries: Queries) -> BaselineLoss:
        truth, measurement = self.truth, [led(self.truth.by_class)[0].of]
        row, other = (partial(metrics, one.only(measurement)) for one in (queries, baseline))
        own, found = uncertainties([row, other], other, truth.text_to_video, truth.videos, seed=0)
        loss = baseline_loss((name, "compiled"), own, found, (baseline, queries), truth)
        return in_names(loss, self.called)

    @cached_property
    def _sampled_queries(self) -> Queries:
        assert self.sampled is not None
        return self.sampled_queries(self.sampled)

    def _float_queries(self, head: Head) -> Queries:
        """Measured once for each head; points share them."""
        digest = head_digest(head)
        if digest not in self._of_floats:
            found = self._measured(self.floats[digest], self.of_means, head)
            self._of_floats[digest] = found
        return self._of_floats[digest]

    def knows(self, heads: Iterable[Head]) -> bool:
        """True if it has the float scores of all these heads."""
        return all(head_digest(head) in self.floats for head in heads)

    def to_bytes(self) -> bytes:
        """The content of the file that keeps the references, without their name."""
        arrays = {name: value for name in KEPT if (value := getattr(self, name)) is not None}
        arrays |= {f"means_{name}": one for name, one in self.of_means.text.items()}
        arrays["of_logit"] = np.array(self.of_logit)
        arrays["samples"] = np.array(self.samples)
        arrays["floats"] = np.stack(list(self.floats.values()))
        arrays["heads"] = np.array([list(name.encode()) for name in self.floats], np.uint8)
        arrays["faults"] = np.frombuffer(json.dumps(dict(self.faults)).encode(), np.uint8)
        if self.raw is not None:
            sides = zip(WAYS, (self.raw.text, self.raw.video), strict=True)
            arrays |= {f"raw_{way}_{name}": side[name] for way, side in sides for name in RETRIEVED}
        arrays = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
        content: bytes = save(arrays | {SEAL: _seal(arrays)})
        return content

    @classmethod
    def of_file(
        cls, name: str, truth: Truth, file: Path, called: Modalities = TEXT_VIDEO
    ) -> SweepReferences | None:
        """Read a file of `to_bytes`; None if it has other content, or was changed."""
        try:
            arrays = read_arrays(file)
            if not np.array_equal(arrays.pop(SEAL), _seal(arrays)):
                return None
            heads = [bytes(letters).decode() for letters in arrays.pop("heads")]
            floats = dict(zip(heads, arrays.pop("floats"), strict=True))
            said = parse_json(bytes(arrays.pop("faults")))
            of_logit, samples = arrays.pop("of_logit").item(), arrays.pop("samples").item()
            faults = {digest: tuple(texts) for digest, texts in said.items()}
            own = [
                {
                    name: arrays.pop(key)
                    for name in RETRIEVED
                    if (key := f"raw_{w}_{name}") in arrays
                }
                for w in WAYS
            ]
            raw = Queries(*own) if any(own) else None
            told = Queries(
                {n: arrays.pop(f"means_{n}") for n in OF_MEANS if f"means_{n}" in arrays}
            )
            return cls(
                name,
                truth,
                floats=floats,
                of_means=told,
                faults=faults,
                raw=raw,
                samples=samples,
                of_logit=of_logit,
                called=called,
                **arrays,
            )
        except (CimError, TypeError, KeyError, ValueError):
            return None


SEAL = "sha256"
"""The array, uint8 [32], with the SHA-256 of the others."""


def _seal(arrays: Mapping[str, Array]) -> Array:
    return np.frombuffer(hashlib.sha256(save(dict(arrays))).digest(), np.uint8)


def _ends(found: Uncertainty) -> dict[str, tuple[float, float]]:
    """The interval of each metric of a sweep."""
    limits = limit_changes(found.metrics, found.intervals, found.losses)
    kept = {name: found.intervals.get(name) for name in (*DRIFTS, *RANKINGS_BY_KEY)}
    known = {name: one.interval for name, one in limits.items()} | kept
    return {name: (one.low, one.high) for name, one in known.items() if one is not None}


def head_digest(head: Head) -> str:
    """The name of a head and its constants, in letters and digits."""
    return hashlib.sha256(json.dumps(head.to_json(), sort_keys=True).encode()).hexdigest()[:16]


def reference_name(model: Model, scores: int = 1) -> str:
    """The name of the reference for a model's drift, or for several scores of its projectors.

    It is the exact score if this is known, and the score approximates it or there are several
    scores. Otherwise it is the float score.
    """
    known = model.head.is_sampled and model.a is not None and model.b is not None
    return EXACT if known and (scores > 1 or model.head.is_surrogate) else model.head.surrogate


def references(
    models: Iterable[Model], data: Embeddings, say: Say, reference: str, samples: int
) -> SweepReferences:
    """Score all pairs of the evaluation rows by a trained model under each head, and exactly.

    The exact score of the first of `models` holds for all, and so does Monte Carlo with `samples`
    per side. `reference` is from `reference_name`.
    """
    pairs = f"{len(data.text)} x {len(data.video)} pairs"
    shared = References(samples=samples, all_pairs=True)
    floats: dict[str, FloatArray] = {}
    faults: dict[str, tuple[str, ...]] = {}
    found: SweepReferences | None = None
    for model in models:
        digest = head_digest(model.head)
        if digest in floats:
            continue
        say(f"the trained model, {model.head.described}: {pairs}")
        run = run_float(model.program, model, data, shared, say)
        floats[digest] = scores = run.table.float_scores
        constant = constant_score(model.head, run.statistics, data)
        faults[digest] = (*constant, *float_faults(run, model.head, seed=0))
        if found is not None:
            continue
        means = real_means(model.program, run.features)
        mean, told = common_mean(*means), of_means(data.truth, *means)
        against, sampled = scores, None
        if run.known is not None and run.known.exact is not None and reference == EXACT:
            against, sampled = run.known.exact, run.known.monte_carlo
        kept = (floats, mean, sampled, told, faults, run.table.queries_of(RAW_INT8))
        of_logit = reference == EXACT or model.head.predicts_logit
        found = SweepReferences(
            reference, data.truth, against, *kept, samples, of_logit, data.called
        )
    assert found is not None
    return found


REFERENCES = "references.safetensors"


def kept_references(
    place: Path | None,
    models: Sequence[Model],
    data: Embeddings,
    say: Say,
    reference: str,
    samples: int,
) -> SweepReferences:
    """The `references` that a folder keeps; computed, and kept there, if it lacks some."""
    if place is None:
        return references(models, data, say, reference, samples)
    found = SweepReferences.of_file(reference, data.truth, place / REFERENCES, data.called)
    known = found is not None and found.samples == samples
    if found is None or not (known and found.knows(model.head for model in models)):
        found = references(models, data, say, reference, samples)
        replace_files(place, {REFERENCES: found.to_bytes()}, "the references")
    return found


def trained_gaussians(model: Model, data: Embeddings) -> tuple[Gaussians, Gaussians]:
    """Means and variances of the evaluation rows by the trained model."""
    return gaussians(trained_features(Simulator(model.program), data))


@dataclass(frozen=True)
class Remarks:
    """Sentences beside figures: `faults` of float scores and `warnings` come before them.

    `notes` on the data come after them. If a float score is not `checked`, it is the reference
    itself, because a and b are unknown.
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

        Warnings are about rows unlike the rows that the model knows, training on these rows,
        unchecked scores, and the models themselves.
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
        norms = median_norm(calibration.text), median_norm(calibration.video)
        card = replace(first.card, row_norms=norms)
        for one in (calibration, data):  # in case sides or signs are mixed up
            warnings += matched_warnings(first.program, one)
        for side, given in (("text", data.text), ("video", data.video)):
            warnings += other_scale(given, side, card, data.file, name_of(side, data.called))
        warnings += [NOT_CHECKED] * (not checked)
        warnings += [text for model in models.values() for text in model.warnings]
        notes = data_notes(data, known.truth, known.own)
        return cls(tuple(faults), tuple(dict.fromkeys(warnings)), tuple(notes), checked)

    @property
    def broken_reference(self) -> str:
        """The faults of a float score that is the reference itself; empty if there are none."""
        return "" if self.checked else " ".join(self.faults)

    @property
    def first(self) -> list[str]:
        """All sentences before the figures, without the verdict."""
        return [*self.faults, *self.warnings]

    def blocks(self, verdicts: Sequence[Block]) -> Iterator[Block]:
        """The same as blocks: faults, `verdicts`, then warnings."""
        yield from (Sentence(one, "verdict", "bad") for one in self.faults)
        yield from verdicts
        yield from (Note(one, tone="soft") for one in self.warnings)
