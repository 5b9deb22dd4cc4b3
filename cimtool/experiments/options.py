"""Options of `sweep`, `tune` and `evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from cimtool.base.grids import Grid
from cimtool.base.options import (
    DIR,
    EMBEDDINGS,
    FILE,
    NPZ,
    TOML,
    GridValues,
    IntegerList,
    Many,
    MetricLimits,
    NameList,
    OneName,
    Record,
    Topic,
    Word,
    Words,
    option,
    optional,
)
from cimtool.bundle.options import BuildOptions, JudgedData, SeenData
from cimtool.experiments.engine import TableFormat, WorkerOptions
from cimtool.experiments.objectives import COSTS, EXAMPLE
from cimtool.hardware.settings import SettingOptions
from cimtool.hardware.target import Target
from cimtool.loading.embeddings import EmbeddingsLike, File
from cimtool.loading.source import ModelArguments, ModelOptions, ModelSource, Projectors
from cimtool.reference.limits import LIMITS
from cimtool.reference.montecarlo import DEFAULT_SAMPLES
from cimtool.training.arguments import TrainingOptions
from cimtool.verification.options import WithDistractors

VARIED = ("adc_bits", "references", "rows_active", "score_mapping", "shortlist")
"""Settings that `tune` may vary: converter bits, references, active rows, the gallery's way."""


class VerdictOptions(WithDistractors):
    """The other ways that the verdict compares with: raw rows in a gallery, and sampling."""

    gallery: int | None = optional(
        "Items that a query is priced among and R@1 is extrapolated to [default: those measured].",
        "N",
        at_least=2,
        place="gallery",
        topic=Topic.MEASUREMENT,
    )
    samples: int = option(
        "Monte Carlo samples per side of the verdict.",
        "K",
        at_least=1,
        default=DEFAULT_SAMPLES,
        topic=Topic.MEASUREMENT,
    )


class ObjectiveOption(Record):
    """The cost that chooses among points or bits."""

    objective: str | None = optional(
        f"Cost to lower: {', '.join(COSTS)}, or a sum such as {EXAMPLE} of shares of what the "
        "first has.",
        Word("COST|COST=WEIGHT,..."),
        topic=Topic.MEASUREMENT,
    )


class SweepOptions(
    ModelArguments, JudgedData, SeenData, VerdictOptions, ObjectiveOption, WorkerOptions
):
    """The options of `sweep`."""

    calibration: EmbeddingsLike = option(
        "Embeddings that decide the ranges.", EMBEDDINGS, place="data.calibration"
    )
    data: EmbeddingsLike = option("Embeddings to measure on.", EMBEDDINGS, place="data.measured")
    grid: Grid = option(
        "Values of a setting, of target, of target.KEY, of head, degree or samples; may repeat.",
        GridValues(),
    )
    target: str | Target | None = optional(
        "The hardware, if it is not in the grid.", Word("NAME|FILE"), place="target"
    )
    settings: File | None = optional(
        "Settings of all points (TOML).", FILE, place="settings", topic=Topic.SETTINGS
    )
    teacher: File | None = optional("Labels to fit for {grid} degree=...", FILE, topic=Topic.MODEL)
    trials: int | None = optional("Dies drawn for each point.", "N", at_least=1, topic=Topic.DIES)
    noise_model: File | None = optional(
        "A noise model to use instead of the targets' own.", Word("NAME|TOML"), topic=Topic.DIES
    )
    times: Sequence[str] = option(
        "Times after programming.", Words("TIME"), default=(), flag="time", topic=Topic.DIES
    )
    corners: Sequence[str] = option(
        "Corners of the noise.", Words("NAME"), default=(), flag="corner", topic=Topic.DIES
    )
    seed: int = option("Seed of the dies.", at_least=0, default=0, topic=Topic.DIES)
    budget: Mapping[str, float] | None = optional(
        "Limits that the chosen point must keep.",
        MetricLimits(names=LIMITS),
        place="budgets",
    )
    min_yield: float | None = optional(
        "Share of dies that must keep the {budget}.", "X", topic=Topic.DIES
    )
    table: TableFormat = option(
        "Format of the table of points.",
        OneName(names=get_args(TableFormat)),
        default="csv",
        flag="format",
        topic=Topic.WRITTEN,
    )
    output: File | None = optional("Folder of results and points.", DIR, short="o")


