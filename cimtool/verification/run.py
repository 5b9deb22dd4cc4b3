"""Verify a bundle: every stage on the same data, every bit against ONNX Runtime, a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from cimtool import __version__
from cimtool.base.arrays import Array, FloatArray
from cimtool.base.progress import Say, silent
from cimtool.bundle.bundle import SHORTLIST, Bundle
from cimtool.bundle.dies import NoiseOptions, conditions_of
from cimtool.bundle.estimate import estimate_bundle
from cimtool.bundle.gallery import check_gallery
from cimtool.costs.picture import placement_svg
from cimtool.costs.render import estimate_json
from cimtool.deployment.programming import recall
from cimtool.emit.runtime import Session
from cimtool.hardware.target import Target
from cimtool.ir.heads import Head, Span
from cimtool.ir.program import MODALITIES
from cimtool.loading.calibration_rows import require_unseen
from cimtool.loading.embeddings import Embeddings, require_rivals
from cimtool.loading.score import statistics_note
from cimtool.reference.queries import limit_metrics, once
from cimtool.simulation.die_program import Conditions
from cimtool.simulation.simulator import Features, Simulator
from cimtool.verification.bits import (
    REFERENCE,
    REFERENCE_ROWS,
    BitCount,
    compare_implementations,
    compare_with_reference,
    count_differences,
    few_rows,
)
from cimtool.verification.drift import Row, Table
from cimtool.verification.evaluate import Evaluation, evaluate, real_means
from cimtool.verification.files import write_report
from cimtool.verification.headline import Headline, headline, surrogate_faults
from cimtool.verification.layers import layer_findings
from cimtool.verification.limits import check_limits, check_metrics
from cimtool.verification.margins import Margin, RecallCurve, margins, pair_sample, recall_curves
from cimtool.verification.noisy import Noisy, measure_dies
from cimtool.verification.references import References
from cimtool.verification.report import DataCard, Report, TargetFigure, VerificationFailed
from cimtool.verification.saturation import stored_values
from cimtool.verification.sensitivity import Sensitivity, advice, sensitivity

FEW_QUERIES = 200
MOST = 0.5
"""A larger share of queries whose compiled scores are all equal is a warning."""

DOMINANT = 2.0
"""A surrogate so many times as far off as what the compiler adds is four fifths of the squares."""

ALIKE = 1e-9
"""Statistics that differ by no larger share are the same but for float64's rounding."""

ONNX_ROW = "ONNX Runtime"


def verify_bundle(
    bundle: Bundle,
    data: Embeddings,
    references: References | None = None,
    limits: Mapping[str, float] | None = None,
    folder: Path | None = None,
    say: Say = silent,
    noise: NoiseOptions | None = None,
    seen_rows: bool = False,
) -> Report:
    """Measure what each stage cost on `data` and compare the implementations bit for bit.

    `data` has the widths (and unit rows) that the model takes; without `references` drift is
    against the exact score. The report goes into `folder` where
    one is given, also where a check fails: then VerificationFailed (a CheckFailed) is raised, for a
    bit that differs or a metric over its limit in `limits`. Raises CimError for an unknown metric,
    fewer than two rows of a modality and, unless `seen_rows`, rows that the bundle was calibrated
    on.
    """
    check_metrics("max_drift", limits or {})
    report = measure(bundle, data, references or References(), limits or {}, say, noise, seen_rows)
    if folder is not None:
        write_report(report, folder)
    if report.failed:
        raise VerificationFailed(report)
    return report


