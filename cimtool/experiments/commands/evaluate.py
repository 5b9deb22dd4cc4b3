"""Measure retrieval of embeddings, trained models and bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cimtool import api
from cimtool.cli.group import AtLeast, Command, Integers
from cimtool.cli.options import (
    DIR,
    FILE,
    Files,
    embeddings_option,
    modalities_option,
    model_options,
    qrels_option,
    seen_rows_option,
)
from cimtool.cli.output import Output
from cimtool.experiments.evaluation.render import evaluation_table, warnings
from cimtool.report.terminal import table_text

ONNX = ".onnx"


@click.command(cls=Command)
@click.argument("what", metavar="[WHAT]...", type=FILE, nargs=-1)
@embeddings_option("--data", "Embeddings to evaluate on")
@modalities_option("Raw embeddings of each pair of these arrays, such as text,video,audio.")
@qrels_option
@model_options("poly", "head", "layer_map", "a", "b")
@click.option(
    "--samples",
    type=Integers(),
    default=(),
    metavar="K,K,...",
    help="Add trained projectors by Monte Carlo, with K samples a side.",
)
@click.option(
    "--leave-one-out",
    is_flag=True,
    help="Items of a query's label are right, the query itself left out.",
)
@click.option(
    "--trec",
    type=DIR,
    help="Folder for the rankings as TREC runs, with their qrels.",
)
@click.option("--resamples", type=AtLeast(2), default=1000, help="Resamples for the intervals.")
@click.option("--seed", type=AtLeast(0), default=0, help="Seed of the resamples.")
@seen_rows_option("allow")
@click.pass_obj
def command(out: Output, /, what: tuple[Path, ...], data: Files, **options: Any) -> None:
    """Measure retrieval of embeddings, trained models and bundles.

    WHAT is a checkpoint (or two ONNX files, text first), computed in float, or a bundle, computed
    on the bit-accurate simulator. Several are put side by side, with their differences to the
    first, and the embeddings themselves last, where texts and videos are equally wide.
    """
    found = api.evaluate(data, *_paired(what), say=out.say, **options)
    table = evaluation_table(found)
    first = warnings(found)
    text = [*first, *([""] if first else []), table_text(table), "", *table.footnotes]
    values, folder = found.to_json(), options["trec"]
    if folder is not None:
        text += ["", f"wrote runs and qrels into {folder}"]
        values["written"] = [folder]
    out.result(values, "\n".join(text))


def _paired(what: tuple[Path, ...]) -> list[Path | tuple[Path, Path]]:
    """The paths to evaluate; two ONNX files that follow one another are a pair."""
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
