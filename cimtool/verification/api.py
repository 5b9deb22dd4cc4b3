"""The library's functions of this room: verify a bundle, compare several."""

from __future__ import annotations

from pathlib import Path

from cimtool.base.files import REPORT_FILES, check_folder, keeping_inputs, require_kept
from cimtool.base.options import takes
from cimtool.base.progress import Say, silent
from cimtool.bundle.matcher import open_bundle
from cimtool.verification.compare import BundleComparison, compare_bundles
from cimtool.verification.earlier import earlier_of
from cimtool.verification.options import CompareOptions, DriftOptions, VerifyOptions
from cimtool.verification.ranked_data import ranked_data
from cimtool.verification.references import References
from cimtool.verification.render import remove_earlier
from cimtool.verification.report import Report
from cimtool.verification.run import verify_bundle


@keeping_inputs
@takes(VerifyOptions)
def verify(options: VerifyOptions, say: Say = silent) -> Report:
    """Measure what each stage of a bundle cost on `data`, and check it bit for bit.

    With a file `qrels`, pairs graded above 0 are right. Drift is against the exact score, or with
    `reference="mc"` against Monte Carlo. With `noise` the report has rows of the median die and of
    the worst in twenty, at the earliest time and at the one asked for; with `chip`, the folder of a
    measured one, a row of that. Writes `report.html`, `report.json` and `report.md`, and the checks
    into a file `junit`, of which an earlier one is removed at once. With `baseline` the runs are
    paired query by query, and what is surely worse by more than its `tolerance` fails. The verdict
    beside raw rows holds among the videos of `data` and the `distractors`, or for a larger
    `gallery`, to which R@1 is extrapolated. Raises
    CheckFailed if a bit differs, or a metric is over its limit in `max_drift` or worse than in the
    baseline.
    """
    if options.junit is not None:
        remove_earlier(Path(options.junit))
    references = References(options.reference, options.samples, options.seed, options.all_pairs)
    bundle = open_bundle(options.bundle)
    folder = bundle.folder if options.report is None else Path(options.report)
    earlier = earlier_of(options.baseline, options.tolerance, folder)
    check_folder(folder)
    for name in REPORT_FILES:
        require_kept(folder / name)
    data = ranked_data(bundle.model, options.data, options.qrels, options.distractors)
    return verify_bundle(bundle, data, references, options, folder, earlier, say)


@takes(CompareOptions)
def compare(options: CompareOptions, say: Say = silent) -> BundleComparison:
    """Verify several bundles on the same data, to put them side by side; nothing is written.

    With a file `qrels`, pairs graded above 0 are right; `distractors` and `gallery` are as in
    `verify`. Raises CheckFailed if a bit differs.
    """
    references = References(options.reference, options.samples, options.seed, options.all_pairs)
    bundles = [open_bundle(bundle) for bundle in options.bundles]
    asked = options.data, options.qrels, options.distractors
    rows = [ranked_data(one.model, *asked) for one in bundles]
    measured = DriftOptions(calibration_rows=options.calibration_rows, gallery=options.gallery)
    return compare_bundles(bundles, rows, references, measured, say)