def measure(
    bundle: Bundle,
    data: Embeddings,
    references: References,
    limits: Mapping[str, float],
    say: Say = silent,
    noise: NoiseOptions | None = None,
    seen_rows: bool = False,
) -> Report:
    """Make the report of a bundle, whatever the checks find; arguments as of `verify_bundle`."""
    times = () if noise is None else times_of(bundle, noise)
    require_rivals(data)
    if not seen_rows:
        require_unseen(bundle.calibration, data, bundle.name)
    check_gallery(bundle, data)
    found = evaluate(bundle.stages, bundle.model, data, references, say)
    bits = _check_bits(bundle, data, found, say)
    noisy = tuple(
        measure_dies(bundle, one, noise.trials, data, found.table, references.seed, say)
        for one in times
        if noise is not None
    )
    say("resampling queries")
    rows = found.table.finished(references.seed)
    head = bundle.model.head
    score = head.measure
    metrics = _limit_metrics(found.table)
    say("looking into the layers")
    layers = layer_findings(bundle.stages, data, simulator=found.simulator)
    say("sensitivity: each part in integers alone, each left in real numbers")
    sensitive = sensitivity(bundle.stages, data)
    surrogate = next(row for row in rows if row.stage == head.surrogate)
    faults = surrogate_faults(surrogate, found.scatter, score, found.jitter)
    first = headline(rows, found.reference.name, found.scatter, score, faults, head.surrogate)
    first = with_dies(first, noisy, rows[-1], score)
    say("counting saturation")
    lowered = next(stage for stage in bundle.stages if stage.name == "lowered")
    estimate = estimate_bundle(bundle, references.samples, len(data.video))
    return Report(
        bundle=bundle.name,
        model=bundle.model.name,
        target=bundle.target.name,
        fidelity=bundle.target.class_,
        score=score,
        surrogate=head.surrogate,
        data=DataCard(data.file, len(data.text), len(data.video), data.labels is not None),
        seed=references.seed,
        reference=found.reference,
        scatter=found.scatter,
        headline=first,
        rows=rows,
        noisy=noisy,
        margins=_margins(found, rows[-1], data),
        curves=_curves(found.table, rows, data, head.surrogate),
        pairs=pair_sample(found.table.scores, found.scores, data.right, references.seed),
        bits=bits,
        domains=found.domains,
        stored=stored_values(lowered.program, found.simulator, data),
        layers=layers,
        sensitivity=sensitive,
        advice=(
            (f"measure on other data: {_alike(head, data)}",)
            if pairs_alike(found.statistics)
            else _advice(head, first, sensitive, noisy)
        ),
        metrics=metrics,
        limits=check_limits(limits, metrics),
        notes=_notes(bundle, data, found, faults),
        unmodelled=bundle.target.unmodelled,
        cost=estimate_json(estimate, bundle.name),
        figures=_figures(bundle.target),
        settings=bundle.settings.to_json(),
        provenance=_provenance(bundle),
        placement=placement_svg(
            estimate.placements, estimate.layout, f"{bundle.name} on {bundle.target.name}"
        ),
    )


def times_of(bundle: Bundle, noise: NoiseOptions) -> tuple[Conditions, ...]:
    """When dies are read: at the earliest that is known, and at the time asked for."""
    asked = conditions_of(bundle, noise)
    first = conditions_of(bundle, replace(noise, time=None))
    return (first,) if asked.seconds == first.seconds else (first, asked)


def with_dies(found: Headline, noisy: Sequence[Noisy], compiled: Row, score: str) -> Headline:
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


def _advice(
    head: Head, first: Headline, sensitive: Sensitivity, noisy: Sequence[Noisy]
) -> tuple[str, ...]:
    """What to change next: the surrogate first where it costs most by far, then the devices."""
    dominates = (first.surrogate_rmse or 0.0) > DOMINANT * first.compiled_rmse
    if first.cause == head.surrogate and (first.surrogate_broken or dominates):
        return (f"{head.remedy}: no setting of the hardware mends the surrogate",)
    if first.cause in [row.stage for one in noisy for row in one.rows]:
        return (
            "the devices cost most: no bits of a layer mend that; try another compensation than "
            f"{noisy[-1].compensation}, other cell_bits, or another target",
        )
    return (advice(sensitive, head.measure),)


def pairs_alike(statistics: Mapping[str, Span]) -> bool:
    """Whether all pairs have the same statistics: then it is the data that tell nothing."""
    return bool(statistics) and all(hi - lo <= ALIKE * abs(hi) for lo, hi in statistics.values())


def _alike(head: Head, data: Embeddings) -> str:
    return f"{data.file}: all pairs have the same {' and '.join(head.statistics)}"


