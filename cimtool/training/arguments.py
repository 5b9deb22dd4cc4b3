"""Options of `teacher`, `fit`, `train` and `fine_tune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from cimtool.base.arrays import Array
from cimtool.base.options import (
    DIR,
    EMBEDDINGS,
    FILE,
    FILES,
    NPZ,
    IntegerList,
    KeyValues,
    NameList,
    OneName,
    Record,
    Switched,
    Topic,
    option,
    optional,
)
from cimtool.bundle.dies import NoiseOptions
from cimtool.bundle.options import BuildOptions
from cimtool.hardware.settings import SettingOptions
from cimtool.ir.surrogate import MAX_DEGREE
from cimtool.loading.embeddings import EmbeddingsLike, File
from cimtool.loading.source import Projectors
from cimtool.training.polynomial import ALPHA

LabelKind = Literal["mc", "exact"]


class TeacherOptions(Record):
    """The options of `teacher`."""

    projectors: Projectors | None = optional(
        "The checkpoint (or twice, .onnx: text, then video).", FILES, positional=True
    )
    data: EmbeddingsLike | None = optional(
        "Embeddings to draw pairs from.", EMBEDDINGS, positional=True
    )
    layer_map: File | None = optional(
        "Names of the layers (TOML).", FILE, flag="map", topic=Topic.MODEL
    )
    logvar: float | None = optional(
        "Instead of {projectors}: a trunk of random weights whose log-variances lie around X.",
        "X",
        topic=Topic.MODEL,
    )
    gaussians: File | Mapping[str, Array] | None = optional(
        "Instead of {data}: text_mu, text_logvar, video_... (or image_...)", NPZ, topic=Topic.MODEL
    )
    pairs: int = option("Pairs drawn.", default=300000, topic=Topic.DATA)
    matched: float = option("Share of right pairs.", default=0.9, topic=Topic.DATA)
    labels: LabelKind = option("Kind of labels.", OneName(names=("mc", "exact")), default="exact")
    samples: int | None = optional("Monte Carlo samples per side (10).", "K")
    a: float | None = optional(
        "a of sigmoid(b - a D) [default: the model's].", "X", topic=Topic.MODEL
    )
    b: float | None = optional(
        "b of sigmoid(b - a D) [default: the model's].", "X", topic=Topic.MODEL
    )
    seed: int = option("Seed of pairs and samples.", default=0, topic=Topic.DATA)
    output: File | None = optional("File of the teacher.", NPZ, short="o")


class FormOptions(Record):
    """The polynomials that are fitted."""

    degree: int | Sequence[int] = option(
        "Degrees, 1 to 8: of several, the cheapest polynomial that is good enough is written.",
        IntegerList(or_one=True),
        default=tuple(range(1, MAX_DEGREE + 1)),
    )
    ed_alone: bool = option(
        "Leave out all terms with vd: one matrix product instead of six.",
        default=False,
        topic=Topic.FIT,
    )
    tolerance: float | None = optional(
        "Error in logits that a lower degree may add, in the mean square [default: 0.1% of the "
        "labels' spread, at most a tenth of the scatter of samples].",
        "X",
        topic=Topic.FIT,
    )
    alpha: float = option(
        "Ridge penalty, on standardised features.", default=ALPHA, topic=Topic.FIT
    )
    scale_ed: float | None = optional(
        "Divisor of ed [default: the teacher's].", "X", topic=Topic.FIT
    )
    scale_vd: float | None = optional(
        "Divisor of vd [default: the teacher's].", "X", topic=Topic.FIT
    )
    seed: int = option("Seed of the held-out pairs.", default=0, topic=Topic.FIT)


class TrainingOptions(Record):
    """The options of a training; None leaves it to the loss, to `start`, or to what is usual."""

    modalities: Sequence[str] | None = optional(
        "Arrays of {data} to use as text and video, such as text,audio.",
        NameList("A,B"),
        topic=Topic.DATA,
    )
    held_out: float | None = optional(
        "Share of {data} to validate on, without {validation} (0.1).", "X", topic=Topic.DATA
    )
    test: float | None = optional(
        "Share of {data} to set aside for tests, as test.npz; calibration.npz has others.", "X"
    )
    model: str | None = optional(
        "trunk, two-branch, ... [default: the model of {start}, or trunk].", "NAME"
    )
    loss: str | None = optional(
        "info-nce, info-nce-poly, ... (the latter with a polynomial).", "NAME"
    )
    poly: File | None = optional("The polynomial to train on.", FILE)
    start: File | None = optional("A checkpoint to start from.", FILE)
    epochs: int | None = optional("Training epochs [default: the loss's].", "N")
    batch: int | None = optional(
        "Pairs per batch [default: the loss's].", "N", topic=Topic.OPTIMISATION
    )
    learning_rate: float | None = optional(
        "Learning rate [default: the loss's].", "X", topic=Topic.OPTIMISATION
    )
    weight_decay: float | None = optional(
        "Weight decay [default: the loss's].", "X", topic=Topic.OPTIMISATION
    )
    optimizer: str | None = optional("adamw, or sgd (adamw).", "NAME", topic=Topic.OPTIMISATION)
    seed: int | None = option("Seed of all random draws.", default=0, topic=Topic.OPTIMISATION)
    device: str | None = optional(
        "Train on cpu, cuda or cuda:N (cpu).", "NAME", topic=Topic.OPTIMISATION
    )
    options: Mapping[str, Any] | None = optional(
        "An option of the model or the loss: model.hidden=512, loss.tau=0.1.",
        KeyValues(),
        flag="set",
        topic=Topic.MODEL,
    )


class TrainOptions(TrainingOptions):
    """The options of `train`."""

    data: EmbeddingsLike = option("Pairs to train on.", EMBEDDINGS, positional=True)
    output: File = option(
        "Folder of the run, or its best checkpoint (.pth).", DIR, positional=True, short="o"
    )
    qrels: File | None = optional(
        "Judgements of right pairs of {data}: lines of text, 0, video, grade (TREC qrels).",
        FILE,
        topic=Topic.DATA,
    )
    validation: EmbeddingsLike | None = optional(
        "Pairs that choose the best epoch.", NPZ, topic=Topic.DATA
    )
    resume: bool = option(
        "Continue an interrupted run in this folder.", default=False, topic=Topic.RUNS
    )


class FineTuneOptions(BuildOptions, SettingOptions):
    """The options of `fine_tune`."""

    data: EmbeddingsLike = option("Rows to train on, which need no labels.", EMBEDDINGS)
    output: File = option("Folder of the run, or its best checkpoint (.pth).", DIR, short="o")
    epochs: int | None = optional("Training epochs (5).", "N")
    batch: int | None = optional("Rows per batch (128).", "N")
    learning_rate: float | None = optional("Learning rate (6e-5).", "X")
    seed: int = option("Seed of all random draws.", default=0)
    noise: NoiseOptions | None = optional(
        "Train on dies with the target's noise.",
        Switched(record=NoiseOptions, about="dies", only=("model", "time", "seed")),
    )
