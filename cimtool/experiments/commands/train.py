"""Train projectors, or fine-tune them for a target."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cimtool.base.errors import Argument, ArgumentError
from cimtool.base.options import (
    EMBEDDINGS,
    FILE,
    Record,
    Switched,
    Topic,
    Words,
    option,
    optional,
    options_of,
)
from cimtool.bundle.dies import NoiseOptions
from cimtool.cli.output import Output
from cimtool.cli.records import parse_grid, values_command
from cimtool.experiments import api
from cimtool.hardware.settings import SettingOptions
from cimtool.loading.embeddings import EmbeddingsLike, File
from cimtool.loading.source import ModelOptions
from cimtool.report.document import Document, Sentence
from cimtool.training import api as training
from cimtool.training.arguments import TrainOptions

if TYPE_CHECKING:
    from cimtool.experiments.training_grid import TrainingGrid
    from cimtool.training.history import EpochT
    from cimtool.training.trainer import Run

COMMON = ("poly", "start", "epochs", "batch", "learning_rate", "seed")
"""Options of both training and fine-tuning."""


class PointOptions(Record):
    """The grid of `train`, as texts."""

    grid: Sequence[str] = option(
        "Train every point of a grid: loss, model, batch, epochs, learning-rate, "
        "weight-decay, optimizer, seed, or an option of {options}; may repeat.",
        Words("KEY=V,V,V"),
        default=(),
        topic=Topic.RUNS,
    )


class HardwareOptions(ModelOptions, SettingOptions, topic=Topic.FINE_TUNING):
    """Options of `train` for fine-tuning."""

    hardware: str | None = optional("Fine-tune {start} for this target.", "TARGET")
    calibration: EmbeddingsLike | None = optional(
        "With {hardware}: embeddings that decide the ranges.",
        EMBEDDINGS,
        place="data.calibration",
    )
    noise: NoiseOptions | None = optional(
        "Train on dies with the target's noise.",
        Switched(record=NoiseOptions, about="dies", only=("model", "time", "seed")),
    )
    settings: File | None = optional("Settings of the build (TOML).", FILE, place="settings")


TRAINING = {*options_of(TrainOptions), "grid"} - {*COMMON, "data", "output"}
"""Options of `train` that mean nothing with --hardware."""


def split_options(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The command's given options, split into training and hardware.

    Raises a usage error for an option that has no meaning here.
    """
    plain = {name: x for name, x in given.items() if name in TRAINING or name in COMMON}
    hardware = {name: x for name, x in given.items() if name not in plain}
    if given["hardware"] is None:
        for stray in _given(hardware):
            raise ArgumentError(
                "{} applies only to the hardware; expected {hardware} with it", stray
            )
    else:
        for stray in _given({name: plain[name] for name in plain if name in TRAINING}):
            raise ArgumentError(
                "{} does not apply to {hardware}, which trains on the model's own logits; leave it "
                "out",
                stray,
            )
    return plain, hardware


def _given(options: dict[str, Any]) -> list[Argument]:
    return [Argument(name) for name, value in options.items() if value not in (None, False, (), {})]


def _needs_hardware(given: Mapping[str, Any]) -> Collection[str]:
    """A build of a project file is for --hardware."""
    return () if given.get("hardware") else options_of(HardwareOptions)


