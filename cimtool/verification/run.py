"""Verify a bundle: every stage on the same data, every bit against ONNX Runtime, a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from cimtool import __version__
from cimtool.arrays import Array, FloatArray
from cimtool.dies import NoiseOptions, conditions_of
from cimtool.emit.bundle import SHORTLIST, Bundle
from cimtool.emit.runtime import Session
from cimtool.errors import CimError
from cimtool.ir.program import MODALITIES
from cimtool.loading.embeddings import Embeddings
from cimtool.programmed import features_sha256, recall
from cimtool.progress import Say, silent
from cimtool.reference.metrics import limit_metrics
from cimtool.simulator import Features, Simulator
from cimtool.verification.bits import (
    REFERENCE,
    REFERENCE_ROWS,
    BitCount,
    compare_implementations,
    compare_with_reference,
    count_differences,
    few_rows,
)
from cimtool.verification.drift import POLYNOMIAL, Row, Truth
from cimtool.verification.evaluate import Evaluation, ReferenceScores, evaluate, real_means
from cimtool.verification.files import write_report
from cimtool.verification.headline import Headline, headline, surrogate_warning
from cimtool.verification.limits import check_limits, check_metric
from cimtool.verification.noisy import Noisy, measure_dies
from cimtool.verification.report import DataCard, Report, VerificationFailed
from cimtool.verification.saturation import stored_values

DEFAULT_SAMPLES = 10
FEW_QUERIES = 200
MOST = 0.5
"""A larger share of queries whose compiled scores are all equal is a warning."""

ONNX_ROW = "ONNX Runtime"


def verify_bundle(
    bundle: Bundle,
    data: Embeddings,
    samples: int | None = None,
    seed: int = 0,
    limits: Mapping[str, float] | None = None,
    folder: Path | None = None,
    say: Say = silent,
    noise: NoiseOptions | None = None,
) -> Report:
    """Measure what each stage cost on `data` and compare the implementations bit for bit.

    `data` has the widths (and unit rows) that the model takes. The report goes into `folder` where
    one is given, also where a check fails: then VerificationFailed (a CheckFailed) is raised, for a
    bit that differs or a metric over its limit in `limits`. Raises CimError for an unknown metric.
    """
    for metric in limits or {}:
        check_metric(metric)
    reference = ReferenceScores(DEFAULT_SAMPLES if samples is None else samples, seed)
    report = measure(bundle, data, reference, limits or {}, say, noise)
    if folder is not None:
        write_report(report, folder)
    if report.failed:
        raise VerificationFailed(report)
    return report


def measure(
    bundle: Bundle,
    data: Embeddings,
    reference: ReferenceScores,
    limits: Mapping[str, float],
    say: Say = silent,
    noise: NoiseOptions | None = None,
) -> Report:
    """Make the report of a bundle, whatever the checks find."""
    conditions = None if noise is None else conditions_of(bundle, noise)
    check_gallery(bundle, data)
    found = evaluate(bundle.stages, bundle.model, data, reference, say)
    bits = _check_bits(bundle, data, found, say)
    score = "logit" if bundle.model.polynomial.fit_logit else "score"
    rows = tuple(found.table.rows)
    noisy = None
    if noise is not None and conditions is not None:
        noisy = measure_dies(bundle, conditions, noise.trials, data, found.table, say)
    metrics = _limit_metrics(rows)
    say("counting saturation")
    lowered = next(stage for stage in bundle.stages if stage.name == "lowered")
    return Report(
        bundle=bundle.name,
        model=bundle.model.name,
        target=bundle.target.name,
        fidelity=bundle.target.class_,
        score=score,
        data=DataCard(data.file, len(data.text), len(data.video), data.labels is not None),
        seed=reference.seed,
        reference=found.reference,
        headline=with_dies(headline(rows, found.reference, score), noisy, rows[-1], score),
        rows=rows,
        bits=bits,
        domains=found.domains,
        stored=stored_values(lowered.program, found.simulator, data),
        metrics=metrics,
        limits=check_limits(limits, metrics),
        notes=_notes(bundle, data, found),
        settings=bundle.settings.to_json(),
        provenance=_provenance(bundle),
        noisy=noisy,
    )


def with_dies(found: Headline, noisy: Noisy | None, compiled: Row, score: str) -> Headline:
    """The headline with what dies keep of the compiled model, where any were drawn."""
    if noisy is None:
        return found
    return replace(found, sentences=(*found.sentences, *noisy.sentences(compiled, score)))


def _check_bits(
    bundle: Bundle, data: Embeddings, found: Evaluation, say: Say
) -> tuple[BitCount, ...]:
    """Add the ONNX row to the table and compare all implementations with the simulator."""
    say("ONNX Runtime: all rows")
    rows: dict[str, Array] = {"text": data.text, "video": data.video}
    features: dict[str, Features] = {
        m: Session(bundle.folder / f"{m}.onnx").encode(rows[m]) for m in MODALITIES
    }
    scorer = Session(bundle.folder / "score.onnx")
    scores = scorer.score(features["text"], features["video"])
    counts = compare_implementations(
        ONNX_ROW,
        (found.features["text"], features["text"]),
        (found.features["video"], features["video"]),
        (found.scores, scores),
    )
    found.table.add(ONNX_ROW, scores, *real_means(bundle.program, features))
    if bundle.program.shortlist is not None:
        counts += _check_shortlist(bundle, found, features["text"])
    say(f"the NumPy reference: {REFERENCE_ROWS} rows")
    program = found.simulator.program
    return counts + compare_with_reference(program, rows, found.features, found.scores)


def _check_shortlist(bundle: Bundle, found: Evaluation, text: Features) -> tuple[BitCount, ...]:
    """Compare the `ed` of all pairs by which items are shortlisted."""
    simulated = np.concatenate(
        [ed for _, ed in found.simulator.iter_distances(found.features["text"])]
    )
    other = Session(bundle.folder / SHORTLIST).distances(text, simulated.shape[1])
    readable = Simulator(bundle.program, fast=False)
    few = few_rows(simulated.shape[1])
    first = {name: value[:few] for name, value in found.features["text"].items()}
    (_, reference), *_ = readable.iter_distances(first)
    return (
        count_differences(ONNX_ROW, "shortlist.ed", simulated, other),
        count_differences(REFERENCE, "shortlist.ed", simulated[: len(reference)], reference),
    )


def _limit_metrics(rows: tuple[Row, ...]) -> dict[str, float]:
    """What a limit can be put on, of the last row against the reference's row.

    The reference is Monte Carlo's row where it is known, otherwise the polynomial's.
    """
    compiled = rows[-1]
    against = rows[0] if rows[0].retrieval else next(r for r in rows if r.stage == POLYNOMIAL)
    if compiled.drift is None or compiled.retrieval is None or against.retrieval is None:
        raise TypeError("the last row has no drift")
    return limit_metrics(compiled.drift, compiled.retrieval, against.retrieval)


def _notes(bundle: Bundle, data: Embeddings, found: Evaluation) -> tuple[str, ...]:
    notes = []
    if bundle.model.polynomial.is_constant(*found.statistics):
        notes.append(
            "warning: the polynomial is constant over these pairs, so every pair gets the same "
            "score; fit another one (`cimtool fit`)"
        )
    else:
        notes += [f"warning: {text}" for text in _all_equal(found.scores)]
    warnings = [surrogate_warning(found.table.rows, found.reference)]
    warnings += [domain.warning() for domain in found.domains]
    notes += [f"warning: {text}" for text in warnings if text]
    if found.reference.standard_error is None:
        notes.append(
            "the teacher's a and b are not known, so Monte Carlo's row is not known and drift is "
            "measured against the float polynomial; compile with --a and --b"
        )
    notes += _few(found.table.truth, len(data.text))
    if bundle.gallery is not None and bundle.gallery.shortlist is not None:
        notes.append(_recall_note(bundle.gallery.shortlist, found))
    if data.labels is not None and found.table.truth.text_labels is None:
        notes.append("mAP is left out: texts of one video have different labels")
    notes += [f"not modelled: {text}" for text in bundle.target.unmodelled]
    return tuple(notes)


def _recall_note(shortlist: int, found: Evaluation) -> str:
    best, ten = recall(found.scores, found.simulator, found.features["text"], shortlist)
    return (
        f"hybrid score: the scores above are the exact ones of all pairs; the shortlist of "
        f"{shortlist} holds the best item of {best:.1%} of the queries and {ten:.1%} of their best "
        "ten"
    )


def check_gallery(bundle: Bundle, data: Embeddings) -> None:
    """Raise CimError where a bundle holds a gallery and the videos of `data` are not its items."""
    gallery = bundle.gallery
    if gallery is None:
        return
    if len(data.video) == gallery.items:
        video = Simulator(bundle.program).encode("video", data.video)
        if features_sha256(video) == gallery.features:
            return
    raise CimError(
        f"{data.file}: its {len(data.video)} videos are not the gallery of {gallery.items} items "
        f"that {bundle.name} holds ({gallery.file}); expected these rows in this order"
    )


def _all_equal(scores: FloatArray) -> list[str]:
    """A sentence where the compiled scores [n, m] are constant, over all pairs or within queries.

    Queries are texts, then videos; one with a single item to rank says nothing.
    """
    if scores.size > 1 and np.ptp(scores) == 0:
        return ["the compiled scores are constant: every pair gets the same score"]
    found = []
    for axis, queries in ((1, "texts"), (0, "videos")):
        share = float(np.mean(np.ptp(scores, axis=axis) == 0))
        if scores.shape[axis] > 1 and share > MOST:
            found.append(
                f"the compiled scores are all equal within {share:.1%} of the queries ({queries}), "
                "so they rank nothing there"
            )
    return found


def _few(truth: Truth, texts: int) -> list[str]:
    videos = len(np.unique(truth.text_to_video))
    fewest, which = min((texts, "texts"), (videos, "videos"))
    if fewest >= FEW_QUERIES:
        return []
    return [f"only {fewest} {which} are queries: below {FEW_QUERIES}, R@1 means little"]


def _provenance(bundle: Bundle) -> dict[str, object]:
    names = ("cimtool_version", "inputs", "files", "notes")
    return {"verified_with": __version__} | {n: bundle.manifest[n] for n in names}
