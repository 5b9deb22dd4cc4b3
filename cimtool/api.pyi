"""Types of the library's functions, which `api` itself loads on first use.

Written by docs/stubs.py.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from cimtool.base.arrays import Array
from cimtool.base.grids import Grid
from cimtool.base.progress import Say
from cimtool.bundle.api import Compilation as Compilation
from cimtool.bundle.api import Matcher as Matcher
from cimtool.bundle.api import load as load
from cimtool.bundle.bundle import Bundle, BundleLike
from cimtool.bundle.dies import NoiseOptions
from cimtool.costs.bundle_cost import BundleCost
from cimtool.embedding.embed import EmbeddedRows
from cimtool.embedding.encoder import TokenPooling
from cimtool.experiments.engine import TableFormat
from cimtool.experiments.evaluate import Evaluation
from cimtool.experiments.sweep import Sweep
from cimtool.experiments.target_comparison import TargetComparison
from cimtool.experiments.training_grid import TrainingGrid
from cimtool.experiments.tuned import Tuned
from cimtool.galleries.encoding import GalleryShards
from cimtool.galleries.options import Minimised, Replacement
from cimtool.galleries.programming import ProgrammedBundle, ProgrammedCam
from cimtool.hardware.target import Target
from cimtool.ir.surrogate import Polynomial
from cimtool.loading.api import ModelSource as ModelSource
from cimtool.loading.api import read_data as read_data
from cimtool.loading.calibration_rows import SeenRows
from cimtool.loading.embeddings import EmbeddingsLike, File
from cimtool.loading.source import Projectors
from cimtool.training.arguments import LabelKind
from cimtool.training.fine_tune import FineTuningRun
from cimtool.training.fit import Fit
from cimtool.training.polynomial import PtKeys
from cimtool.training.projectors import ProjectorRun
from cimtool.training.teacher_file import Teacher
from cimtool.verification.compare import BundleComparison
from cimtool.verification.references import ReferenceKind
from cimtool.verification.report import Report

NAMES: dict[str, tuple[str, ...]]

def compile(
    projectors: Projectors,
    poly: File | Polynomial | None = None,
    *,
    head: str | None = None,
    layer_map: File | None = None,
    a: float | None = None,
    b: float | None = None,
    ignore_uncertainty: bool = False,
    calibration: EmbeddingsLike,
    target: str | Target,
    settings: File | None = None,
    layers: Mapping[str, Mapping[str, Any]] | None = None,
    weight_bits: int | None = None,
    input_bits: int | None = None,
    activation_bits: int | None = None,
    feature_bits: int | None = None,
    variance_bits: int | None = None,
    adc_bits: int | Literal["lossless"] | None = None,
    cell_bits: int | None = None,
    dac_bits: int | None = None,
    array: str | None = None,
    encoding: str | None = None,
    input_encoding: str | None = None,
    rounding: str | None = None,
    adc_kind: str | None = None,
    unsigned_encoding: str | None = None,
    adc_on: str | None = None,
    references: str | None = None,
    shift_add: str | None = None,
    offset_sum: str | None = None,
    rows_active: int | None = None,
    on_off_ratio: float | None = None,
    unused_rows: str | None = None,
    redundant_columns: int | None = None,
    accumulator_bits: int | None = None,
    calibrator: str | None = None,
    weight_rounding: str | None = None,
    equalise: bool | None = None,
    bias_correction: bool | None = None,
    score_mapping: str | None = None,
    shortlist: int | None = None,
    check: File | Mapping[str, Array] | None = None,
    drift: str | None = None,
    output: File | None = None,
    stages: bool = True,
    say: Say = ...,
) -> Bundle:
    """Compile a model for a target and write its bundle; returns the bundle.

    `projectors` is a checkpoint, two ONNX files or two torch modules, text first. Settings by name
    (`weight_bits=6`) override the `settings` file, which overrides the target. The bundle goes to
    `output`, by default `exports/<model>@<target>`. Without `stages` the bundle is less than half
    as large, and `verify`, `compare` and `evaluate` refuse it. Raises CimError for any mistake.

    * `projectors`: The checkpoint (or twice, .onnx: text, then video).
    * `poly`: The polynomial, if the checkpoint has none.
    * `head`: The score, if the checkpoint names none.
    * `layer_map`: Names of the layers (TOML).
    * `a`: The teacher's a in sigmoid(b - a D), or a cosine's scale.
    * `b`: The teacher's b, or a cosine's offset.
    * `ignore_uncertainty`: Leave out a variance in the checkpoint that its layout does not
      read. [default: False]
    * `calibration`: Embeddings that decide the ranges.
    * `target`: The hardware.
    * `settings`: Settings, also of single layers (TOML).
    * `layers`: Settings of the layers that a pattern names, by pattern.
    * `weight_bits`: Bits of a weight.
    * `input_bits`: Bits of the embeddings.
    * `activation_bits`: Bits of hidden activations.
    * `feature_bits`: Bits of mu, and of the variance in cross terms.
    * `variance_bits`: Bits of the variance in cross terms; if left out, as many as mu has.
    * `adc_bits`: Bits of a converter.
    * `cell_bits`: Bits of a memory cell.
    * `dac_bits`: Bits of an input that one cycle drives.
    * `array`: Cells of an array, such as 128x128.
    * `encoding`: Code of signed weights in the cells.
    * `input_encoding`: Code of signed inputs on the rows.
    * `rounding`: Rounding of a converter.
    * `adc_kind`: Kind of converter; if left out, it follows from the bits and the rounding or
      transfer.
    * `unsigned_encoding`: Code of inputs that are never negative.
    * `adc_on`: Convert the difference of a pair, or each polarity.
    * `references`: Converter references that can be set when weights are loaded. full-scale:
      none (one step covers all that an array can sum); fixed: a step of 2^e per slice, from 0,
      that suits the layer; slice: a step and an offset per slice; column: a step per slice, an
      offset per column; gain: a step and an offset per column; cycle: a step per slice and an
      offset per column for each cycle (no published chip); levels: thresholds and their values
      per slice, an offset per column.
    * `shift_add`: Addition of cycles: digital, or analog before the converter.
    * `offset_sum`: Sum of the inputs that offset weights need: digital or unit-column.
    * `rows_active`: Rows of weights that are read at the same time.
    * `on_off_ratio`: Ratio of conductances, full cell to erased cell.
    * `unused_rows`: State of rows without weights: off or driven.
    * `redundant_columns`: Spare columns of an array: they hold no weights and stand in for
      columns with faults.
    * `accumulator_bits`: Bits of the accumulator; every sum is proved to fit.
    * `calibrator`: Choice of ranges: tails, minmax or percentile.
    * `weight_rounding`: Rounding of weights to integers: nearest or gptq.
    * `equalise`: Balance the ranges of channels between layers.
    * `bias_correction`: Correct the mean error of quantisation in the biases, and that of ed.
    * `score_mapping`: Scoring of a gallery: digital, in-memory or hybrid.
    * `shortlist`: Items per query that a hybrid score takes from the memory and scores exactly.
    * `check`: Rows, with the mu and logvar that the model should give for them (.npz).
    * `drift`: Choose bits: least (the least error at the cost of the settings; the default
      where none are given), or for the least cost mc=K (as near as K samples), logit_rmse=X or
      r1_loss=X (R@1); given keeps those of the settings.
    * `output`: Folder of the bundle.
    * `stages`: Keep the files that only verify, compare and evaluate read: more than half of
      the bundle. [default: True]
    """

def prepare(
    projectors: Projectors,
    poly: File | Polynomial | None = None,
    *,
    head: str | None = None,
    layer_map: File | None = None,
    a: float | None = None,
    b: float | None = None,
    ignore_uncertainty: bool = False,
    calibration: EmbeddingsLike,
    target: str | Target,
    settings: File | None = None,
    layers: Mapping[str, Mapping[str, Any]] | None = None,
    weight_bits: int | None = None,
    input_bits: int | None = None,
    activation_bits: int | None = None,
    feature_bits: int | None = None,
    variance_bits: int | None = None,
    adc_bits: int | Literal["lossless"] | None = None,
    cell_bits: int | None = None,
    dac_bits: int | None = None,
    array: str | None = None,
    encoding: str | None = None,
    input_encoding: str | None = None,
    rounding: str | None = None,
    adc_kind: str | None = None,
    unsigned_encoding: str | None = None,
    adc_on: str | None = None,
    references: str | None = None,
    shift_add: str | None = None,
    offset_sum: str | None = None,
    rows_active: int | None = None,
    on_off_ratio: float | None = None,
    unused_rows: str | None = None,
    redundant_columns: int | None = None,
    accumulator_bits: int | None = None,
    calibrator: str | None = None,
    weight_rounding: str | None = None,
    equalise: bool | None = None,
    bias_correction: bool | None = None,
    score_mapping: str | None = None,
    shortlist: int | None = None,
    check: File | Mapping[str, Array] | None = None,
    drift: str | None = None,
    say: Say = ...,
) -> Compilation:
    """Compile as `compile` does, in memory: nothing is written.

    * `projectors`: The checkpoint (or twice, .onnx: text, then video).
    * `poly`: The polynomial, if the checkpoint has none.
    * `head`: The score, if the checkpoint names none.
    * `layer_map`: Names of the layers (TOML).
    * `a`: The teacher's a in sigmoid(b - a D), or a cosine's scale.
    * `b`: The teacher's b, or a cosine's offset.
    * `ignore_uncertainty`: Leave out a variance in the checkpoint that its layout does not
      read. [default: False]
    * `calibration`: Embeddings that decide the ranges.
    * `target`: The hardware.
    * `settings`: Settings, also of single layers (TOML).
    * `layers`: Settings of the layers that a pattern names, by pattern.
    * `weight_bits`: Bits of a weight.
    * `input_bits`: Bits of the embeddings.
    * `activation_bits`: Bits of hidden activations.
    * `feature_bits`: Bits of mu, and of the variance in cross terms.
    * `variance_bits`: Bits of the variance in cross terms; if left out, as many as mu has.
    * `adc_bits`: Bits of a converter.
    * `cell_bits`: Bits of a memory cell.
    * `dac_bits`: Bits of an input that one cycle drives.
    * `array`: Cells of an array, such as 128x128.
    * `encoding`: Code of signed weights in the cells.
    * `input_encoding`: Code of signed inputs on the rows.
    * `rounding`: Rounding of a converter.
    * `adc_kind`: Kind of converter; if left out, it follows from the bits and the rounding or
      transfer.
    * `unsigned_encoding`: Code of inputs that are never negative.
    * `adc_on`: Convert the difference of a pair, or each polarity.
    * `references`: Converter references that can be set when weights are loaded. full-scale:
      none (one step covers all that an array can sum); fixed: a step of 2^e per slice, from 0,
      that suits the layer; slice: a step and an offset per slice; column: a step per slice, an
      offset per column; gain: a step and an offset per column; cycle: a step per slice and an
      offset per column for each cycle (no published chip); levels: thresholds and their values
      per slice, an offset per column.
    * `shift_add`: Addition of cycles: digital, or analog before the converter.
    * `offset_sum`: Sum of the inputs that offset weights need: digital or unit-column.
    * `rows_active`: Rows of weights that are read at the same time.
    * `on_off_ratio`: Ratio of conductances, full cell to erased cell.
    * `unused_rows`: State of rows without weights: off or driven.
    * `redundant_columns`: Spare columns of an array: they hold no weights and stand in for
      columns with faults.
    * `accumulator_bits`: Bits of the accumulator; every sum is proved to fit.
    * `calibrator`: Choice of ranges: tails, minmax or percentile.
    * `weight_rounding`: Rounding of weights to integers: nearest or gptq.
    * `equalise`: Balance the ranges of channels between layers.
    * `bias_correction`: Correct the mean error of quantisation in the biases, and that of ed.
    * `score_mapping`: Scoring of a gallery: digital, in-memory or hybrid.
    * `shortlist`: Items per query that a hybrid score takes from the memory and scores exactly.
    * `check`: Rows, with the mu and logvar that the model should give for them (.npz).
    * `drift`: Choose bits: least (the least error at the cost of the settings; the default
      where none are given), or for the least cost mc=K (as near as K samples), logit_rmse=X or
      r1_loss=X (R@1); given keeps those of the settings.
    """

def simulate(
    bundle: BundleLike,
    inputs: EmbeddingsLike,
    *,
    noise: NoiseOptions | None = None,
    chip: Path | str | None = None,
    output: File | None = None,
    top: int | None = None,
    bounds: File | None = None,
    device: str | None = None,
    say: Say = ...,
) -> dict[str, Array]:
    """Score all texts against all videos on the bit-accurate simulator.

    Returns `scores` float32 [n, m], or with `top` `top_index` and `top_score` [n, top] of each
    text's best videos, computed without the n x m scores; writes them as an `.npz` to `output`.
    `device` as in `load`. If the bundle holds a gallery, only the texts are read: `top_index` are
    ids of its items, and `items` [m] are the ids of the columns of `scores`. A hybrid score returns
    the best items of each shortlist, or without `top` the whole shortlist.

    `bounds` adds `bound`, the error of each score from the float score that `verify` states in that
    report, and with `top` `certain` [n, top]: true at rank r if the float score has the r best
    videos above all others too.

    With `noise`, arrays of the dies are added: `trial_scores` [T, n, m], `trial_rmse` [T] against
    the noise-free scores and, if the right pairs are known, `trial_r1` [T, 2]. For a hybrid score
    these are `trial_index` [T, n, K], `trial_recall` [T], the share of queries whose best item is
    on the shortlist, and `trial_r1` [T, 1]. A measured `chip` (a folder, see `docs/noise.md`)
    counts as one die. Raises CimError for a bundle or inputs that don't fit, and for `top` with
    dies unless the score is hybrid.

    * `bundle`: The bundle's folder.
    * `inputs`: Embeddings to score.
    * `noise`: Draw dies with the target's noise.
    * `chip`: A measured chip to use instead of drawn dies.
    * `output`: File of the scores.
    * `top`: Keep only the K best videos of each text.
    * `bounds`: The report.json of `cimtool verify` with a bound: adds its bound, and certain
      ranks.
    * `device`: Compute with torch on cpu, cuda or cuda:N.
    """

def verify(
    bundle: BundleLike,
    data: EmbeddingsLike,
    *,
    qrels: File | None = None,
    reference: ReferenceKind = "exact",
    samples: int = 10,
    seed: int = 0,
    all_pairs: bool = False,
    gallery: int | None = None,
    distractors: EmbeddingsLike | None = None,
    calibration_rows: SeenRows = "refuse",
    noise: NoiseOptions | None = None,
    chip: Path | str | None = None,
    max_drift: Mapping[str, float] | None = None,
    bound: float | None = None,
    junit: File | None = None,
    baseline: File | None = None,
    tolerance: Mapping[str, float] | None = None,
    report: File | None = None,
    say: Say = ...,
) -> Report:
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

    * `bundle`: The bundle's folder.
    * `data`: Embeddings to measure on.
    * `qrels`: Judgements of right pairs: lines of text, 0, video, grade (TREC qrels).
    * `reference`: Reference for drift: the exact score, or mc (Monte Carlo). [default: exact]
    * `samples`: Monte Carlo samples per side. [default: 10]
    * `seed`: Seed of all random draws. [default: 0]
    * `all_pairs`: Monte Carlo on all pairs; otherwise on a sample, beside the exact score.
      [default: False]
    * `gallery`: Items of a larger gallery: R@1 is extrapolated to them, text to video, beside
      raw rows.
    * `distractors`: Further videos in the gallery, right for no text.
    * `calibration_rows`: Rows that the bundle was calibrated on: refuse, allow (measure them
      too) or drop (leave them out, with their pairs). [default: refuse]
    * `noise`: Draw dies with the target's noise.
    * `chip`: A measured chip to use instead of drawn dies.
    * `max_drift`: Fail above this value.
    * `bound`: State the error that this share of pairs stays within (0.95), and the margin of
      ranks.
    * `junit`: Write the checks as JUnit XML (.xml).
    * `baseline`: An earlier report.json; fail if a metric is worse.
    * `tolerance`: Fail only if surely worse than the baseline by more than this.
    * `report`: Folder of the report [default: the bundle].
    """

