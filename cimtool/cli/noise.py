"""The options of noise, for the commands that draw dies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cimtool.cli.group import OneOf

if TYPE_CHECKING:
    from cimtool.bundle.dies import NoiseOptions

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def noise_options(function: FunctionT) -> FunctionT:
    """Add --noise and what goes with it: `noise`, `trials`, `time`, `compensation`, `model`."""
    options = (
        click.option("--noise", is_flag=True, help="Draw dies with the target's noise."),
        click.option("--trials", type=int, metavar="N", help="How many dies are drawn (10)."),
        click.option("--time", metavar="TIME", help="When dies are read: 30s, 10m, 1h, 1d, 1y."),
        click.option(
            "--compensation",
            type=OneOf(["none", "global", "column"]),
            help="What factors make up for drift: none, one a layer, or one a column.",
        ),
        click.option(
            "--noise-model",
            "model",
            metavar="NAME|TOML",
            help="A noise model in place of the target's own.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def noise_request(
    noise: bool,
    seed: int,
    trials: int | None,
    time: str | None,
    compensation: str | None,
    model: str | None,
) -> NoiseOptions | None:
    """What was asked of dies; None without --noise, a usage error where its options stand alone."""
    given: dict[str, Any] = {
        "trials": trials,
        "time": time,
        "compensation": compensation,
        "model": model if model is None or not Path(model).is_file() else Path(model),
    }
    given = {name: value for name, value in given.items() if value is not None}
    if not noise:
        if given:
            option = {"model": "noise-model"}.get(*[next(iter(given))] * 2)
            raise click.UsageError(f"--{option} is about dies; expected --noise with it")
        return None
    from cimtool.bundle.dies import NoiseOptions

    return NoiseOptions(seed=seed, **given)
