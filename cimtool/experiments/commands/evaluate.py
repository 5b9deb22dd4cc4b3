"""Measure retrieval of embeddings, trained models and bundles."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from cimtool.base.options import options_of
from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.experiments import api
from cimtool.experiments.options import EvaluateOptions
from cimtool.loading.source import ModelOptions
from cimtool.report.document import Verbatim

ONNX = ".onnx"


SCORE = (*options_of(ModelOptions), "poly")
"""Options of checkpoints: bundles and raw embeddings refuse them."""


def _needs_checkpoint(given: Mapping[str, Any]) -> Collection[str]:
    """The score of a project file is for checkpoints among WHAT."""
    return () if any(Path(text).is_file() for text in given.get("what", ())) else SCORE


@record_command(EvaluateOptions, left_out=_needs_checkpoint)
def command(out: Output, options: EvaluateOptions) -> None:
    """Measure retrieval of embeddings, trained models and bundles.

    WHAT is a checkpoint (or two ONNX files, text first), computed in float, or a bundle, computed
    on the bit-accurate simulator. Several stand side by side, with their differences to the first.
    If texts and videos are equally wide, the raw embeddings come last. Ranked subjects are kept in
    the folder of --output, so the same command continues where it was stopped.
    """
    given = {**vars(options), "say": out.say}
    what = _paired([Path(str(file)) for file in given.pop("what")])
    found = api.evaluate(given.pop("data"), *what, **given)
    shown = found.of_this_run().plus(Verbatim(f"next: cimtool {_next(what)}"))
    if options.trec is not None:
        line = Verbatim(f"wrote runs and qrels into {options.trec}")
        shown = shown.plus(line, written=[*found.written, options.trec])
    out.result(shown)


def _next(what: Sequence[Path | tuple[Path, Path]]) -> str:
    """The command for a bundle, else for a model, else for rows alone."""
    for one in what:
        if isinstance(one, Path) and one.is_dir():
            return f"verify {shlex.quote(str(one))} --data NPZ"
    for one in what:
        files = [one] if isinstance(one, Path) else one
        model = " ".join(f"--projectors {shlex.quote(str(file))}" for file in files)
        return f"compile {model} --calibration NPZ --target NAME"
    return "train --data NPZ --test 0.2 --model linear -o trained"


def _paired(what: list[Path]) -> list[Path | tuple[Path, Path]]:
    """The paths to evaluate; two consecutive ONNX files are a pair."""
    found: list[Path | tuple[Path, Path]] = []
    rest = list(what)
    while rest:
        first = rest.pop(0)
        if first.suffix != ONNX:
            found.append(first)
        elif rest and rest[0].suffix == ONNX:
            found.append((first, rest.pop(0)))
        else:
            raise click.UsageError(
                f"{first}: one ONNX file is one projector; expected two, text first"
            )
    return found
