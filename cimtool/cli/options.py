"""Options that several commands share: settings of a build, embeddings, bundles, limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cimtool.cli.group import FilePath, OneOf
from cimtool.hardware.keys import flag
from cimtool.hardware.settings import Overrides, setting_keys

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

FILE = FilePath(path_type=Path)


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


def projectors_option(required: bool = True) -> Callable[[FunctionT], FunctionT]:
    """Add --projectors: one checkpoint or, given twice, a pair of files; None where not given."""

    def one_or_two(
        context: click.Context, option: click.Parameter, given: tuple[Path, ...]
    ) -> Path | tuple[Path, Path] | None:
        return embeddings_files(given, "--projectors") if given else None

    return click.option(
        "--projectors",
        type=FILE,
        metavar="FILE",
        multiple=True,
        required=required,
        callback=one_or_two,
        help="The checkpoint (or twice, .onnx: text, then video).",
    )


def head_option(function: FunctionT) -> FunctionT:
    """Add --head: the score function by name."""
    help_ = "The score: pcme-poly, csd, cosine or euclidean, where the checkpoint names none."
    return click.option("--head", metavar="NAME", help=help_)(function)


def embeddings_option(
    name: str, help_: str, required: bool = True
) -> Callable[[FunctionT], FunctionT]:
    """Add an option that takes one file of embeddings, or is given twice, text first."""
    return click.option(
        name,
        "paths",
        type=FILE,
        metavar="FILE",
        multiple=True,
        required=required,
        help=f"{help_} (.npz or .pt; or twice, .npy or .pt: text, then video).",
    )


def embeddings_files(paths: tuple[Path, ...], option: str) -> Path | tuple[Path, Path]:
    """What an option that may be given twice was given: one file or a pair."""
    if len(paths) > 2:
        raise click.UsageError(f"{option} is given {len(paths)} times; expected once or twice")
    return paths[0] if len(paths) == 1 else (paths[0], paths[1])


def reference_option(function: FunctionT) -> FunctionT:
    """Add --reference: what drift is measured against."""
    return click.option(
        "--reference",
        type=OneOf(["exact", "mc"]),
        default="exact",
        show_default=True,
        help="What drift is measured against: the exact score, or mc, Monte Carlo.",
    )(function)


def calibration_rows_option(function: FunctionT) -> FunctionT:
    """Add --allow-calibration-rows."""
    return click.option(
        "--allow-calibration-rows",
        is_flag=True,
        help="Take rows that the bundle was calibrated on as well.",
    )(function)
