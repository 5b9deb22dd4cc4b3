"""Train projectors, or fine-tune them for a target."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cimtool import api
from cimtool.base.errors import Argument, ArgumentError
from cimtool.cli.group import INTEGER, NUMBER, Command
from cimtool.cli.options import (
    DIR,
    FILE,
    NPZ,
    Files,
    embeddings_option,
    modalities_option,
    model_options,
    settings_options,
    take_noise,
)
from cimtool.cli.output import Output
from cimtool.cli.values import parse_grid, parse_options
from cimtool.hardware.settings import setting_keys
from cimtool.report.document import Document, Sentence, Verbatim

if TYPE_CHECKING:
    from cimtool.experiments.training_grid import TrainingGrid
    from cimtool.training.history import EpochT
    from cimtool.training.trainer import Run

TRAINING = (
    "modalities",
    "validation",
    "held_out",
    "test",
    "model",
    "loss",
    "weight_decay",
    "optimizer",
    "device",
    "options",
    "resume",
    "grid",
)
"""Options of `train` that mean nothing with --hardware."""

DIES = ("noise", "noise_model", "time")
GROUPS = {
    "Data": ("data", "modalities", "validation", "held_out", "test"),
    "Model and loss": ("model", "loss", "poly", "start", "options"),
    "Optimisation": (
        *("epochs", "batch", "learning_rate", "weight_decay", "optimizer", "seed", "device"),
    ),
    "The run": ("output", "resume", "grid"),
    "Fine-tuning for a target (with --hardware)": (
        *("hardware", "calibration", "head", "layer_map", "a", "b", "settings", *DIES),
    ),
    "Settings of that build (with --hardware)": tuple(setting_keys()),
}
"""The options of the help by what they are for."""

COMMON = ("poly", "start", "epochs", "batch", "learning_rate", "seed")


def split_options(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a training and those of the hardware, of all that the command was given.

    Raises a usage error for one that is given where it means nothing.
    """
    plain = {name: given[name] for name in (*COMMON, *TRAINING)}
    hardware = {name: value for name, value in given.items() if name not in plain}
    if given["hardware"] is None:
        for stray in _given(hardware):
            raise ArgumentError("{} is about the hardware; expected {hardware} with it", stray)
    else:
        for stray in _given({name: plain[name] for name in TRAINING}):
            raise ArgumentError(
                "{} is not for {hardware}, which trains on the model's own logits; expected it "
                "without",
                stray,
            )
    return plain, hardware


def _given(options: dict[str, Any]) -> list[Argument]:
    return [Argument(name) for name, value in options.items() if value not in (None, False, ())]