def compare(
    bundles: Sequence[BundleLike],
    data: EmbeddingsLike,
    *,
    qrels: File | None = None,
    reference: ReferenceKind = "exact",
    samples: int = 10,
    seed: int = 0,
    all_pairs: bool = False,
    gallery: int | None = None,
    distractors: EmbeddingsLike | None = None,
    calibration_rows: SeenRows = "refuse",
    say: Say = ...,
) -> BundleComparison:
    """Verify several bundles on the same data, to put them side by side; nothing is written.

    With a file `qrels`, pairs graded above 0 are right; `distractors` and `gallery` are as in
    `verify`. Raises CheckFailed if a bit differs.

    * `bundles`: The folders of the bundles.
    * `data`: Embeddings to measure on.
    * `qrels`: Judgements of right pairs: lines of text, 0, video, grade (TREC qrels).
    * `reference`: Reference for drift: the exact score, or mc (Monte Carlo). [default: exact]
    * `samples`: Monte Carlo samples per side. [default: 10]
    * `seed`: Seed of all random draws. [default: 0]
    * `all_pairs`: Monte Carlo on all pairs; otherwise on a sample, beside the exact score.
      [default: False]
    * `gallery`: Items of a larger gallery: R@1 is extrapolated to them, text to video, beside
      raw rows.
    * `distractors`: Further videos in the gallery, right for no text.
    * `calibration_rows`: Rows that the bundle was calibrated on: refuse, allow (measure them
      too) or drop (leave them out, with their pairs). [default: refuse]
    """

