"""`cimtool train --hardware`: its options, and what it prints."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cimtool import api
from cimtool.base.errors import Argument, ArgumentError
from cimtool.cli.noise import take_noise
from cimtool.cli.options import FILE, Files, embeddings_option, model_options, settings_options
from cimtool.cli.output import Output
from cimtool.training.hardware.page import CompiledEpoch, headline
from cimtool.training.trainer import Run

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

TRAINING = (
    "validation",
    "held_out",
    "model",
    "loss",
    "weight_decay",
    "device",
    "options",
    "resume",
)
"""Options of `train` that mean nothing with --hardware."""

COMMON = ("poly", "start", "epochs", "batch", "learning_rate", "seed")
OPTIONS = (
    click.option("--hardware", metavar="TARGET", help="Fine-tune --start for this target."),
    embeddings_option("--calibration", "With --hardware: what the result is compiled with", False),
    model_options("head", "layer_map", "a", "b"),
    click.option("--noise", is_flag=True, help="Dies in the loop, with the target's noise."),
    click.option("--noise-model", metavar="NAME|TOML", help="A noise model in its place."),
    click.option("--time", metavar="TIME", help="When the dies are read: 30s, 10m, 1h, 1d, 1y."),
    click.option("--settings", type=FILE, metavar="FILE", help="Settings of the build (TOML)."),
    settings_options,
)


def hardware_options(function: FunctionT) -> FunctionT:
    """Add --hardware and what goes with it."""
    for option in reversed(OPTIONS):
        function = option(function)
    return function


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


def fine_tune(
    out: Output, data: Files, output: Path, plain: dict[str, Any], own: dict[str, Any]
) -> None:
    """Fine-tune, and print the result."""
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
    values = {"epochs": [epoch.to_json() for epoch in found.history], "written": list(found.files)}
    out.result(values, _text(found))


def _text(found: Run[CompiledEpoch]) -> str:
    written = ", ".join(map(str, found.files))
    name = shlex.quote(str(found.files[0]))
    return "\n".join(
        [
            headline(found.history),
            "",
            f"wrote {written}",
            f"next: cimtool compile --projectors {name} with the same --poly, --calibration, "
            "target and settings",
        ]
    )
