"""Options of `teacher`, `fit`, `train` and `fine_tune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from cimtool.base.arrays import Array
from cimtool.base.options import (
    DIR,
    FILE,
    NPZ,
    Integer,
    IntegerList,
    KeyValues,
    NameList,
    OneName,
    OneOrTwoFiles,
    Real,
    Record,
    Switch,
    Switched,
    Word,
    option,
)
from cimtool.bundle.dies import NoiseOptions
from cimtool.hardware.settings import SettingOptions
from cimtool.hardware.target import Target
from cimtool.loading.embeddings import EmbeddingsLike, File
from cimtool.loading.options import BuildOptions
from cimtool.loading.source import Projectors
from cimtool.training.ridge import ALPHA

LabelKind = Literal["mc", "exact"]


class TeacherOptions(Record):
    """The options of `teacher`."""

    projectors: Projectors | None = option(
        "The checkpoint (or twice, .onnx: text, then video).",
        OneOrTwoFiles(embeddings=False),
        default=None,
        positional=True,
    )
    data: EmbeddingsLike | None = option(
        "Embeddings to draw pairs from.", OneOrTwoFiles(), default=None, positional=True
    )
    layer_map: File | None = option("Names of the layers (TOML).", FILE, default=None, flag="map")
    gaussians: File | Mapping[str, Array] | None = option(
        "Instead of {data}: text_mu, text_logvar, video_... (or image_...)", NPZ, default=None
    )
    pairs: int = option("Pairs drawn.", Integer(), default=300_000)
    matched: float = option("Share of right pairs.", Real(), default=0.9)
    labels: LabelKind = option("Kind of labels.", OneName(names=("mc", "exact")), default="exact")
    samples: int | None = option("Monte Carlo samples a side (10).", Integer("K"), default=None)
    a: float | None = option(
        "a of sigmoid(b - a D) [default: the model's].", Real("X"), default=None
    )
    b: float | None = option(
        "b of sigmoid(b - a D) [default: the model's].", Real("X"), default=None
    )
    seed: int = option("Seed of pairs and samples.", Integer(), default=0)
    output: File | None = option("File of the teacher.", NPZ, default=None, short="o")


class FormOptions(Record):
    """The polynomials that are fitted."""

    degree: int | Sequence[int] = option(
        "Degree, 1 to 6; of several, 1,2,3, the lowest that is enough is written.",
        IntegerList(or_one=True),
        default=4,
    )
    ed_alone: bool = option("No term takes vd: one matrix product of six.", Switch(), default=False)
    tolerance: float | None = option(
        "Logits that a lower degree may err more [default: a tenth of what samples scatter].",
        Real("X"),
        default=None,
    )
    alpha: float = option("Ridge penalty, on standardised features.", Real(), default=ALPHA)
    scale_ed: float | None = option(
        "Divisor of ed [default: the teacher's].", Real("X"), default=None
    )
    scale_vd: float | None = option(
        "Divisor of vd [default: the teacher's].", Real("X"), default=None
    )
    seed: int = option("Seed of the held-out pairs.", Integer(), default=0)


class TrainingOptions(Record):
    """The options of a training; None leaves it to the loss, to `start`, or to what is usual."""

    modalities: Sequence[str] | None = option(
        "Arrays of {data} that are taken as text and video, such as text,audio.",
        NameList("A,B"),
        default=None,
    )
    held_out: float | None = option(
        "Share of {data}, without {validation} (0.1).", Real("X"), default=None
    )
    test: float | None = option(
        "Share of {data} that the run sets aside, as test.npz.", Real("X"), default=None
    )
    model: str | None = option(
        "trunk, two-branch, ... [default: that of {start}, or trunk].", Word("NAME"), default=None
    )
    loss: str | None = option(
        "info-nce, info-nce-poly, ... (the latter with a polynomial).", Word("NAME"), default=None
    )
    poly: File | None = option("The polynomial to train on.", FILE, default=None)
    start: File | None = option("A checkpoint to start from.", FILE, default=None)
    epochs: int | None = option(
        "Training epochs [default: the loss's].", Integer("N"), default=None
    )
    batch: int | None = option(
        "Pairs of a batch [default: the loss's].", Integer("N"), default=None
    )
    learning_rate: float | None = option(
        "Learning rate [default: the loss's].", Real("X"), default=None
    )
    weight_decay: float | None = option(
        "Weight decay [default: the loss's].", Real("X"), default=None
    )
    optimizer: str | None = option("adamw, or sgd (adamw).", Word("NAME"), default=None)
    seed: int | None = option("Seed of all random draws.", Integer(), default=0)
    device: str | None = option("Train on cpu, cuda or cuda:N (cpu).", Word("NAME"), default=None)
    options: Mapping[str, Any] | None = option(
        "An option of the model or the loss: model.hidden=512, loss.tau=0.1.",
        KeyValues(),
        default=None,
        flag="set",
    )


class TrainOptions(TrainingOptions):
    """The options of `train`."""

    data: EmbeddingsLike = option("Pairs to train on.", OneOrTwoFiles(), positional=True)
    output: File = option("Folder of the run.", DIR, positional=True, short="o")
    validation: EmbeddingsLike | None = option(
        "Pairs that choose the best epoch.", NPZ, default=None
    )
    resume: bool = option("Continue an interrupted run in this folder.", Switch(), default=False)


class FineTuneOptions(BuildOptions, SettingOptions):
    """The options of `fine_tune`."""

    data: EmbeddingsLike = option("Rows to train on, which need no labels.", OneOrTwoFiles())
    target: str | Target = option("The hardware.", Word("NAME|FILE"))
    output: File = option("Folder of the run.", DIR, short="o")
    epochs: int | None = option("Training epochs (5).", Integer("N"), default=None)
    batch: int | None = option("Rows of a batch (128).", Integer("N"), default=None)
    learning_rate: float | None = option("Learning rate (6e-5).", Real("X"), default=None)
    seed: int = option("Seed of all random draws.", Integer(), default=0)
    noise: NoiseOptions | None = option(
        "Train on dies with the target's noise.",
        Switched(record=NoiseOptions, about="dies", only=("model", "time", "seed")),
        default=None,
    )