def embed(
    items: File,
    *,
    encoder: str,
    output: File,
    text: str | None = None,
    image: str | None = None,
    image_encoder: str | None = None,
    pooling: TokenPooling | None = None,
    batch: int = 256,
    say: Say = ...,
) -> EmbeddedRows:
    """Encode texts and images into the file `output`, an `.npz`, or an `.npy` for one modality.

    `items` is a table with the columns `text`, `image` or both, or a file or folder of one
    modality. With both columns an image that several texts name is encoded once, and
    `text_to_image` says which image belongs to each text. The encoder is a folder on this machine;
    nothing is downloaded and nothing unpickled. Each item is run alone, so a row depends on its
    item and its encoder only. Rows are saved `batch` by `batch`; a call that was stopped continues
    after the last that was saved, and rows of other items or another encoder are made anew. Beside
    `output`, `<output>.provenance.json` says what the rows were made of. Raises CimError for items
    or an encoder that cannot be read.

    * `items`: A table (.csv, .tsv, .jsonl), texts one a line (.txt), or a folder of images.
    * `encoder`: Folder of the encoder, of texts and images or of one.
    * `output`: File of the rows: .npz, or .npy for texts or images alone.
    * `text`: Column of the texts.
    * `image`: Column of the images' files, below the table's folder.
    * `image_encoder`: Folder of the images' encoder [default: encoder].
    * `pooling`: mean or cls: how states of tokens become a row [default: as the encoder's files
      say].
    * `batch`: Items whose rows are saved at a time; the rows do not depend on it. [default:
      256]
    """

def cost(
    bundle: BundleLike,
    *,
    qrels: File | None = None,
    gallery: int | None = None,
    samples: int = 10,
    batch: int = 1,
    operating_point: str | None = None,
    digital: Path | str | None = None,
    data: EmbeddingsLike | None = None,
    measure: bool = False,
) -> BundleCost:
    """Place a bundle on its target, and estimate operations, latency, energy and area.

    `gallery` adds a query scored against this many items, beside every other way to answer it,
    such as raw rows and Monte Carlo. `batch` items are scheduled together, and share loads. The
    target's figures at the operating point come first, then reference prices. The tables of the
    file `digital` replace the target's `process` and `digital`. R@1 is measured on `data`, else it
    is that of the bundle's `report.json`. Raises CimError for a number below 1 or beyond 10^12, for
    a point that the target does not have, for the report of another bundle, and for `data`, `qrels`
    or `measure` without what they need.

    * `bundle`: The bundle's folder.
    * `qrels`: Judgements of right pairs: lines of text, 0, video, grade (TREC qrels).
    * `gallery`: Items that a query is scored against.
    * `samples`: Monte Carlo samples per side. [default: 10]
    * `batch`: Items that go through the chip together. [default: 1]
    * `operating_point`: Operating point [default: the first of the converters' bits, else the
      first].
    * `digital`: TOML file of the digital unit: its process, width, clock and prices.
    * `data`: Embeddings to measure R@1 on [default: the bundle's report.json, if any].
    * `measure`: Time raw rows in int8 on one core of this machine. [default: False]
    """

def program(
    bundle: BundleLike,
    gallery: EmbeddingsLike,
    *,
    output: File | None = None,
    shortlist: int | None = None,
    shortlist_bits: int | None = None,
    query_bits: int | None = None,
    shortlist_dimensions: int | None = None,
    recall: float | None = None,
    minimise: Minimised | None = None,
    chips: int | None = None,
    say: Say = ...,
) -> ProgrammedBundle:
    """Program a gallery's videos into the arrays of a bundle and write the bundle that holds them.

    Only the video rows of `gallery` are read. The new bundle goes to `output`, by default
    `<bundle>+<gallery's name>`. `shortlist` is the length of a hybrid score's list; the gallery
    must fit on `chips`. With `shortlist_bits`, an item stores this many bits of each value of `mu`,
    and a query is driven with `query_bits`; with `shortlist_dimensions`, the values are this many
    components of `mu`. With `recall`, bits and dimensions that you leave out are chosen, and the
    length: the cheapest, by `minimise` or else by cells, that hold this share of best items on both
    halves of the kept calibration queries. The length is at most `shortlist`. Raises CimError for a
    bundle compiled with a digital score or programmed already, a shortlist longer than the gallery,
    a recall that no setting reaches, and a gallery that does not fit the chips, an accumulator or
    ONNX.

    * `bundle`: The bundle's folder.
    * `gallery`: Embeddings whose video rows are the items (.npz, .npy or .pt).
    * `output`: Folder of the new bundle.
    * `shortlist`: Items per query that a hybrid score scores exactly.
    * `shortlist_bits`: Bits stored per value of an item; 1 stores the sign.
    * `query_bits`: Bits per value of a query, with shortlist_bits.
    * `shortlist_dimensions`: Principal components of mu that an item stores, instead of all.
    * `recall`: Choose the cheapest bits, dimensions and length whose shortlists hold this share
      of best items.
    * `minimise`: Cost that recall minimises (cells).
    * `chips`: Refuse a gallery that needs more chips.
    """

