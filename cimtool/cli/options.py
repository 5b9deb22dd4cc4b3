"""Options that several commands share: settings of a build, embeddings, bundles, limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cimtool.cli.group import AtLeast, FilePath, OneOf
from cimtool.hardware.keys import flag
from cimtool.hardware.settings import Overrides, setting_keys

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

FILE = FilePath(path_type=Path)
Files = Path | tuple[Path, Path]
"""What an option gives that may stand twice."""


def setting_value(text: str) -> int | float | str:
    """A number where the text is one, otherwise the text; checked with all settings."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def settings_options(function: FunctionT) -> FunctionT:
    """Add an option for each setting; None where it is not given."""
    schemas = Overrides.model_json_schema()["properties"]
    for name, key in reversed(setting_keys().items()):
        metavar = key.metavar or "|".join(_stand_ins(schemas[name]))
        if metavar:
            option = click.option(flag(name), type=setting_value, metavar=metavar, help=key.help)
        else:
            both = f"{flag(name)}/{flag(f'no_{name}')}"
            option = click.option(both, default=None, help=key.help)
        function = option(function)
    return function


def _stand_ins(schema: dict[str, Any]) -> list[str]:
    """What stands for each kind of value that a JSON schema allows; nothing for a switch's."""
    if "anyOf" in schema:
        return [one for kind in schema["anyOf"] for one in _stand_ins(kind)]
    if "const" in schema:
        return [schema["const"]]
    names = {"integer": "N", "number": "X", "string": "NAME"}
    return [names[schema["type"]]] if schema["type"] in names else []


def files_option(name: str, help_: str, required: bool = True) -> Callable[[FunctionT], FunctionT]:
    """Add an option for one file or, given twice, a pair of them; None where it is not given."""

    def one_or_two(
        context: click.Context, option: click.Parameter, given: tuple[Path, ...]
    ) -> Path | tuple[Path, Path] | None:
        match given:
            case ():
                return None
            case (file,):
                return file
            case (text, video):
                return text, video
        raise click.UsageError(f"{name} is given {len(given)} times; expected once or twice")

    return click.option(
        name,
        type=FILE,
        metavar="FILE",
        multiple=True,
        required=required,
        callback=one_or_two,
        help=help_,
    )


def embeddings_option(
    name: str, help_: str, required: bool = True
) -> Callable[[FunctionT], FunctionT]:
    """Add an option for embeddings: one file or, given twice, text and video."""
    forms = "(.npz or .pt; or twice, .npy or .pt: text, then video)"
    return files_option(name, f"{help_} {forms}.", required)


def model_options(*names: str, required: bool = True) -> Callable[[FunctionT], FunctionT]:
    """Add the options of a ModelSource, all or those of these names."""
    options = {
        "projectors": files_option(
            "--projectors", "The checkpoint (or twice, .onnx: text, then video).", required
        ),
        "poly": click.option(
            "--poly", type=FILE, metavar="FILE", help="The polynomial, where it is not in there."
        ),
        "head": click.option(
            "--head",
            metavar="NAME",
            help="The score: pcme-poly, csd, cosine or euclidean, where the checkpoint names none.",
        ),
        "layer_map": click.option(
            "--map", "layer_map", type=FILE, metavar="FILE", help="Names of the layers (TOML)."
        ),
        "a": click.option(
            "--a", type=float, metavar="X", help="The teacher's a in sigmoid(b - a D)."
        ),
        "b": click.option("--b", type=float, metavar="X", help="The teacher's b."),
    }

    def add(function: FunctionT) -> FunctionT:
        for name in reversed(names or tuple(options)):
            function = options[name](function)
        return function

    return add


def reference_options(function: FunctionT) -> FunctionT:
    """Add --reference, what drift is measured against, --samples and --seed."""
    options = (
        click.option(
            "--reference",
            type=OneOf(["exact", "mc"]),
            default="exact",
            show_default=True,
            help="What drift is measured against: the exact score, or mc, Monte Carlo.",
        ),
        click.option(
            "--samples",
            type=AtLeast(2),
            metavar="K",
            default=10,
            show_default=True,
            help="Samples a side.",
        ),
        click.option(
            "--seed", type=AtLeast(0), default=0, show_default=True, help="Of all that is drawn."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def calibration_rows_option(function: FunctionT) -> FunctionT:
    """Add --allow-calibration-rows."""
    return click.option(
        "--allow-calibration-rows",
        is_flag=True,
        help="Take rows that the bundle was calibrated on as well.",
    )(function)
