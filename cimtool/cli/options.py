"""Options that several commands share: settings of a build, embeddings, bundles, limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cimtool.base.errors import Argument, ArgumentError
from cimtool.cli.group import INTEGER, NUMBER, AtLeast, FilePath, NameOf, OneOf
from cimtool.cli.values import plain_value
from cimtool.hardware.keys import Key, flag
from cimtool.hardware.settings import Overrides, setting_keys
from cimtool.ir.heads import Head
from cimtool.loading.calibration_rows import SeenRows

if TYPE_CHECKING:
    from cimtool.bundle.dies import NoiseOptions

Decorator = Callable[[Any], Any]
"""Adds options to the function of a command."""

FILE, DIR, NPZ, TOML = map(FilePath, ("FILE", "DIR", "NPZ", "TOML"))
Files = Path | tuple[Path, Path]
"""The value of an option that may stand twice."""


def together(*options: Decorator) -> Decorator:
    """Add several options to a command, in the order in which its help lists them."""

    def add(function: Any) -> Any:
        return reduce(lambda command, option: option(command), reversed(options), function)

    return add


def _setting_option(name: str, key: Key, schema: dict[str, Any]) -> Decorator:
    metavar = key.metavar or "|".join(_stand_ins(schema))
    if metavar:
        return click.option(flag(name), type=plain_value, metavar=metavar, help=key.help)
    return click.option(f"{flag(name)}/{flag(f'no_{name}')}", default=None, help=key.help)


def _stand_ins(schema: dict[str, Any]) -> list[str]:
    """A stand-in for each kind of value that a JSON schema allows; nothing for a switch's."""
    if "anyOf" in schema:
        return [one for kind in schema["anyOf"] for one in _stand_ins(kind)]
    if "const" in schema:
        return [schema["const"]]
    names = {"integer": "N", "number": "X", "string": "NAME"}
    return [names[schema["type"]]] if schema["type"] in names else []


SCHEMAS = Overrides.model_json_schema()["properties"]
settings_options = together(
    *(_setting_option(name, key, SCHEMAS[name]) for name, key in setting_keys().items())
)
"""An option for each setting; None where it is not given."""


def files_option(name: str, help_: str, required: bool = True) -> Decorator:
    """Add an option for one file or, given twice, a pair of them; None where it is not given."""

    def one_or_two(
        context: click.Context, option: click.Parameter, given: tuple[Path, ...]
    ) -> Files | None:
        if len(given) > 2:
            raise click.UsageError(f"{name} is given {len(given)} times; expected once or twice")
        pair: Any = given
        return pair if len(given) == 2 else next(iter(given), None)

    return click.option(
        name, type=FILE, multiple=True, required=required, callback=one_or_two, help=help_
    )


def embeddings_option(name: str, help_: str, required: bool = True) -> Decorator:
    """Add an option for embeddings: one file or, given twice, text and video."""
    forms = "(.npz or .pt; or twice, .npy or .pt: text, then video)"
    return files_option(name, f"{help_} {forms}.", required)


def model_options(*names: str, required: bool = True) -> Decorator:
    """Add the options of a ModelSource, all or those of these names."""
    options = {
        "projectors": files_option(
            "--projectors", "The checkpoint (or twice, .onnx: text, then video).", required
        ),
        "poly": click.option(
            "--poly", type=FILE, help="The polynomial, if the checkpoint has none."
        ),
        "head": click.option(
            "--head",
            type=NameOf(Head, checked=False),
            help="The score, if the checkpoint names none.",
        ),
        "layer_map": click.option(
            "--map", "layer_map", type=FILE, help="Names of the layers (TOML)."
        ),
        "a": click.option(
            "--a", type=NUMBER, metavar="X", help="The teacher's a in sigmoid(b - a D)."
        ),
        "b": click.option("--b", type=NUMBER, metavar="X", help="The teacher's b."),
    }
    return together(*(options[name] for name in names or options))


def modalities_option(help_: str) -> Decorator:
    """Add an option for names of arrays, as `text,audio`; None where it is not given."""

    def names(
        context: click.Context, option: click.Parameter, given: str | None
    ) -> tuple[str, ...] | None:
        return None if given is None else tuple(one.strip() for one in given.split(","))

    return click.option("--modalities", type=str, metavar="A,B", callback=names, help=help_)


qrels_option = click.option(
    "--qrels",
    type=FILE,
    help="Judgements of what is right: lines of text, 0, video, grade (TREC qrels).",
)


def dask_option(use: str) -> Decorator:
    """Add the option for a Dask cluster, whose help says what it is used for."""
    risk = "tcp://: anyone who reaches the cluster can run code in it and here; tls://: needs keys."
    return click.option("--dask", metavar="ADDRESS", help=f"{use} {risk}")


reference_options = together(
    click.option(
        "--reference",
        type=OneOf(["exact", "mc"]),
        default="exact",
        help="Reference of drift: the exact score, or mc, Monte Carlo.",
    ),
    click.option(
        "--samples", type=AtLeast(2), metavar="K", default=10, help="Monte Carlo samples a side."
    ),
    click.option("--seed", type=AtLeast(0), default=0, help="Seed of all random draws."),
)


def seen_rows_option(*names: SeenRows) -> Decorator:
    """Add the option for the treatment of rows that a bundle was calibrated on."""
    said = {"allow": "allow (measure them too)", "drop": "drop (leave them out, with their pairs)"}
    help_ = (
        f"Rows that the bundle was calibrated on: refuse, {' or '.join(said[n] for n in names)}."
    )
    return click.option(
        "--calibration-rows", type=OneOf(["refuse", *names]), default="refuse", help=help_
    )


OF_DIES = ("trials", "time", "corner", "compensation", "noise_model")
"""Arguments that only go with `noise`."""

noise_options = together(
    click.option("--noise", is_flag=True, help="Draw dies with the target's noise."),
    click.option("--trials", type=INTEGER, metavar="N", help="Number of dies (10)."),
    click.option("--time", metavar="TIME", help="Time after programming: 30s, 10m, 1h, 1d, 1y."),
    click.option("--corner", metavar="NAME", help="A corner of the noise model: ss, ff, nominal."),
    click.option(
        "--compensation",
        type=OneOf(["none", "global", "column"]),
        help="Factors against drift: none, one a layer (global), or one a column.",
    ),
    click.option(
        "--noise-model", metavar="NAME|TOML", help="A noise model in place of the target's own."
    ),
)

chip_option = click.option("--chip", type=DIR, help="A measured chip in place of drawn dies.")


def take_noise(options: dict[str, Any], seed: int) -> NoiseOptions | None:
    """Take the options of dies out of those of a command; None without --noise.

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