def program_cam(
    bundle: BundleLike,
    gallery: EmbeddingsLike,
    cam: File,
    *,
    output: File | None = None,
    shortlist: int | None = None,
    shortlist_bits: int | None = None,
    say: Say = ...,
) -> ProgrammedCam:
    """Program a gallery's videos into a CAM and write the bundle that takes shortlists from it.

    `cam` is a CAM's name or file; its cells hold `shortlist_bits` of a value, by default as many
    as they can. The other arguments, and the bundle's folder, are as for `program`. Raises CimError
    for a bundle that has no hybrid score or is programmed already, an unknown CAM, more bits than
    its cells have, and a gallery that does not fit ONNX.

    * `bundle`: The bundle's folder.
    * `gallery`: Embeddings whose video rows are the items (.npz, .npy or .pt).
    * `cam`: Content-addressable memory that finds a hybrid score's shortlist.
    * `output`: Folder of the new bundle.
    * `shortlist`: Items per query that a hybrid score scores exactly.
    * `shortlist_bits`: Bits stored per value of an item; 1 stores the sign.
    """

def change_gallery(
    bundle: BundleLike,
    *,
    output: File | None = None,
    shortlist: int | None = None,
    add: EmbeddingsLike | None = None,
    remove: Sequence[int] = ...,
    replace: Replacement | None = None,
    chips: int | None = None,
    say: Say = ...,
) -> ProgrammedBundle | ProgrammedCam:
    """Change the gallery in the arrays of a programmed bundle, or in its CAM: all or nothing.

    Items with the ids `remove` are taken out. `replace` has ids and videos: row by row, a video
    replaces the item with that id. The videos of `add` are added. The bundle is replaced, or the
    new bundle goes to `output`. A hybrid score keeps the length of its shortlist unless `shortlist`
    gives another. Raises CimError for a bundle without a gallery, for an id that it does not hold
    or that is given twice, for a change that leaves no item, if a cell would be written more often
    than it endures, if another process is changing the bundle, and as `program` does.

    * `bundle`: The bundle's folder.
    * `output`: Folder of the new bundle.
    * `shortlist`: Items per query that a hybrid score scores exactly.
    * `add`: Embeddings whose video rows are added to the gallery.
    * `remove`: Ids of items to remove.
    * `replace`: Ids of items to replace, and their new video rows.
    * `chips`: Refuse a gallery that needs more chips.
    """

def encode(
    bundle: BundleLike,
    gallery: File,
    *,
    output: File,
    items_per_shard: int = 262144,
    say: Say = ...,
) -> GalleryShards:
    """Encode the video rows of a file into the shards of a gallery that `search` reads.

    A `.npy` is encoded while it is read, so memory does not grow with its length. The same rows
    give the same bytes. A call continues after the last whole shard of a call that was stopped. If
    the gallery is whole, shards that differ from its index are encoded again. Raises CimError for
    rows that do not fit, and if `output` holds something else.

    * `bundle`: The bundle's folder.
    * `gallery`: Embeddings whose video rows are the items (.npz, .npy or .pt).
    * `output`: Folder of the shards.
    * `items_per_shard`: Items per shard. [default: 262144]
    """

def search(
    bundle: BundleLike,
    gallery: File,
    queries: EmbeddingsLike,
    *,
    top: int = 10,
    output: File | None = None,
    bounds: File | None = None,
    dask: str | None = None,
    say: Say = ...,
) -> Mapping[str, Array]:
    """The best items of a gallery for each text, best first, by the exact scores of all items.

    Returns `top_index` int64 and `top_score` float32, both [n, top], as `simulate` does, and writes
    them as an `.npz` to `output`. `bounds` adds `certain` [n, top]: true at rank r if the float
    score has the r best items above all others too, by the margin in that report of `verify`. Items
    are scored in blocks, so that memory is bounded. `dask` is the address of a Dask scheduler: its
    workers take one shard at a time and must see the gallery under the same path; the answers are
    the same. Raises CimError for queries or a gallery that do not fit, a changed shard, bounds of
    another bundle or of fewer items, and a `top` that is not 1 to the number of items.

    * `bundle`: The bundle's folder.
    * `gallery`: Shards that `cimtool encode` wrote.
    * `queries`: Embeddings whose text rows are the queries (.npz, .npy or .pt).
    * `top`: Best items to keep for each query. [default: 10]
    * `output`: File of the answers.
    * `bounds`: The report.json of `cimtool verify` with a bound: says which ranks are certain.
    * `dask`: Scheduler of a Dask cluster to search on. tcp://: anyone who reaches the cluster
      can run code in it and here; tls://: needs keys.
    """

def teacher(
    projectors: Projectors | None = None,
    data: EmbeddingsLike | None = None,
    *,
    layer_map: File | None = None,
    logvar: float | None = None,
    gaussians: File | Mapping[str, Array] | None = None,
    pairs: int = 300000,
    matched: float = 0.9,
    labels: LabelKind = "exact",
    samples: int | None = None,
    a: float | None = None,
    b: float | None = None,
    seed: int = 0,
    output: File | None = None,
    say: Say = ...,
) -> Teacher:
    """Draw pairs, a share `matched` of them right ones, and label them with log p and log(1-p).

    Pairs are of `data` run through `projectors`, or through the random weights that `train` with
    this seed starts from, their log-variances around `logvar`; or of `gaussians`: arrays `text_mu`,
    `text_logvar` [n, d], `video_mu`, `video_logvar` (or `image_mu`, `image_logvar`) [m, d] by name
    or in an `.npz`. Labels are exact, or Monte Carlo ("mc") of `samples` a side (default: 10). `a`
    and `b` are the sigmoid's (default: those that the checkpoint keeps). Written to `output` where
    it is given. Raises CimError for any mistake, and for an a or b that neither says.

    * `projectors`: The checkpoint (or twice, .onnx: text, then video).
    * `data`: Embeddings to draw pairs from.
    * `layer_map`: Names of the layers (TOML).
    * `logvar`: Instead of projectors: a trunk of random weights whose log-variances lie around
      X.
    * `gaussians`: Instead of data: text_mu, text_logvar, video_... (or image_...)
    * `pairs`: Pairs drawn. [default: 300000]
    * `matched`: Share of right pairs. [default: 0.9]
    * `labels`: Kind of labels. [default: exact]
    * `samples`: Monte Carlo samples per side (10).
    * `a`: a of sigmoid(b - a D) [default: the model's].
    * `b`: b of sigmoid(b - a D) [default: the model's].
    * `seed`: Seed of pairs and samples. [default: 0]
    * `output`: File of the teacher.
    """

