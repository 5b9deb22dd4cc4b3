"""Verify a bundle: every stage on the same data, every bit against ONNX Runtime, a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cimtool.base.arrays import Array
from cimtool.base.errors import ArgumentError, CimError, rows_of
from cimtool.base.progress import Say, silent
from cimtool.base.threads import side_by_side
from cimtool.bundle.bundle import FLOAT_FILE, Bundle
from cimtool.bundle.chip import check_one_source
from cimtool.bundle.dies import NoiseOptions, conditions_of
from cimtool.bundle.matcher import check_gallery
from cimtool.loading.calibration_rows import require_unseen, without_seen
from cimtool.loading.embeddings import Embeddings, require_rivals
from cimtool.passes.lower import LowerPass
from cimtool.passes.pipeline import stage_of
from cimtool.reference.limits import check_measurable, check_metrics
from cimtool.reference.metrics import RAW
from cimtool.simulation.die_program import Conditions
from cimtool.verification.bits import (
    REFERENCE_ROWS,
    BitCount,
    count_against_onnx,
    count_against_reference,
    outputs_of,
)
from cimtool.verification.bounds import drawn_pairs
from cimtool.verification.drift import DISTANCE, baseline_losses
from cimtool.verification.earlier import Earlier
from cimtool.verification.headline import DriftRows, find_drift
from cimtool.verification.layers import LayerFinding, layer_findings
from cimtool.verification.noisy import measure_chip, measure_dies
from cimtool.verification.notes import (
    clipping_warnings,
    notes_of,
    offset_of,
    surrogate_faults,
    surrogate_remarks,
    warnings_of,
)
from cimtool.verification.options import DriftOptions
from cimtool.verification.ranked_data import check_items, raw_products
from cimtool.verification.references import References
from cimtool.verification.render import write_junit, write_report
from cimtool.verification.report import (
    Report,
    VerificationFailed,
    make_checks,
    target_card,
    verified_bundle,
)
from cimtool.verification.saturation import Saturation, Stored, clipped_rows, stored_values
from cimtool.verification.sections import SectionInputs, measure_sections, section_values
from cimtool.verification.sensitivity import Sensitivity, causes_of, sensitivity
from cimtool.verification.stages import StageRuns, run_stages
from cimtool.verification.worth import in_larger_gallery, worth_of

ONLY_DROP = ArgumentError("which {bound} is for, or {calibration_rows} drop")
"""The way out of rows that the bundle was calibrated on: their errors are not those of new rows."""


def verify_bundle(
    bundle: Bundle,
    data: Embeddings,
    references: References | None = None,
    options: DriftOptions | None = None,
    folder: Path | None = None,
    earlier: Earlier | None = None,
    say: Say = silent,
) -> Report:
    """Measure what each stage cost on `data` and compare the implementations bit for bit.

    `data` has the widths (and unit rows) that the model takes; without `references` drift is
    against the exact score. The report goes into `folder` if one is given, its checks into the
    JUnit file, also if one fails: then VerificationFailed (a CheckFailed) is raised, for a bit that
    differs, a metric over its limit, a figure that is worse than in an `earlier` run. Raises
    CimError for an unknown metric, fewer than two rows of a modality and, if they are refused, rows
    that the bundle was calibrated on. A measured chip has a row of the drift table.
    """
    options, references = options or DriftOptions(), references or References()
    limits, noise = options.max_drift or {}, options.noise
    predicts_logit = bundle.model.head.predicts_logit
    chip = None if options.chip is None else Path(options.chip)
    check_metrics("max_drift", limits)
    check_one_source(noise, chip)
    times = () if noise is None else times_of(bundle, noise)
    trials = 0 if noise is None else noise.trials
    require_rivals(data)
    if options.calibration_rows == "refuse":
        require_unseen(bundle.calibration, data, bundle.name)
    if options.calibration_rows == "drop":
        if bundle.gallery is not None:
            raise ArgumentError(
                "{calibration_rows} drop cannot be used for {}, whose items are in its arrays; "
                "expected a bundle without a gallery, or {calibration_rows} allow",
                bundle.name,
            )
        (data,) = without_seen([bundle.calibration], [data], bundle.name)
    if data.labels is not None and not data.truth.ranks:
        raise CimError(
            f"{data.file}: no two items share a label, so no query has an answer; expected classes "
            "of several items, or no labels"
        )
    check_measurable("max_drift", limits, data.truth, data.file, predicts_logit)
    if earlier is not None:
        earlier.check(data, predicts_logit)
    check_gallery(bundle, data)
    check_items(options.gallery, data)
    if options.bound is not None:
        require_unseen(bundle.calibration, data, bundle.name, ONLY_DROP)
        drawn_pairs(data, options.bound, references.seed)

    head, seed = bundle.model.head, references.seed
    float_file = bundle.folder / FLOAT_FILE
    listed = None if bundle.gallery is None else bundle.gallery.shortlist
    with rows_of(data.file):
        runs = run_stages(bundle.stages, bundle.model, data, references, float_file, say, listed)
    bits, layers, parts, stored = _looked_into(bundle, data, runs, say)
    dies = tuple(measure_dies(bundle, time, trials, data, runs.table, seed, say) for time in times)
    if chip is not None:
        dies = (measure_chip(bundle, chip, data, runs.table, seed, say),)
    say("resampling queries")
    against = ((RAW, runs.table.stages[-1]), (DISTANCE, head.surrogate))
    exact = runs.scatter is not None and runs.scatter.is_exact
    sampled = (references.monte_carlo_name, references.samples) if exact else None
    resampled: list[Callable[[], Any]] = [
        partial(runs.table.finished, seed),
        partial(baseline_losses, runs.table, against, seed),
        partial(worth_of, runs.table, head.surrogate, sampled, runs.variance, seed, data.called),
    ]
    rows, baselines, worth = side_by_side(lambda call: call(), resampled)
    surrogate = next(row for row in rows if row.stage == head.surrogate)
    faults = surrogate_faults(
        surrogate, runs.scatter, head.measure, runs.jitter, baselines, data.truth.by_class
    )
    said = (*faults, *surrogate_remarks(surrogate, runs.scatter, head.measure))
    far = bool(said) or offset_of(surrogate, runs.scatter) is not None
    larger = None
    if options.gallery is not None and data.truth.ranks:
        raw = raw_products(data)
        larger = in_larger_gallery(runs.scores, raw, data.truth, options.gallery, seed)
    worth = replace(worth, broken=bool(faults), larger=larger)
    drift = find_drift(head, runs, DriftRows(rows, baselines, worth, dies), faults, data, seed)
    causes = causes_of(layers, parts, head, data, runs, drift)
    clipped = clipped_rows(bundle.program, data)
    warnings = warnings_of(bundle, data, runs, said, far)
    warnings += clipping_warnings(clipped, data.called)
    sections = measure_sections(
        SectionInputs(bundle, data, references, drift, runs.scores, options.bound)
    )
    beside = None
    if earlier is not None:
        beside = earlier.beside(drift, section_values(sections), data.truth, seed)
    unreliable = () if runs.scatter else faults
    report = Report(
        subject=verified_bundle(bundle, data, seed),
        drift=drift,
        checks=make_checks(bits, runs.finite, rows[-1], limits, unreliable, beside),
        saturation=Saturation(runs.domains, head.fitted_ranges is not None, stored, clipped),
        causes=causes,
        target=target_card(bundle.target),
        sections=sections,
        notes=notes_of(bundle, data, runs, warnings),
        warnings=warnings,
    )
    if folder is not None:
        write_report(report, folder)
    if options.junit is not None:
        write_junit(report, Path(options.junit))
    if report.failures:
        raise VerificationFailed(report)
    return report


def _looked_into(
    bundle: Bundle, data: Embeddings, runs: StageRuns, say: Say
) -> tuple[tuple[BitCount, ...], tuple[LayerFinding, ...], Sensitivity, tuple[Stored, ...]]:
    """The bits that differ, the errors of layers and of parts, and what formats clip.

    Side by side, those that take longest first.
    """
    lowered, compiled = stage_of(bundle.stages, LowerPass).program, runs.simulator
    rows: dict[str, Array] = {"text": data.text, "video": data.video}
    simulated = outputs_of(runs.features, runs.scores)
    calls: dict[str, Callable[[], Any]] = {
        "sensitivity: each part in integers alone, each left in real numbers": partial(
            sensitivity, bundle.stages, data
        ),
        f"the NumPy reference: {REFERENCE_ROWS} rows": partial(
            count_against_reference, compiled.program, rows, simulated
        ),
        "ONNX Runtime: all rows": partial(count_against_onnx, bundle, data, runs),
        "looking into the layers": partial(layer_findings, bundle.stages, data, simulator=compiled),
        "counting saturation": partial(stored_values, lowered, compiled, data),
    }

    def call(name: str) -> Any:
        say(name)
        return calls[name]()

    parts, readable, onnx, layers, stored = side_by_side(call, list(calls))
    return onnx + readable, layers, parts, stored


def times_of(bundle: Bundle, noise: NoiseOptions) -> tuple[Conditions, ...]:
    """Times at which dies are read: the earliest that is known, and the one asked for."""
    asked = conditions_of(bundle, noise)
    first = conditions_of(bundle, replace(noise, time=None))
    return (first,) if asked.seconds == first.seconds else (first, asked)