class TuneOptions(
    BuildOptions,
    JudgedData,
    SettingOptions,
    SeenData,
    VerdictOptions,
    ObjectiveOption,
    WorkerOptions,
):
    """The options of `tune`."""

    data: EmbeddingsLike = option(
        "Embeddings to measure on: one half of the queries chooses, the other checks.",
        EMBEDDINGS,
        place="data.measured",
    )
    budget: Mapping[str, float] = option(
        "Largest error allowed for the compiled model; repeat for more metrics.",
        MetricLimits(names=LIMITS),
        place="budgets",
    )
    grid: Grid | None = optional(
        f"Values of {', '.join(VARIED)} to start from; repeat for all combinations.",
        GridValues("KEY=VALUE,...", example="adc_bits=5,6,8"),
        topic=Topic.SETTINGS,
    )
    settings: File | None = optional(
        "Settings to start from (TOML).", FILE, place="settings", topic=Topic.SETTINGS
    )
    output: File | None = optional("File of the settings.", TOML, short="o")
    folder: File | None = optional(
        "Folder of results and measured bits; a later run continues there.",
        DIR,
        topic=Topic.WRITTEN,
    )


class CompareTargetsOptions(ModelOptions, JudgedData, SeenData, VerdictOptions, WorkerOptions):
    """The options of `compare_targets`."""

    what: Sequence[Projectors | str] = option(
        "The checkpoint (or two ONNX files, text first), then targets [default: all].",
        Many(),
        positional=True,
        spread="Projectors | str",
        argument="MODEL [TARGET]...",
    )
    poly: File | None = optional(
        "The polynomial, if the checkpoint has none.", FILE, place="score.poly"
    )
    calibration: EmbeddingsLike = option(
        "Embeddings that decide the ranges.", EMBEDDINGS, place="data.calibration"
    )
    data: EmbeddingsLike = option("Embeddings to measure on.", EMBEDDINGS, place="data.measured")
    settings: File | None = optional(
        "Settings of all targets (TOML).", FILE, place="settings", topic=Topic.SETTINGS
    )
    budget: Mapping[str, float] | None = optional(
        "Limits that a target must keep (r1_loss=0.01).",
        MetricLimits(names=LIMITS),
        place="budgets",
    )
    output: File | None = optional("Folder of results and rows.", DIR, short="o")


class EvaluateOptions(JudgedData, ModelOptions, WorkerOptions):
    """The options of `evaluate`."""

    data: EmbeddingsLike = option(
        "Embeddings to evaluate on.", EMBEDDINGS, positional=True, place="data.measured"
    )
    what: Sequence[Projectors | ModelSource] = option(
        "Checkpoints (or two ONNX files, text first) and bundles.",
        Many(),
        default=(),
        positional=True,
        spread="Projectors | ModelSource",
        argument="[WHAT]...",
    )
    modalities: Sequence[str] | None = optional(
        "Compare raw embeddings of each pair of these arrays, such as text,video,audio.",
        NameList("A,B"),
        topic=Topic.MEASUREMENT,
    )
    poly: File | None = optional(
        "The polynomial, if the checkpoint has none.", FILE, place="score.poly"
    )
    heads: Sequence[str] | None = optional(
        "Score projectors by each of these heads, such as csd,probcosine,euclidean.",
        NameList("NAME,..."),
        topic=Topic.MODEL,
    )
    samples: Sequence[int] = option(
        "Add trained projectors by Monte Carlo, with K samples per side.",
        IntegerList("K,K,..."),
        default=(),
        topic=Topic.MEASUREMENT,
    )
    leave_one_out: bool = option(
        "Count items with a query's label as right, except the query itself.",
        default=False,
        topic=Topic.MEASUREMENT,
    )
    trec: File | None = optional(
        "Folder for the rankings as TREC runs, with their qrels.", DIR, topic=Topic.WRITTEN
    )
    resamples: int = option(
        "Resamples for the intervals.", at_least=2, default=1000, topic=Topic.MEASUREMENT
    )
    seed: int = option("Seed of the resamples.", at_least=0, default=0, topic=Topic.MEASUREMENT)
    calibration_rows: Literal["refuse", "allow"] = option(
        "Rows that a bundle was calibrated on: refuse, or allow (measure them too).",
        OneName(names=("refuse", "allow")),
        default="refuse",
        topic=Topic.MEASUREMENT,
    )
    output: File | None = optional(
        "Folder of results and ranked subjects; a later run continues there.", DIR, short="o"
    )


class TrainGridOptions(TrainingOptions):
    """The options of `train_grid`."""

    data: EmbeddingsLike = option("Pairs to train on.", EMBEDDINGS, positional=True)
    output: File = option("Folder of the results.", DIR, positional=True, short="o")
    validation: EmbeddingsLike | None = optional("Pairs that choose the best epoch.", NPZ)
    seed: int | None = optional("Seed of all random draws (0).")
    grid: Grid = option(
        "Values of loss, model, batch, epochs, learning_rate, weight_decay, optimizer, seed, "
        "or an option of {options}.",
        GridValues(example="batch=16,64"),
    )
