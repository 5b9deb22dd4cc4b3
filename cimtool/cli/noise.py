"""The options of noise, for the commands that draw dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cimtool.base.errors import Argument, ArgumentError
from cimtool.cli.group import OneOf

if TYPE_CHECKING:
    from cimtool.bundle.dies import NoiseOptions

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


OF_DIES = ("trials", "time", "compensation", "noise_model")
"""Arguments that only go with `noise`."""


def noise_options(function: FunctionT) -> FunctionT:
    """Add --noise and what goes with it."""
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
            metavar="NAME|TOML",
            help="A noise model in place of the target's own.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def take_noise(options: dict[str, Any], seed: int) -> NoiseOptions | None:
    """Take what was asked of dies out of a command's options; None without --noise.

    Raises CimError for an option that only goes with it.
    """
    noise = options.pop("noise")
    given = {name: value for name in OF_DIES if (value := options.pop(name, None)) is not None}
    if not noise:
        if given:
            stray = Argument(next(iter(given)))
            raise ArgumentError("{} is about dies; expected {noise} with it", stray)
        return None
    from cimtool.bundle.dies import NoiseOptions

    return NoiseOptions(seed=seed, model=given.pop("noise_model", None), **given)
