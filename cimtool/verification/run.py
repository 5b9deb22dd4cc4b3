"""Verify a bundle: every stage on the same data, every bit against ONNX Runtime, a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cimtool.base.errors import ArgumentError, rows_of
from cimtool.base.progress import Say, silent
from cimtool.bundle.bundle import FLOAT_FILE, Bundle
from cimtool.bundle.chip import check_one_source
from cimtool.bundle.dies import NoiseOptions, conditions_of
from cimtool.bundle.matcher import check_gallery
from cimtool.loading.calibration_rows import SeenRows, require_unseen, without_seen
from cimtool.loading.embeddings import Embeddings, require_rivals
from cimtool.passes.lower import LowerPass
from cimtool.passes.pipeline import stage_of
from cimtool.reference.limits import check_measurable, check_metrics
from cimtool.reference.metrics import RAW
from cimtool.simulation.die_program import Conditions
from cimtool.verification.baselines import DISTANCE, baseline_losses
from cimtool.verification.bits import count_bits
from cimtool.verification.earlier import Earlier
from cimtool.verification.faults import surrogate_faults
from cimtool.verification.headline import find_drift
from cimtool.verification.junit import write_junit
from cimtool.verification.noisy import measure_chip, measure_dies
from cimtool.verification.notes import notes_of, warnings_of
from cimtool.verification.references import References
from cimtool.verification.render import write_report
from cimtool.verification.report import Report, VerificationFailed, make_checks, verified_bundle
from cimtool.verification.saturation import Saturation, stored_values
from cimtool.verification.sensitivity import find_causes
from cimtool.verification.stages import run_stages


def verify_bundle(
    bundle: Bundle,
    data: Embeddings,
    references: References | None = None,
    limits: Mapping[str, float] | None = None,
    folder: Path | None = None,
    say: Say = silent,
    noise: NoiseOptions | None = None,
    seen_rows: SeenRows = "refuse",
    chip: Path | None = None,
    earlier: Earlier | None = None,
    junit: Path | None = None,
) -> Report:
    """Measure what each stage cost on `data` and compare the implementations bit for bit.

    `data` has the widths (and unit rows) that the model takes; without `references` drift is
    against the exact score. The report goes into `folder` where one is given, its checks into the
    JUnit file `junit`, also where one fails: then VerificationFailed (a CheckFailed) is raised, for
    a bit that differs, a metric over its limit in `limits`, a figure that is worse than in an
    `earlier` run. Raises CimError for an unknown metric, fewer than two rows of a
    modality and, where `seen_rows` says so, rows that the bundle was calibrated on. With `chip`,
    the folder of a measured one, it has a row of the drift table.
    """
    limits, references = limits or {}, references or References()
    check_metrics("max_drift", limits)
    check_one_source(noise, chip)
    times = () if noise is None else times_of(bundle, noise)
    trials = 0 if noise is None else noise.trials
    require_rivals(data)
    if seen_rows == "refuse":
        require_unseen(bundle.calibration, data, bundle.name)
    if seen_rows == "drop":
        if bundle.gallery is not None:
            raise ArgumentError(
                "{drop_calibration_rows} is not for {}, whose items are in its arrays; expected a "
                "bundle without a gallery, or {allow_calibration_rows}",
                bundle.name,
            )
        (data,) = without_seen([bundle.calibration], [data], bundle.name)
    check_measurable("max_drift", limits, data.truth, data.file)
    if earlier is not None:
        earlier.check(data)
    check_gallery(bundle, data)

    head, seed = bundle.model.head, references.seed
    float_file = bundle.folder / FLOAT_FILE
    with rows_of(data.file):
        runs = run_stages(bundle.stages, bundle.model, data, references, float_file, say)
    bits = count_bits(bundle, data, runs, say)
    dies = tuple(measure_dies(bundle, time, trials, data, runs.table, seed, say) for time in times)
    if chip is not None:
        dies = (measure_chip(bundle, chip, data, runs.table, seed, say),)
    say("resampling queries")
    rows = runs.table.finished(seed)
    surrogate = next(row for row in rows if row.stage == head.surrogate)
    against = ((RAW, rows[-1].stage), (DISTANCE, head.surrogate))
    baselines = baseline_losses(runs.table, against, seed)
    faults = surrogate_faults(surrogate, runs.scatter, head.measure, runs.jitter, baselines)
    drift = find_drift(head, runs, rows, faults, baselines, dies, data, seed)
    causes = find_causes(bundle, data, runs, drift, say)
    say("counting saturation")
    warnings = warnings_of(bundle, data, runs, faults)
    lowered = stage_of(bundle.stages, LowerPass).program
    estimate = bundle.estimate(references.samples, len(data.video))
    beside = None if earlier is None else earlier.beside(drift, estimate, data.truth, seed)
    report = Report(
        verified_bundle(bundle, data, seed),
        drift,
        make_checks(bits, runs.finite, rows[-1], limits, () if runs.scatter else faults, beside),
        Saturation(runs.domains, stored_values(lowered, runs.simulator, data)),
        causes,
        estimate,
        notes_of(bundle, data, runs, warnings),
        warnings,
    )
    if folder is not None:
        write_report(report, folder)
    if junit is not None:
        write_junit(report, junit)
    if report.failures:
        raise VerificationFailed(report)
    return report


def times_of(bundle: Bundle, noise: NoiseOptions) -> tuple[Conditions, ...]:
    """Times at which dies are read: the earliest that is known, and the one asked for."""
    asked = conditions_of(bundle, noise)
    first = conditions_of(bundle, replace(noise, time=None))
    return (first,) if asked.seconds == first.seconds else (first, asked)
