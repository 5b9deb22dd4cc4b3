"""The library's functions of this room: verify a bundle, compare several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cimtool.base.files import REPORT_FILES, check_folder, keeping_inputs, require_kept
from cimtool.base.progress import Say, silent
from cimtool.bundle.dies import NoiseOptions
from cimtool.bundle.matcher import open_bundle
from cimtool.loading.calibration_rows import seen_rows
from cimtool.loading.embeddings import EmbeddingsLike, File, read_data
from cimtool.loading.qrels import judged_data
from cimtool.reference.montecarlo import DEFAULT_SAMPLES
from cimtool.verification.compare import BundleComparison, compare_bundles
from cimtool.verification.earlier import earlier_of
from cimtool.verification.junit import remove_earlier
from cimtool.verification.references import ReferenceKind, References
from cimtool.verification.report import Report
from cimtool.verification.run import verify_bundle


@keeping_inputs
def verify(
    bundle: File,
    data: EmbeddingsLike,
    *,
    reference: ReferenceKind = "exact",
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    max_drift: Mapping[str, float] | None = None,
    report: File | None = None,
    baseline: File | None = None,
    tolerance: Mapping[str, float] | None = None,
    junit: File | None = None,
    noise: NoiseOptions | None = None,
    chip: File | None = None,
    qrels: File | None = None,
    allow_calibration_rows: bool = False,
    drop_calibration_rows: bool = False,
    say: Say = silent,
) -> Report:
    """Measure what each stage of a bundle cost on `data`, and check it bit for bit.

    With a file `qrels` right is what it grades above 0. Drift is against the exact score, or with
    `reference="mc"` against Monte Carlo of `samples` a side (default: 10). With `noise` the report
    has rows of the median die and of the worst in twenty, at the earliest time and at the one asked
    for; with `chip`, the folder of a measured one, a row of that. Rows that the bundle was
    calibrated on are refused, or with `allow_calibration_rows` measured too, or with
    `drop_calibration_rows` left out. Writes `report.html`, `report.json` and `report.md` into
    `report` (default: the bundle's folder), and the checks as JUnit XML into a file `junit`, of
    which an earlier one is removed at once.
    With `baseline`, the `report.json` of an earlier run on the same data, the runs are paired query
    by query, and what is surely worse by more than its `tolerance` fails.
    Raises CheckFailed where a bit differs, a metric is over its limit in `max_drift`, or worse than
    in the baseline.
    """
    if junit is not None:
        remove_earlier(Path(junit))
    references, opened = References(reference, samples, seed), open_bundle(bundle)
    folder = opened.folder if report is None else Path(report)
    earlier = earlier_of(baseline, tolerance, folder)
    check_folder(folder)
    for name in REPORT_FILES:
        require_kept(folder / name)
    return verify_bundle(
        opened,
        read_data(judged_data(data, qrels, opened.model.modalities), opened.model),
        references,
        max_drift,
        folder,
        say,
        noise,
        seen_rows(allow_calibration_rows, drop_calibration_rows),
        None if chip is None else Path(chip),
        earlier,
        None if junit is None else Path(junit),
    )


def compare(
    bundles: Sequence[File],
    data: EmbeddingsLike,
    *,
    reference: ReferenceKind = "exact",
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    qrels: File | None = None,
    allow_calibration_rows: bool = False,
    drop_calibration_rows: bool = False,
    say: Say = silent,
) -> BundleComparison:
    """Verify several bundles on the same data, to put them side by side; nothing is written.

    With a file `qrels` right is what it grades above 0. Raises CheckFailed where a bit differs.
    """
    references = References(reference, samples, seed)
    opened = [open_bundle(bundle) for bundle in bundles]
    rows = [read_data(judged_data(data, qrels, one.model.modalities), one.model) for one in opened]
    seen = seen_rows(allow_calibration_rows, drop_calibration_rows)
    return compare_bundles(opened, rows, references, say, seen)
