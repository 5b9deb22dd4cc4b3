"""Types of the library's functions, which `api` itself loads on first use.

Written by docs/stubs.py.
"""

from collections.abc import Mapping, Sequence

from cimtool.base.progress import Say
from cimtool.bundle.api import Compilation as Compilation
from cimtool.bundle.api import Matcher as Matcher
from cimtool.bundle.api import compile as compile
from cimtool.bundle.api import load as load
from cimtool.bundle.api import prepare as prepare
from cimtool.bundle.api import simulate as simulate
from cimtool.bundle.dies import NoiseOptions
from cimtool.costs.estimate import Estimate
from cimtool.experiments.api import evaluate as evaluate
from cimtool.experiments.api import sweep as sweep
from cimtool.experiments.api import train_grid as train_grid
from cimtool.experiments.api import tune as tune
from cimtool.galleries.api import change_gallery as change_gallery
from cimtool.galleries.api import encode as encode
from cimtool.galleries.api import program as program
from cimtool.galleries.api import program_cam as program_cam
from cimtool.galleries.api import search as search
from cimtool.loading.api import ModelSource as ModelSource
from cimtool.loading.api import read_data as read_data
from cimtool.loading.calibration_rows import SeenRows
from cimtool.loading.embeddings import EmbeddingsLike, File
from cimtool.training.api import fine_tune as fine_tune
from cimtool.training.api import fit as fit
from cimtool.training.api import teacher as teacher
from cimtool.training.api import train as train
from cimtool.verification.compare import BundleComparison
from cimtool.verification.references import ReferenceKind
from cimtool.verification.report import Report

NAMES: dict[str, tuple[str, ...]]

def verify(
    bundle: File,
    data: EmbeddingsLike,
    *,
    qrels: File | None = None,
    reference: ReferenceKind = "exact",
    samples: int = 10,
    seed: int = 0,
    calibration_rows: SeenRows = "refuse",
    max_drift: Mapping[str, float] | None = None,
    junit: File | None = None,
    noise: NoiseOptions | None = None,
    chip: File | None = None,
    baseline: File | None = None,
    tolerance: Mapping[str, float] | None = None,
    report: File | None = None,
    say: Say = ...,
) -> Report:
    """Measure what each stage of a bundle cost on `data`, and check it bit for bit.

    With a file `qrels` right is what it grades above 0. Drift is against the exact score, or with
    `reference="mc"` against Monte Carlo. With `noise` the report has rows of the median die and of
    the worst in twenty, at the earliest time and at the one asked for; with `chip`, the folder of a
    measured one, a row of that. Writes `report.html`, `report.json` and `report.md`, and the checks
    into a file `junit`, of which an earlier one is removed at once. With `baseline` the runs are
    paired query by query, and what is surely worse by more than its `tolerance` fails. Raises
    CheckFailed if a bit differs, or a metric is over its limit in `max_drift` or worse than in the
    baseline.

    * `bundle`: The bundle's folder.
    * `data`: Embeddings to measure on.
    * `qrels`: Judgements of what is right: lines of text, 0, video, grade (TREC qrels).
    * `reference`: Reference of drift: the exact score, or mc, Monte Carlo. [default: exact]
    * `samples`: Monte Carlo samples a side. [default: 10]
    * `seed`: Seed of all random draws. [default: 0]
    * `calibration_rows`: Rows that the bundle was calibrated on: refuse, allow (measure them
      too) or drop (leave them out, with their pairs). [default: refuse]
    * `max_drift`: Fail above this value.
    * `junit`: Write the checks as JUnit XML (.xml).
    * `noise`: Draw dies with the target's noise.
    * `chip`: A measured chip in place of drawn dies.
    * `baseline`: An earlier report.json; fail where worse than it.
    * `tolerance`: Fail only where surely worse than the baseline by more than this.
    * `report`: Folder of the report [default: the bundle].
    """

def compare(
    bundles: Sequence[File],
    data: EmbeddingsLike,
    *,
    qrels: File | None = None,
    reference: ReferenceKind = "exact",
    samples: int = 10,
    seed: int = 0,
    calibration_rows: SeenRows = "refuse",
    say: Say = ...,
) -> BundleComparison:
    """Verify several bundles on the same data, to put them side by side; nothing is written.

    With a file `qrels` right is what it grades above 0. Raises CheckFailed if a bit differs.

    * `bundles`: The folders of the bundles.
    * `data`: Embeddings to measure on.
    * `qrels`: Judgements of what is right: lines of text, 0, video, grade (TREC qrels).
    * `reference`: Reference of drift: the exact score, or mc, Monte Carlo. [default: exact]
    * `samples`: Monte Carlo samples a side. [default: 10]
    * `seed`: Seed of all random draws. [default: 0]
    * `calibration_rows`: Rows that the bundle was calibrated on: refuse, allow (measure them
      too) or drop (leave them out, with their pairs). [default: refuse]
    """

def cost(
    bundle: File,
    *,
    gallery: int | None = None,
    samples: int = 10,
    operating_point: str | None = None,
    digital: File | None = None,
) -> Estimate:
    """Place a bundle on its target, and estimate operations, latency, energy and area.

    With `gallery` also of a query scored against these items, beside Monte Carlo. Figures are the
    target's at the operating point, then reference prices; the tables of the file `digital` replace
    the target's `process` and `digital`. Raises CimError for a number below 1 or beyond 2^63, and
    for a point that the target does not have.

    * `bundle`: The bundle's folder.
    * `gallery`: Items that a query is scored against.
    * `samples`: Monte Carlo samples a side. [default: 10]
    * `operating_point`: Operating point [default: the first].
    * `digital`: TOML file of the digital unit: its process, width, clock, prices.
    """