def _figures(target: Target) -> tuple[TargetFigure, ...]:
    return tuple(
        TargetFigure(f.quantity, f.value, f.unit, f.scope, f.status, f.source)
        for f in target.figures
    )


def _margins(found: Evaluation, compiled: Row, data: Embeddings) -> tuple[Margin, ...]:
    if compiled.drift is None or len(data.video) < 2:
        return ()
    return margins(found.table.scores, found.scores, data.right)


def _curves(
    table: Table, rows: Sequence[Row], data: Embeddings, surrogate: str
) -> tuple[RecallCurve, ...]:
    """Of the reference, the float score and the compiled model."""
    names = [row.stage for row in rows]
    first = next(i for i, one in enumerate(table.queries) if "rank" in one.text)
    shown = dict.fromkeys((first, names.index(surrogate), len(rows) - 1))
    texts = np.bincount(data.right, minlength=len(data.video))
    return recall_curves([(names[i], table.queries[i]) for i in shown], texts)


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


def _limit_metrics(table: Table) -> dict[str, float]:
    """What a limit can be put on, of the last row against the reference's row.

    That is the float score's where no other reference is known.
    """
    against = next(one for one in table.queries if "rank" in one.text)
    return limit_metrics(once(table.queries[-1]), once(against))


def _notes(
    bundle: Bundle, data: Embeddings, found: Evaluation, faults: Sequence[str]
) -> tuple[str, ...]:
    notes = []
    head = bundle.model.head
    if pairs_alike(found.statistics):
        notes.append(f"warning: {_alike(head, data)}, so every pair gets the same score")
    elif head.constant_over(found.statistics):
        notes.append(
            f"warning: the {head.surrogate} is constant over these pairs, so every pair gets the "
            "same score; fit another one (`cimtool fit`)"
        )
    else:
        notes += [f"warning: {text}" for text in all_equal(found.scores)]
    warnings: list[str | None] = [*bundle.model.warnings, *faults]
    if faults and head.takes_polynomial:
        warnings.append(statistics_note(bundle.model.layout, bundle.model.dimension))
    warnings += [domain.warning() for domain in found.domains]
    notes += [f"warning: {text}" for text in warnings if text]
    if not head.is_sampled:
        notes.append(head.unsampled_note)
    elif found.scatter is None:
        notes.append(
            "the teacher's a and b are not known, so the exact and Monte Carlo rows are not known "
            "and drift is measured against the float polynomial; compile with them"
        )
    if data.alone:
        notes.append(
            "items of one modality: the right one of each is itself, so ranks say nothing of "
            "retrieval; `cimtool evaluate` leaves it out and counts its class"
        )
    notes += few_queries(len(data.text), len(np.unique(found.table.truth.text_to_video)))
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


def all_equal(scores: FloatArray, what: str = "compiled scores") -> list[str]:
    """A sentence where scores [n, m] are constant, over all pairs or within queries.

    Queries are texts, then videos; one with a single item to rank says nothing.
    """
    if scores.size > 1 and np.ptp(scores) == 0:
        return [f"the {what} are constant: every pair gets the same score"]
    found = []
    for axis, queries in ((1, "texts"), (0, "videos")):
        share = float(np.mean(np.ptp(scores, axis=axis) == 0))
        if scores.shape[axis] > 1 and share > MOST:
            found.append(
                f"the {what} are all equal within {share:.1%} of the queries ({queries}), "
                "so they rank nothing there"
            )
    return found


def few_queries(texts: int, videos: int) -> list[str]:
    """A sentence where so few texts or videos are queries that R@1 means little."""
    fewest, which = min((texts, "texts"), (videos, "videos"))
    if fewest >= FEW_QUERIES:
        return []
    return [f"only {fewest} {which} are queries: below {FEW_QUERIES}, R@1 means little"]


def _provenance(bundle: Bundle) -> dict[str, object]:
    names = ("cimtool_version", "inputs", "files", "notes")
    return {"verified_with": __version__} | {n: bundle.manifest[n] for n in names}
