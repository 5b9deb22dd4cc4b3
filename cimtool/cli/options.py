"""Options that several commands share: settings of a build, embeddings, bundles, limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cimtool.cli.group import FilePath, OneOf

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

FILE = FilePath(path_type=Path)

# Settings by name: what stands for the value, and the help; `hardware/settings.py` checks values.
SETTINGS = {
    "weight_bits": ("N", "Bits of a weight."),
    "input_bits": ("N", "Bits of the embeddings."),
    "activation_bits": ("N", "Bits of hidden activations."),
    "feature_bits": ("N", "Bits of mu, and of the variance in cross terms."),
    "adc_bits": ("N|lossless", "Bits of a converter."),
    "cell_bits": ("N", "Bits of a memory cell."),
    "dac_bits": ("N", "Bits of an input that one cycle drives."),
    "array": ("ROWSxCOLS", "Cells of an array, such as 128x128."),
    "encoding": ("NAME", "How cells hold signed weights."),
    "input_encoding": ("NAME", "How signed inputs are driven."),
    "rounding": ("NAME", "How a converter rounds."),
    "adc_on": ("NAME", "What is converted: the difference of a pair, or each polarity."),
    "shift_add": ("NAME", "Where cycles are added: digital, or analog before the converter."),
    "offset_sum": ("NAME", "How offset weights learn the inputs' sum: digital or unit-column."),
    "rows_active": ("N", "Rows of weights that are read at a time."),
    "on_off_ratio": ("X", "Conductance of a full cell by that of an erased one."),
    "unused_rows": ("NAME", "Whether rows without weights are off or driven."),
    "accumulator_bits": ("N", "Bits within which every sum must be proved to fit."),
    "calibrator": ("NAME", "How ranges are chosen: minmax, percentile or mse."),
    "weight_rounding": ("NAME", "How weights become integers: nearest or gptq."),
    "score_mapping": ("NAME", "Where a gallery is scored: digital, in-memory or hybrid."),
    "shortlist": ("L", "Items that a hybrid score takes from the memory and scores exactly."),
}
SWITCHES = {
    "equalise": "Balance the ranges of channels between layers.",
    "bias_correction": "Take the mean error of quantisation off in the biases.",
}


def setting_value(text: str) -> int | float | str:
    """A number where the text is one, otherwise the text; checked with all settings."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def flag(setting: str) -> str:
    """The option of a setting: `weight_bits` is `--weight-bits`."""
    return "--" + setting.replace("_", "-")


def settings_options(function: FunctionT) -> FunctionT:
    """Add an option for each setting; None where it is not given."""
    for name, help_ in reversed(SWITCHES.items()):
        both = f"{flag(name)}/--no-{name.replace('_', '-')}"
        function = click.option(both, default=None, help=help_)(function)
    for name, (metavar, help_) in reversed(SETTINGS.items()):
        option = click.option(flag(name), type=setting_value, metavar=metavar, help=help_)
        function = option(function)
    return function


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