@values_command(TrainOptions, PointOptions, HardwareOptions, left_out=_needs_hardware)
def command(out: Output, values: dict[str, Any]) -> None:
    """Train projectors, or fine-tune them for a target.

    They learn from a polynomial's logits, from -a ed, or by another --loss.
    DIR/model.pth, or FILE.pth as -o, is the best epoch on held-out pairs, by R@10 or, for a loss
    with labels, by mAP; all other files lie beside it.
    DIR/test.npz has the pairs of --test, which the run does not see, DIR/calibration.npz at most
    4,096 others, for compile. --resume continues from last.pth; training.html has the curves. If
    the loss diverges, the best epoch is kept and the exit status is 1.

    With --hardware the checkpoint of --start learns to keep its own logits when it is compiled,
    with the roundings of that target and those settings in the loop; --data needs no labels, and
    --model, --loss and the like do not apply.

    With --grid a model is trained for every point and measured on the pairs of --test, or on the
    held-out ones. DIR has results.json, grid.html and a run's folder for each point; the same
    command does not train finished points again. If points failed, the exit status is 1.
    """
    from cimtool.training.page import retrieval_headline
    from cimtool.training.trainer import CALIBRATION, TEST

    data, output = values.pop("data"), values.pop("output")
    plain, hardware = split_options(values)
    if hardware["hardware"] is not None:
        _fine_tune(out, data, output, plain, HardwareOptions.of(values))
        return
    if grid := plain.pop("grid"):
        source = click.get_current_context().get_parameter_source("seed")
        if source is ParameterSource.DEFAULT:
            del plain["seed"]
        _train_grid(out, data, output, grid, plain)
        return
    run = training.train(data, output, say=out.say, **plain)
    others, projectors = run.folder / CALIBRATION, shlex.quote(str(run.model))
    rows = shlex.quote(str(others)) if others in run.files else "NPZ"
    next_ = f"compile --projectors {projectors} --calibration {rows} --target NAME"
    if run.lacks_polynomial or run.outgrew_polynomial:
        next_ = f"teacher --projectors {projectors} --data {rows}"
    if run.lacks_sigmoid:
        next_ += " --a A --b B"
    values = {
        "warnings": list(run.warnings),
        "best_epoch": run.best.number,
        "raw": run.raw,
        "epochs": [epoch.to_json() for epoch in run.history],
        "remarks": list(run.remarks),
    }
    headline = retrieval_headline(run.history, run.raw, run.called, run.solved)
    said = [*run.warnings, headline, *run.remarks]
    if (aside := run.folder / TEST) in run.files:
        head = " --head csd" if run.lacks_polynomial else ""
        head = " --head euclidean" if run.lacks_sigmoid else head
        command = f"cimtool evaluate {projectors}{head} --data {shlex.quote(str(aside))}"
        beside = "On rows that this run did not see" + (", beside raw ones" if run.raw else "")
        said.append(f"{beside}: {command}")
    out.result(_shown(run, said, next_, values))


def _train_grid(
    out: Output, data: EmbeddingsLike, output: Path, grid: Sequence[str], plain: dict[str, Any]
) -> None:
    """Train every point, and print the table."""
    from cimtool.experiments.engine import PointsFailed

    if plain.pop("resume"):
        raise ArgumentError(
            "{resume} does not apply to {grid}, which continues by itself; leave it out"
        )
    if plain.pop("qrels") is not None:
        raise ArgumentError("{qrels} does not apply to {grid}; leave it out")
    found = parse_grid(
        (text if "." in text.partition("=")[0] else _as_argument(text) for text in grid),
        "batch=16,64",
    )
    try:
        result = api.train_grid(data, output, grid=found, say=out.say, **plain)
    except PointsFailed as failed:
        out.result(_grid_shown(failed.found))
        raise
    out.result(_grid_shown(result))


def _as_argument(text: str) -> str:
    """A key as in the library: `learning_rate` for `learning-rate`."""
    key, equals, values = text.partition("=")
    return f"{key.replace('-', '_')}{equals}{values}"


def _grid_shown(found: TrainingGrid) -> Document:
    from cimtool.experiments.render_training import best_models, time_table

    return found.of_this_run(time_table(found), *best_models(found))


def _fine_tune(
    out: Output, data: EmbeddingsLike, output: Path, plain: dict[str, Any], own: HardwareOptions
) -> None:
    """Fine-tune, and print the result."""
    from cimtool.training.page import compiled_headline

    for name, value in (("start", plain["start"]), ("calibration", own.calibration)):
        if not value:
            raise ArgumentError("{} is missing; expected it with {hardware}", Argument(name))
    given = {**vars(own), **{name: plain[name] for name in COMMON if name != "start"}}
    found = training.fine_tune(
        plain["start"],
        data=data,
        target=given.pop("hardware"),
        output=output,
        say=out.say,
        **given,
    )
    values = {
        "epochs": [epoch.to_json() for epoch in found.history],
        "remarks": list(found.remarks),
    }
    next_ = f"compile --projectors {shlex.quote(str(found.model))} with the same --poly, "
    next_ += "--calibration, target and settings"
    said = [compiled_headline(found.history), *found.remarks]
    out.result(_shown(found, said, next_, values))


def _shown(run: Run[EpochT], said: Sequence[str], next_: str, values: dict[str, Any]) -> Document:
    made = Document("", tuple(map(Sentence, said)), lambda: values)
    return made.wrote(run.files, f"cimtool {next_}")
