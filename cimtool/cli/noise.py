"""The options of noise, for the commands that draw dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cimtool.cli.group import OneOf
from cimtool.hardware.keys import flag

if TYPE_CHECKING:
    from cimtool.bundle.dies import NoiseOptions

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


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


def noise_request(noise: bool, seed: int, **given: Any) -> NoiseOptions | None:
    """What was asked of dies; None without --noise, a usage error where its options stand alone."""
    given = {name: value for name, value in given.items() if value is not None}
    if not noise:
        if given:
            option = flag(next(iter(given)))
            raise click.UsageError(f"{option} is about dies; expected --noise with it")
        return None
    from cimtool.bundle.dies import NoiseOptions

    return NoiseOptions(seed=seed, model=given.pop("noise_model", None), **given)