def fit(
    teacher: File | Teacher,
    *,
    degree: int | Sequence[int] = ...,
    ed_alone: bool = False,
    tolerance: float | None = None,
    alpha: float = 0.001,
    scale_ed: float | None = None,
    scale_vd: float | None = None,
    seed: int = 0,
    projectors: Projectors | None = None,
    layer_map: File | None = None,
    data: EmbeddingsLike | None = None,
    qrels: File | None = None,
    target: File | Target | None = None,
    output: File | None = None,
    pt_keys: PtKeys | None = None,
    report: File | None = None,
    say: Say = ...,
) -> Fit:
    """Fit the polynomial to a teacher's labels, and check it on held-out pairs.

    Of several degrees the first that is enough is kept: its RMSE is not surely above the best's,
    or surely adds less than `tolerance` in the mean square (default: a tenth of the scatter of
    samples, or 0.1% of the spread of the labels if that is less). With `ed_alone` no polynomial
    takes vd. ed and vd are divided by `scale_ed` and `scale_vd` first (default: what the teacher
    says). With `projectors` and `data` the table has R@1 on these, of their raw embeddings too
    where both are equally wide; with a file `qrels`, pairs graded above 0 are right. With a
    `target` it has the energy of an item in its arrays. With `output`, a `.json` or a `.pt` whose
    keys are `coeff` and `bias` or, with `pt_keys` "c", c and b, the polynomial is written there,
    its report into `report` (default: beside it); that of a `.pt` has no scales. `pt_keys` are
    refused without a `.pt`.

    * `teacher`: The teacher, or its file.
    * `degree`: Degrees, 1 to 8: of several, the cheapest polynomial that is good enough is
      written. [default: (1, 2, 3, 4, 5, 6, 7, 8)]
    * `ed_alone`: Leave out all terms with vd: one matrix product instead of six. [default:
      False]
    * `tolerance`: Error in logits that a lower degree may add, in the mean square [default:
      0.1% of the labels' spread, at most a tenth of the scatter of samples].
    * `alpha`: Ridge penalty, on standardised features. [default: 0.001]
    * `scale_ed`: Divisor of ed [default: the teacher's].
    * `scale_vd`: Divisor of vd [default: the teacher's].
    * `seed`: Seed of the held-out pairs. [default: 0]
    * `projectors`: The checkpoint (or twice, .onnx: text, then video).
    * `layer_map`: Names of the layers (TOML).
    * `data`: Embeddings for R@1 in the table.
    * `qrels`: Judgements of right pairs of data: lines of text, 0, video, grade (TREC qrels).
    * `target`: Target for the energy per item in the table.
    * `output`: File of the polynomial, .json or .pt.
    * `pt_keys`: Keys of a .pt: coeff and bias, or c and b [default: coeff].
    * `report`: Folder of its report [default: beside it].
    """

def train(
    data: EmbeddingsLike,
    output: File,
    *,
    modalities: Sequence[str] | None = None,
    held_out: float | None = None,
    test: float | None = None,
    model: str | None = None,
    loss: str | None = None,
    poly: File | None = None,
    start: File | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    weight_decay: float | None = None,
    optimizer: str | None = None,
    seed: int | None = 0,
    device: str | None = None,
    options: Mapping[str, Any] | None = None,
    qrels: File | None = None,
    validation: EmbeddingsLike | None = None,
    resume: bool = False,
    say: Say = ...,
) -> ProjectorRun:
    """Train projectors into the folder `output`: `model.pth`, `last.pth`, the history and its page.

    An `output` that ends in `.pth` is the best checkpoint; its folder is the run's.

    Validates after each epoch on `validation`, or on a share `held_out` (0.1) of the videos, and
    keeps the best; a share `test` is set aside first, as `test.npz`, and some of the other pairs
    are written beside it for a compilation, as `calibration.npz`. `model` (trunk, or that of
    `start`) and `loss` (info-nce-poly with `poly` or one in `start`, else info-nce) are names;
    `options` their fields by `model.<field>` and `loss.<field>`. `optimizer` is adamw or sgd,
    `device` `cpu`, `cuda` or `cuda:N`. What else is None is the loss's own. With `resume` it goes
    on after the last epoch that `last.pth` has, or starts where there is none, and comes to the
    same bytes as a run that was never cut off; the caller's random state is left as it was. Raises
    Diverged (a CheckFailed) where the loss stops being finite, with the epochs before it kept, and
    CimError for a folder with another run.

    * `data`: Pairs to train on.
    * `output`: Folder of the run, or its best checkpoint (.pth).
    * `modalities`: Arrays of data to use as text and video, such as text,audio.
    * `held_out`: Share of data to validate on, without validation (0.1).
    * `test`: Share of data to set aside for tests, as test.npz; calibration.npz has others.
    * `model`: trunk, two-branch, ... [default: the model of start, or trunk].
    * `loss`: info-nce, info-nce-poly, ... (the latter with a polynomial).
    * `poly`: The polynomial to train on.
    * `start`: A checkpoint to start from.
    * `epochs`: Training epochs [default: the loss's].
    * `batch`: Pairs per batch [default: the loss's].
    * `learning_rate`: Learning rate [default: the loss's].
    * `weight_decay`: Weight decay [default: the loss's].
    * `optimizer`: adamw, or sgd (adamw).
    * `seed`: Seed of all random draws. [default: 0]
    * `device`: Train on cpu, cuda or cuda:N (cpu).
    * `options`: An option of the model or the loss: model.hidden=512, loss.tau=0.1.
    * `qrels`: Judgements of right pairs of data: lines of text, 0, video, grade (TREC qrels).
    * `validation`: Pairs that choose the best epoch.
    * `resume`: Continue an interrupted run in this folder. [default: False]
    """

def fine_tune(
    projectors: Projectors,
    poly: File | Polynomial | None = None,
    *,
    head: str | None = None,
    layer_map: File | None = None,
    a: float | None = None,
    b: float | None = None,
    ignore_uncertainty: bool = False,
    calibration: EmbeddingsLike,
    target: str | Target,
    settings: File | None = None,
    layers: Mapping[str, Mapping[str, Any]] | None = None,
    weight_bits: int | None = None,
    input_bits: int | None = None,
    activation_bits: int | None = None,
    feature_bits: int | None = None,
    variance_bits: int | None = None,
    adc_bits: int | Literal["lossless"] | None = None,
    cell_bits: int | None = None,
    dac_bits: int | None = None,
    array: str | None = None,
    encoding: str | None = None,
    input_encoding: str | None = None,
    rounding: str | None = None,
    adc_kind: str | None = None,
    unsigned_encoding: str | None = None,
    adc_on: str | None = None,
    references: str | None = None,
    shift_add: str | None = None,
    offset_sum: str | None = None,
    rows_active: int | None = None,
    on_off_ratio: float | None = None,
    unused_rows: str | None = None,
    redundant_columns: int | None = None,
    accumulator_bits: int | None = None,
    calibrator: str | None = None,
    weight_rounding: str | None = None,
    equalise: bool | None = None,
    bias_correction: bool | None = None,
    score_mapping: str | None = None,
    shortlist: int | None = None,
    data: EmbeddingsLike,
    output: File,
    epochs: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    noise: NoiseOptions | None = None,
    say: Say = ...,
) -> FineTuningRun:
    """Fine-tune a checkpoint for a target into the folder `output`: `model.pth`, history and page.

    It learns to give its own float logits again once it is compiled, on rows of `data`; all else,
    `options` too, is as in `compile`. Of each epoch's weights those are kept whose compiled model
    has the least centred logit RMSE on held-out rows of `data`; with `noise`, on dies of its model
    at its time. The same inputs and number of threads give the same weights. Raises Diverged (a
    CheckFailed), with what is best kept, where the loss stops being finite, and CimError for any
    mistake.

    * `projectors`: The checkpoint (or twice, .onnx: text, then video).
    * `poly`: The polynomial, if the checkpoint has none.
    * `head`: The score, if the checkpoint names none.
    * `layer_map`: Names of the layers (TOML).
    * `a`: The teacher's a in sigmoid(b - a D), or a cosine's scale.
    * `b`: The teacher's b, or a cosine's offset.
    * `ignore_uncertainty`: Leave out a variance in the checkpoint that its layout does not
      read. [default: False]
    * `calibration`: Embeddings that decide the ranges.
    * `target`: The hardware.
    * `settings`: Settings, also of single layers (TOML).
    * `layers`: Settings of the layers that a pattern names, by pattern.
    * `weight_bits`: Bits of a weight.
    * `input_bits`: Bits of the embeddings.
    * `activation_bits`: Bits of hidden activations.
    * `feature_bits`: Bits of mu, and of the variance in cross terms.
    * `variance_bits`: Bits of the variance in cross terms; if left out, as many as mu has.
    * `adc_bits`: Bits of a converter.
    * `cell_bits`: Bits of a memory cell.
    * `dac_bits`: Bits of an input that one cycle drives.
    * `array`: Cells of an array, such as 128x128.
    * `encoding`: Code of signed weights in the cells.
    * `input_encoding`: Code of signed inputs on the rows.
    * `rounding`: Rounding of a converter.
    * `adc_kind`: Kind of converter; if left out, it follows from the bits and the rounding or
      transfer.
    * `unsigned_encoding`: Code of inputs that are never negative.
    * `adc_on`: Convert the difference of a pair, or each polarity.
    * `references`: Converter references that can be set when weights are loaded. full-scale:
      none (one step covers all that an array can sum); fixed: a step of 2^e per slice, from 0,
      that suits the layer; slice: a step and an offset per slice; column: a step per slice, an
      offset per column; gain: a step and an offset per column; cycle: a step per slice and an
      offset per column for each cycle (no published chip); levels: thresholds and their values
      per slice, an offset per column.
    * `shift_add`: Addition of cycles: digital, or analog before the converter.
    * `offset_sum`: Sum of the inputs that offset weights need: digital or unit-column.
    * `rows_active`: Rows of weights that are read at the same time.
    * `on_off_ratio`: Ratio of conductances, full cell to erased cell.
    * `unused_rows`: State of rows without weights: off or driven.
    * `redundant_columns`: Spare columns of an array: they hold no weights and stand in for
      columns with faults.
    * `accumulator_bits`: Bits of the accumulator; every sum is proved to fit.
    * `calibrator`: Choice of ranges: tails, minmax or percentile.
    * `weight_rounding`: Rounding of weights to integers: nearest or gptq.
    * `equalise`: Balance the ranges of channels between layers.
    * `bias_correction`: Correct the mean error of quantisation in the biases, and that of ed.
    * `score_mapping`: Scoring of a gallery: digital, in-memory or hybrid.
    * `shortlist`: Items per query that a hybrid score takes from the memory and scores exactly.
    * `data`: Rows to train on, which need no labels.
    * `output`: Folder of the run, or its best checkpoint (.pth).
    * `epochs`: Training epochs (5).
    * `batch`: Rows per batch (128).
    * `learning_rate`: Learning rate (6e-5).
    * `seed`: Seed of all random draws. [default: 0]
    * `noise`: Train on dies with the target's noise.
    """