@click.command(cls=Command, groups=GROUPS)
@embeddings_option("--data", "Pairs to train on")
@modalities_option("Arrays of --data that are taken as text and video, such as text,audio.")
@click.option("--validation", type=NPZ, help="Pairs that choose the best epoch.")
@click.option(
    "--held-out", type=NUMBER, metavar="X", help="Share of --data, without --validation (0.1)."
)
@click.option(
    "--test", type=NUMBER, metavar="X", help="Share of --data that the run sets aside, as test.npz."
)
@click.option(
    "--model", metavar="NAME", help="trunk, two-branch, ... [default: --start's, or trunk]."
)
@click.option(
    "--loss", metavar="NAME", help="info-nce, info-nce-poly, ... (the latter with a polynomial)."
)
@click.option("--poly", type=FILE, help="The polynomial to train on.")
@click.option("--start", type=FILE, help="A checkpoint to start from.")
@click.option("--epochs", type=INTEGER, metavar="N", help="Training epochs [default: the loss's].")
@click.option("--batch", type=INTEGER, metavar="N", help="Pairs of a batch [default: the loss's].")
@click.option(
    "--learning-rate", type=NUMBER, metavar="X", help="Learning rate [default: the loss's]."
)
@click.option(
    "--weight-decay", type=NUMBER, metavar="X", help="Weight decay [default: the loss's]."
)
@click.option("--optimizer", metavar="NAME", help="adamw, or sgd (adamw).")
@click.option("--seed", type=INTEGER, default=0, help="Seed of all random draws.")
@click.option("--device", metavar="NAME", help="Train on cpu, cuda or cuda:N (cpu).")
@click.option(
    "--set", "options", metavar="KEY=VALUE", multiple=True,
    help="An option of the model or the loss: model.hidden=512, loss.tau=0.1.",
)  # fmt: skip
@click.option(
    "--grid", metavar="KEY=V,V,V", multiple=True,
    help="Train every point of a grid: loss, model, batch, epochs, learning-rate, weight-decay, "
    "optimizer, seed, or an option of --set; may repeat.",
)  # fmt: skip
@click.option("--resume", is_flag=True, help="Continue an interrupted run in this folder.")
@click.option("-o", "--output", type=DIR, required=True, help="Folder of the run.")
@click.option("--hardware", metavar="TARGET", help="Fine-tune --start for this target.")
@embeddings_option("--calibration", "With --hardware: embeddings that decide the ranges", False)
@model_options("head", "layer_map", "a", "b")
@click.option("--noise", is_flag=True, help="Train on dies with the target's noise.")
@click.option(
    "--noise-model", metavar="NAME|TOML", help="A noise model in place of the target's own."
)
@click.option("--time", metavar="TIME", help="Time after programming: 30s, 10m, 1h, 1d, 1y.")
@click.option("--settings", type=FILE, help="Settings of the build (TOML).")
@settings_options
@click.pass_obj
@click.pass_context
def command(
    context: click.Context, out: Output, /, data: Files, output: Path, **options: Any
) -> None:
    """Train projectors, or fine-tune them for a target.

    They learn from a polynomial's logits, from -a ed, or by another --loss.
    DIR/model.pth is the best epoch on held-out pairs, by R@10 or, for a loss with labels, by mAP;
    DIR/test.npz has the pairs of --test, which the run does not see;
    last.pth is what --resume goes on from; training.html has the curves. Exit status 1 where the
    loss diverges: the best is kept. With --hardware the checkpoint of --start learns to give its
    own logits again once it is compiled, with the roundings of that target and those settings in
    the loop; --data needs no labels, and --model, --loss and the like are not for it.
    With --grid a model is trained for every point and measured on the pairs of --test, or those
    held out; DIR has results.json, grid.html and a run's folder for each point, which the same
    command does not train again. Exit status 1 where points failed.
    """
    from cimtool.training.page import retrieval_headline
    from cimtool.training.trainer import BEST, TEST

    plain, hardware = split_options(options)
    if hardware["hardware"] is not None:
        _fine_tune(out, data, output, plain, hardware)
        return
    fields = parse_options(plain.pop("options"))
    if grid := plain.pop("grid"):
        if context.get_parameter_source("seed") is ParameterSource.DEFAULT:
            del plain["seed"]
        _train_grid(out, data, output, grid, {**plain, "options": fields})
        return
    run = api.train(data, output, options=fields, say=out.say, **plain)
    next_ = "compile --projectors {} --calibration NPZ --target NAME"
    if run.lacks_polynomial or run.outgrew_polynomial:
        next_ = "teacher --projectors {} --data NPZ"
    if run.lacks_sigmoid:
        next_ += " --a A --b B"
    values = {
        "warnings": list(run.warnings),
        "best_epoch": run.best.number,
        "raw": run.raw,
        "epochs": [epoch.to_json() for epoch in run.history],
        "remarks": list(run.remarks),
    }
    said = [*run.warnings, retrieval_headline(run.history, run.raw, run.called), *run.remarks]
    if (aside := run.folder / TEST) in run.files:
        projectors, rows = (shlex.quote(str(file)) for file in (run.folder / BEST, aside))
        head = " --head csd" if run.lacks_polynomial else ""
        head = " --head euclidean" if run.lacks_sigmoid else head
        command = f"cimtool evaluate {projectors}{head} --data {rows}"
        said.append(f"Beside raw embeddings, on rows that no part of this run saw: {command}")
    out.result(_shown(run, said, next_, values))


def _train_grid(
    out: Output, data: Files, output: Path, grid: Sequence[str], plain: dict[str, Any]
) -> None:
    """Train every point, and print the table."""
    from cimtool.experiments.engine import PointsFailed

    if plain.pop("resume"):
        raise ArgumentError("{resume} is not for {grid}, which goes on by itself; expected none")
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
    """A key as the library has it: `learning_rate` for that of --learning-rate."""
    key, equals, values = text.partition("=")
    return f"{key.replace('-', '_')}{equals}{values}"


def _grid_shown(found: TrainingGrid) -> Document:
    from cimtool.experiments.render_training import grid_summary

    return Document("", (Verbatim(grid_summary(found)),), found.of_this_run)


def _fine_tune(
    out: Output, data: Files, output: Path, plain: dict[str, Any], own: dict[str, Any]
) -> None:
    """Fine-tune, and print the result."""
    from cimtool.training.page import compiled_headline

    for name, value in (("start", plain["start"]), ("calibration", own["calibration"])):
        if not value:
            raise ArgumentError("{} is missing; expected it with {hardware}", Argument(name))
    noise = take_noise(own, plain["seed"])
    common = {name: plain[name] for name in COMMON if name != "start"}
    found = api.fine_tune(
        plain["start"],
        data=data,
        target=own.pop("hardware"),
        noise=noise,
        output=output,
        say=out.say,
        **common,
        **own,
    )
    values = {
        "epochs": [epoch.to_json() for epoch in found.history],
        "remarks": list(found.remarks),
    }
    next_ = "compile --projectors {} with the same --poly, --calibration, target and settings"
    said = [compiled_headline(found.history), *found.remarks]
    out.result(_shown(found, said, next_, values))


def _shown(run: Run[EpochT], said: Sequence[str], next_: str, values: dict[str, Any]) -> Document:
    from cimtool.training.trainer import BEST

    command_line = next_.format(shlex.quote(str(run.folder / BEST)))
    made = Document("", tuple(map(Sentence, said)), lambda: values)
    return made.wrote(run.files, f"cimtool {command_line}")
