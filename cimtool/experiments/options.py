"""Options of `sweep`, `tune` and `evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from cimtool.base.grids import Grid
from cimtool.base.options import (
    DIR,
    FILE,
    NPZ,
    TOML,
    GridValues,
    Integer,
    IntegerList,
    Many,
    MetricLimits,
    NameList,
    OneName,
    OneOrTwoFiles,
    Real,
    Switch,
    Word,
    Words,
    option,
)
from cimtool.experiments.sweeps.results import TableFormat
from cimtool.experiments.tuning.widths import ORDER, CostName
from cimtool.hardware.settings import SettingOptions
from cimtool.hardware.target import Target
from cimtool.loading.embeddings import EmbeddingsLike, File
from cimtool.loading.options import BuildOptions, JudgedData, SeenData
from cimtool.loading.source import ModelArguments, ModelOptions, ModelSource, Projectors
from cimtool.training.arguments import TrainingOptions

VARIED = ("adc_bits", "references", "rows_active")
"""Settings of all layers that may be varied: converter bits, range settings, active rows."""

DASK_RISK = (
    "tcp://: anyone who reaches the cluster can run code in it and here; tls://: needs keys."
)


class SweepOptions(ModelArguments, JudgedData, SeenData):
    """The options of `sweep`."""

    calibration: EmbeddingsLike = option("Embeddings that decide the ranges.", OneOrTwoFiles())
    data: EmbeddingsLike = option("Embeddings to measure on.", OneOrTwoFiles())
    grid: Grid = option(
        "Values of a setting, of target, of target.KEY, of head, degree or samples; may repeat.",
        GridValues(),
    )
    target: str | Target | None = option(
        "The hardware, if it is not in the grid.", Word("NAME|FILE"), default=None
    )
    settings: File | None = option("Settings of all points (TOML).", FILE, default=None)
    teacher: File | None = option("Labels that {grid} degree=... fits.", FILE, default=None)
    trials: int | None = option(
        "Dies drawn for each point.", Integer("N", at_least=1), default=None
    )
    noise_model: File | None = option(
        "A noise model in place of the targets'.", Word("NAME|TOML"), default=None
    )
    times: Sequence[str] = option(
        "Times after programming.", Words("TIME"), default=(), flag="time"
    )
    corners: Sequence[str] = option(
        "Corners of the noise.", Words("NAME"), default=(), flag="corner"
    )
    seed: int = option("Seed of the dies.", Integer(at_least=0), default=0)
    budget: Mapping[str, float] | None = option(
        "Limits of the choice.", MetricLimits(), default=None
    )
    min_yield: float | None = option("Share of dies within the {budget}.", Real("X"), default=None)
    jobs: int | None = option(
        "Processes on this machine (1).", Integer("N", at_least=1), default=None
    )
    dask: str | None = option(
        f"Scheduler of a Dask cluster, instead of {{jobs}}. {DASK_RISK}",
        Word("ADDRESS"),
        default=None,
    )
    table: TableFormat = option(
        "Format of the table of points.",
        OneName(names=get_args(TableFormat)),
        default="csv",
        flag="format",
    )
    output: File | None = option("Folder of results and points.", DIR, default=None, short="o")


class TuneOptions(BuildOptions, JudgedData, SettingOptions, SeenData):
    """The options of `tune`."""

    data: EmbeddingsLike = option(
        "Embeddings whose queries choose (one half) and hold (the other).", OneOrTwoFiles()
    )
    target: str | Target = option("The hardware.", Word("NAME|FILE"))
    budget: Mapping[str, float] = option(
        "Largest error of the compiled model; repeat for more metrics.", MetricLimits()
    )
    cost: CostName = option(
        "Cost to lower: arrays (then conversions), conversions (then arrays) or energy.",
        OneName(names=tuple(ORDER)),
        default="arrays",
    )
    grid: Grid | None = option(
        f"Values of {', '.join(VARIED)} to start from; repeat for all combinations.",
        GridValues("KEY=VALUE,...", example="adc_bits=5,6,8"),
        default=None,
    )
    settings: File | None = option("Settings to start from (TOML).", FILE, default=None)
    output: File | None = option("File of the settings.", TOML, default=None, short="o")


class EvaluateOptions(JudgedData, ModelOptions):
    """The options of `evaluate`."""

    data: EmbeddingsLike = option("Embeddings to evaluate on.", OneOrTwoFiles(), positional=True)
    what: Sequence[Projectors | ModelSource] = option(
        "Checkpoints (or two ONNX files, text first) and bundles.",
        Many(),
        default=(),
        positional=True,
        spread="Projectors | ModelSource",
        argument="[WHAT]...",
    )
    modalities: Sequence[str] | None = option(
        "Raw embeddings of each pair of these arrays, such as text,video,audio.",
        NameList("A,B"),
        default=None,
    )
    poly: File | None = option("The polynomial, if the checkpoint has none.", FILE, default=None)
    samples: Sequence[int] = option(
        "Add trained projectors by Monte Carlo, with K samples a side.",
        IntegerList("K,K,..."),
        default=(),
    )
    leave_one_out: bool = option(
        "Items of a query's label are right, the query itself left out.", Switch(), default=False
    )
    trec: File | None = option(
        "Folder for the rankings as TREC runs, with their qrels.", DIR, default=None
    )
    resamples: int = option("Resamples for the intervals.", Integer(at_least=2), default=1000)
    seed: int = option("Seed of the resamples.", Integer(at_least=0), default=0)
    calibration_rows: Literal["refuse", "allow"] = option(
        "Rows that a bundle was calibrated on: refuse, or allow (measure them too).",
        OneName(names=("refuse", "allow")),
        default="refuse",
    )


class TrainGridOptions(TrainingOptions):
    """The options of `train_grid`."""

    data: EmbeddingsLike = option("Pairs to train on.", OneOrTwoFiles(), positional=True)
    output: File = option("Folder of the results.", DIR, positional=True, short="o")
    validation: EmbeddingsLike | None = option(
        "Pairs that choose the best epoch.", NPZ, default=None
    )
    seed: int | None = option("Seed of all random draws (0).", Integer(), default=None)
    grid: Grid = option(
        "Values of loss, model, batch, epochs, learning_rate, weight_decay, optimizer, seed, or an "
        "option of {options}.",
        GridValues(example="batch=16,64"),
    )