def sweep(
    projectors: Projectors,
    poly: File | Polynomial | None = None,
    *,
    head: str | None = None,
    layer_map: File | None = None,
    a: float | None = None,
    b: float | None = None,
    ignore_uncertainty: bool = False,
    qrels: File | None = None,
    calibration_rows: SeenRows = "refuse",
    gallery: int | None = None,
    distractors: EmbeddingsLike | None = None,
    samples: int = 10,
    objective: str | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    calibration: EmbeddingsLike,
    data: EmbeddingsLike,
    grid: Grid,
    target: str | Target | None = None,
    settings: File | None = None,
    teacher: File | None = None,
    trials: int | None = None,
    noise_model: File | None = None,
    times: Sequence[str] = ...,
    corners: Sequence[str] = ...,
    seed: int = 0,
    budget: Mapping[str, float] | None = None,
    min_yield: float | None = None,
    table: TableFormat = "csv",
    output: File | None = None,
    say: Say = ...,
) -> Sweep:
    """Compile a model for every point of a grid, and measure drift and cost of each on `data`.

    `grid` has values of settings (`weight_bits`), of `target`, of keys of the target's file
    (`target.rows_active`), and of the score: `head`, `degree` of a polynomial that is fitted to the
    `teacher`, and `samples` of Monte Carlo beside the points. `trials` draws dies with the noise of
    `noise_model` or of the target, and reads them at each of `corners` and `times`. `jobs`
    processes or the Dask cluster at `dask` compute the points. Results go to `output` (default
    `exports/<model>.sweep`). Each point is kept as soon as it is done, and later runs do not
    compute it again. A `budget` with `trials` gives each point a yield: the share of dies within
    the budget. The chosen point needs a yield of `min_yield` or more (None: its median die is
    within). Within the budget the cheapest is chosen: by the `objective`, a cost or a sum such as
    "query_energy=1,arrays=0.5" of shares of what the first point costs; without one by the energy
    of a query, else by conversions, else by arrays. With a file `qrels`, items that it grades above
    0 are right. `distractors` are more items, right for no text. The verdict and the costs are for
    a `gallery` of so many items, and the verdict beside Monte Carlo with `samples`. Raises CimError
    if rows of `data` calibrated (unless they are allowed or dropped), the folder holds another
    sweep or no worker answers; PointsFailed (a CheckFailed) at the end if points failed or none is
    within the `budget`.

    * `projectors`: The checkpoint (or twice, .onnx: text, then video).
    * `poly`: The polynomial, if the checkpoint has none.
    * `head`: The score, if the checkpoint names none.
    * `layer_map`: Names of the layers (TOML).
    * `a`: The teacher's a in sigmoid(b - a D), or a cosine's scale.
    * `b`: The teacher's b, or a cosine's offset.
    * `ignore_uncertainty`: Leave out a variance in the checkpoint that its layout does not
      read. [default: False]
    * `qrels`: Judgements of right pairs: lines of text, 0, video, grade (TREC qrels).
    * `calibration_rows`: Rows that the bundle was calibrated on: refuse, allow (measure them
      too) or drop (leave them out, with their pairs). [default: refuse]
    * `gallery`: Items that a query is priced among and R@1 is extrapolated to [default: those
      measured].
    * `distractors`: Further videos in the gallery, right for no text.
    * `samples`: Monte Carlo samples per side of the verdict. [default: 10]
    * `objective`: Cost to lower: query_energy, encoding_energy, latency, arrays, conversions,
      or a sum such as query_energy=1,arrays=0.5 of shares of what the first has.
    * `jobs`: Processes on this machine (1).
    * `dask`: Scheduler of a Dask cluster, instead of jobs. tcp://: anyone who reaches the
      cluster can run code in it and here; tls://: needs keys.
    * `calibration`: Embeddings that decide the ranges.
    * `data`: Embeddings to measure on.
    * `grid`: Values of a setting, of target, of target.KEY, of head, degree or samples; may
      repeat.
    * `target`: The hardware, if it is not in the grid.
    * `settings`: Settings of all points (TOML).
    * `teacher`: Labels to fit for grid degree=...
    * `trials`: Dies drawn for each point.
    * `noise_model`: A noise model to use instead of the targets' own.
    * `times`: Times after programming.
    * `corners`: Corners of the noise.
    * `seed`: Seed of the dies. [default: 0]
    * `budget`: Limits that the chosen point must keep.
    * `min_yield`: Share of dies that must keep the budget.
    * `table`: Format of the table of points. [default: csv]
    * `output`: Folder of results and points.
    """

def tune(
    projectors: Projectors,
    poly: File | Polynomial | None = None,
    *,
    head: str | None = None,
    layer_map: File | None = None,
    a: float | None = None,
    b: float | None = None,
    ignore_uncertainty: bool = False,
    calibration: EmbeddingsLike,
    target: str | Target,
    settings: File | None = None,
    qrels: File | None = None,
    layers: Mapping[str, Mapping[str, Any]] | None = None,
    weight_bits: int | None = None,
    input_bits: int | None = None,
    activation_bits: int | None = None,
    feature_bits: int | None = None,
    variance_bits: int | None = None,
    adc_bits: int | Literal["lossless"] | None = None,
    cell_bits: int | None = None,
    dac_bits: int | None = None,
    array: str | None = None,
    encoding: str | None = None,
    input_encoding: str | None = None,
    rounding: str | None = None,
    adc_kind: str | None = None,
    unsigned_encoding: str | None = None,
    adc_on: str | None = None,
    references: str | None = None,
    shift_add: str | None = None,
    offset_sum: str | None = None,
    rows_active: int | None = None,
    on_off_ratio: float | None = None,
    unused_rows: str | None = None,
    redundant_columns: int | None = None,
    accumulator_bits: int | None = None,
    calibrator: str | None = None,
    weight_rounding: str | None = None,
    equalise: bool | None = None,
    bias_correction: bool | None = None,
    score_mapping: str | None = None,
    shortlist: int | None = None,
    calibration_rows: SeenRows = "refuse",
    gallery: int | None = None,
    distractors: EmbeddingsLike | None = None,
    samples: int = 10,
    objective: str | None = None,
    jobs: int | None = None,
    dask: str | None = None,
    data: EmbeddingsLike,
    budget: Mapping[str, float],
    grid: Grid | None = None,
    output: File | None = None,
    folder: File | None = None,
    say: Say = ...,
) -> Tuned:
    """Choose bits of layers and features at the lowest cost within `budget`, as a settings file.

    The `objective` is a cost, or a sum such as "query_energy=1,arrays=0.5" of shares of what the
    start costs: `query_energy` and `latency` of a query among `gallery` items (default: the videos
    of `data`), `encoding_energy` of a text and a video, `arrays` and `conversions`. Without an
    objective it is `query_energy` if a `gallery` is given, else `arrays`.

    Tuning starts from the bits of target, `settings` and settings by name, as in `compile`. With a
    `grid` of the settings VARIED, it starts from each combination whose highest bits keep the
    budget, and chooses the cheapest result. If nothing says how a `gallery` is scored, shortlists
    from the arrays are starts beside the digital score. A start is not tuned if its fewest bits
    cost more than what is chosen already. Bits are chosen on every second video of `data` and its
    texts, as queries in the whole gallery. Steps that miss the budget on the other queries or on
    all are taken back. The file goes to `output` (default
    `exports/<model>@<target>.settings.toml`). With a file `qrels`, items that it grades above 0 are
    right. With a `folder`, each measured choice of bits is kept there, also for other budgets,
    costs, targets and settings, and results and a page are written. `jobs` processes or the Dask
    cluster at `dask` measure starts and probes side by side. Raises CimError if the highest bits
    miss the budget, if the reference is a broken float score because a and b are unknown, if rows
    of `data` calibrated (unless they are allowed or dropped), or if the folder holds the tuning of
    another model or other data.

    * `projectors`: The checkpoint (or twice, .onnx: text, then video).
    * `poly`: The polynomial, if the checkpoint has none.
    * `head`: The score, if the checkpoint names none.
    * `layer_map`: Names of the layers (TOML).
    * `a`: The teacher's a in sigmoid(b - a D), or a cosine's scale.
    * `b`: The teacher's b, or a cosine's offset.
    * `ignore_uncertainty`: Leave out a variance in the checkpoint that its layout does not
      read. [default: False]
    * `calibration`: Embeddings that decide the ranges.
    * `target`: The hardware.
    * `settings`: Settings to start from (TOML).
    * `qrels`: Judgements of right pairs: lines of text, 0, video, grade (TREC qrels).
    * `layers`: Settings of the layers that a pattern names, by pattern.
    * `weight_bits`: Bits of a weight.
    * `input_bits`: Bits of the embeddings.
    * `activation_bits`: Bits of hidden activations.
    * `feature_bits`: Bits of mu, and of the variance in cross terms.
    * `variance_bits`: Bits of the variance in cross terms; if left out, as many as mu has.
    * `adc_bits`: Bits of a converter.
    * `cell_bits`: Bits of a memory cell.
    * `dac_bits`: Bits of an input that one cycle drives.
    * `array`: Cells of an array, such as 128x128.
    * `encoding`: Code of signed weights in the cells.
    * `input_encoding`: Code of signed inputs on the rows.
    * `rounding`: Rounding of a converter.
    * `adc_kind`: Kind of converter; if left out, it follows from the bits and the rounding or
      transfer.
    * `unsigned_encoding`: Code of inputs that are never negative.
    * `adc_on`: Convert the difference of a pair, or each polarity.
    * `references`: Converter references that can be set when weights are loaded. full-scale:
      none (one step covers all that an array can sum); fixed: a step of 2^e per slice, from 0,
      that suits the layer; slice: a step and an offset per slice; column: a step per slice, an
      offset per column; gain: a step and an offset per column; cycle: a step per slice and an
      offset per column for each cycle (no published chip); levels: thresholds and their values
      per slice, an offset per column.
    * `shift_add`: Addition of cycles: digital, or analog before the converter.
    * `offset_sum`: Sum of the inputs that offset weights need: digital or unit-column.
    * `rows_active`: Rows of weights that are read at the same time.
    * `on_off_ratio`: Ratio of conductances, full cell to erased cell.
    * `unused_rows`: State of rows without weights: off or driven.
    * `redundant_columns`: Spare columns of an array: they hold no weights and stand in for
      columns with faults.
    * `accumulator_bits`: Bits of the accumulator; every sum is proved to fit.
    * `calibrator`: Choice of ranges: tails, minmax or percentile.
    * `weight_rounding`: Rounding of weights to integers: nearest or gptq.
    * `equalise`: Balance the ranges of channels between layers.
    * `bias_correction`: Correct the mean error of quantisation in the biases, and that of ed.
    * `score_mapping`: Scoring of a gallery: digital, in-memory or hybrid.
    * `shortlist`: Items per query that a hybrid score takes from the memory and scores exactly.
    * `calibration_rows`: Rows that the bundle was calibrated on: refuse, allow (measure them
      too) or drop (leave them out, with their pairs). [default: refuse]
    * `gallery`: Items that a query is priced among and R@1 is extrapolated to [default: those
      measured].
    * `distractors`: Further videos in the gallery, right for no text.
    * `samples`: Monte Carlo samples per side of the verdict. [default: 10]
    * `objective`: Cost to lower: query_energy, encoding_energy, latency, arrays, conversions,
      or a sum such as query_energy=1,arrays=0.5 of shares of what the first has.
    * `jobs`: Processes on this machine (1).
    * `dask`: Scheduler of a Dask cluster, instead of jobs. tcp://: anyone who reaches the
      cluster can run code in it and here; tls://: needs keys.
    * `data`: Embeddings to measure on: one half of the queries chooses, the other checks.
    * `budget`: Largest error allowed for the compiled model; repeat for more metrics.
    * `grid`: Values of adc_bits, references, rows_active, score_mapping, shortlist to start
      from; repeat for all combinations.
    * `output`: File of the settings.
    * `folder`: Folder of results and measured bits; a later run continues there.
    """

def evaluate(
    data: EmbeddingsLike,
    *what: Projectors | ModelSource,
    qrels: File | None = None,
    head: str | None = None,
    layer_map: File | None = None,
    a: float | None = None,
    b: float | None = None,
    ignore_uncertainty: bool = False,
    jobs: int | None = None,
    dask: str | None = None,
    modalities: Sequence[str] | None = None,
    poly: File | None = None,
    heads: Sequence[str] | None = None,
    samples: Sequence[int] = ...,
    leave_one_out: bool = False,
    trec: File | None = None,
    resamples: int = 1000,
    seed: int = 0,
    calibration_rows: Literal["refuse", "allow"] = "refuse",
    output: File | None = None,
    say: Say = ...,
) -> Evaluation:
    """Measure how well bundles, trained projectors or (without any) the embeddings retrieve.

    A bundle is the path of its folder. `poly` and the options of `model` (`a`, `b`, `layer_map`,
    `head`) apply to projectors, except a ModelSource, which has its own options. `head` also
    applies to the embeddings (cosine or euclidean). With several `heads` projectors are scored by
    each. With `leave_one_out`, or if `data` are items of
    one modality (`rows`), the other items with the same label are right. With a file `qrels`, items
    that it grades above 0 are right. Each of `samples` adds Monte Carlo with this many per side for
    projectors whose a and b are known. Raw embeddings come last if both sides are equally wide.
    Without `what`, each pair of the arrays `modalities` is compared; projectors and bundles know
    their own. Runs and qrels are written into the folder `trec`. Differences are to the first
    subject. Results and a page go to the folder `output`, if it is given: each subject is kept
    there as soon as it is ranked, and later runs do not rank it again, unless they write `trec`.
    `jobs` processes or the Dask cluster at `dask` rank subjects side by side. Raises CimError if
    the folder holds an evaluation of other data.

    * `data`: Embeddings to evaluate on.
    * `what`: Checkpoints (or two ONNX files, text first) and bundles.
    * `qrels`: Judgements of right pairs: lines of text, 0, video, grade (TREC qrels).
    * `head`: The score, if the checkpoint names none.
    * `layer_map`: Names of the layers (TOML).
    * `a`: The teacher's a in sigmoid(b - a D), or a cosine's scale.
    * `b`: The teacher's b, or a cosine's offset.
    * `ignore_uncertainty`: Leave out a variance in the checkpoint that its layout does not
      read. [default: False]
    * `jobs`: Processes on this machine (1).
    * `dask`: Scheduler of a Dask cluster, instead of jobs. tcp://: anyone who reaches the
      cluster can run code in it and here; tls://: needs keys.
    * `modalities`: Compare raw embeddings of each pair of these arrays, such as
      text,video,audio.
    * `poly`: The polynomial, if the checkpoint has none.
    * `heads`: Score projectors by each of these heads, such as csd,probcosine,euclidean.
    * `samples`: Add trained projectors by Monte Carlo, with K samples per side.
    * `leave_one_out`: Count items with a query's label as right, except the query itself.
      [default: False]
    * `trec`: Folder for the rankings as TREC runs, with their qrels.
    * `resamples`: Resamples for the intervals. [default: 1000]
    * `seed`: Seed of the resamples. [default: 0]
    * `calibration_rows`: Rows that a bundle was calibrated on: refuse, or allow (measure them
      too). [default: refuse]
    * `output`: Folder of results and ranked subjects; a later run continues there.
    """

def compare_targets(
    *what: Projectors | str,
    head: str | None = None,
    layer_map: File | None = None,
    a: float | None = None,
    b: float | None = None,
    ignore_uncertainty: bool = False,
    qrels: File | None = None,
    calibration_rows: SeenRows = "refuse",
    gallery: int | None = None,
    distractors: EmbeddingsLike | None = None,
    samples: int = 10,
    jobs: int | None = None,
    dask: str | None = None,
    poly: File | None = None,
    calibration: EmbeddingsLike,
    data: EmbeddingsLike,
    settings: File | None = None,
    budget: Mapping[str, float] | None = None,
    output: File | None = None,
    say: Say = ...,
) -> TargetComparison:
    """Compile a model for several targets, and measure what it retrieves and costs on each.

    `what` is the model and then targets, by name or file (none: all of cimtool and of plug-ins). A
    gallery is scored digitally, in the arrays, and digitally after a shortlist from the arrays,
    unless the file `settings` says how. Costs are of a query against `gallery` items (default: the
    videos of `data`). A target that the model cannot be compiled for is a row with the reason. The
    rest is as in `sweep`. Raises CimError for a target that is unknown or given twice; PointsFailed
    (a CheckFailed) if none keeps the `budget`.

    * `what`: The checkpoint (or two ONNX files, text first), then targets [default: all].
    * `head`: The score, if the checkpoint names none.
    * `layer_map`: Names of the layers (TOML).
    * `a`: The teacher's a in sigmoid(b - a D), or a cosine's scale.
    * `b`: The teacher's b, or a cosine's offset.
    * `ignore_uncertainty`: Leave out a variance in the checkpoint that its layout does not
      read. [default: False]
    * `qrels`: Judgements of right pairs: lines of text, 0, video, grade (TREC qrels).
    * `calibration_rows`: Rows that the bundle was calibrated on: refuse, allow (measure them
      too) or drop (leave them out, with their pairs). [default: refuse]
    * `gallery`: Items that a query is priced among and R@1 is extrapolated to [default: those
      measured].
    * `distractors`: Further videos in the gallery, right for no text.
    * `samples`: Monte Carlo samples per side of the verdict. [default: 10]
    * `jobs`: Processes on this machine (1).
    * `dask`: Scheduler of a Dask cluster, instead of jobs. tcp://: anyone who reaches the
      cluster can run code in it and here; tls://: needs keys.
    * `poly`: The polynomial, if the checkpoint has none.
    * `calibration`: Embeddings that decide the ranges.
    * `data`: Embeddings to measure on.
    * `settings`: Settings of all targets (TOML).
    * `budget`: Limits that a target must keep (r1_loss=0.01).
    * `output`: Folder of results and rows.
    """

def train_grid(
    data: EmbeddingsLike,
    output: File,
    *,
    modalities: Sequence[str] | None = None,
    held_out: float | None = None,
    test: float | None = None,
    model: str | None = None,
    loss: str | None = None,
    poly: File | None = None,
    start: File | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    weight_decay: float | None = None,
    optimizer: str | None = None,
    seed: int | None = None,
    device: str | None = None,
    options: Mapping[str, Any] | None = None,
    validation: EmbeddingsLike | None = None,
    grid: Grid,
    say: Say = ...,
) -> TrainingGrid:
    """Train a model for every point of a grid, and compare them on unseen pairs.

    `grid` has values of `loss`, `model`, `batch`, `epochs`, `learning_rate`, `weight_decay`,
    `optimizer`, `seed`, and of options by `model.<field>` and `loss.<field>`. Everything else is as
    in `train`, the same for all points. An option that a point's model or loss does not have is
    left out there. Figures are for the share `test`, which no training sees; without it, for the
    pairs that choose the best epochs. With several seeds, they are means. Results go to `output`;
    points that an earlier run finished are not trained again. Raises CimError for a wrong key or
    value before anything runs, and PointsFailed (a CheckFailed) at the end if points failed.

    * `data`: Pairs to train on.
    * `output`: Folder of the results.
    * `modalities`: Arrays of data to use as text and video, such as text,audio.
    * `held_out`: Share of data to validate on, without validation (0.1).
    * `test`: Share of data to set aside for tests, as test.npz; calibration.npz has others.
    * `model`: trunk, two-branch, ... [default: the model of start, or trunk].
    * `loss`: info-nce, info-nce-poly, ... (the latter with a polynomial).
    * `poly`: The polynomial to train on.
    * `start`: A checkpoint to start from.
    * `epochs`: Training epochs [default: the loss's].
    * `batch`: Pairs per batch [default: the loss's].
    * `learning_rate`: Learning rate [default: the loss's].
    * `weight_decay`: Weight decay [default: the loss's].
    * `optimizer`: adamw, or sgd (adamw).
    * `seed`: Seed of all random draws (0).
    * `device`: Train on cpu, cuda or cuda:N (cpu).
    * `options`: An option of the model or the loss: model.hidden=512, loss.tau=0.1.
    * `validation`: Pairs that choose the best epoch.
    * `grid`: Values of loss, model, batch, epochs, learning_rate, weight_decay, optimizer,
      seed, or an option of options.
    """
