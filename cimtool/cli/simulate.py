"""`cimtool simulate`: scores of all pairs, or the best of each text."""

from __future__ import annotations

from pathlib import Path

import click

from cimtool import api
from cimtool.cli.group import Command
from cimtool.cli.options import FILE, embeddings_files, embeddings_option
from cimtool.cli.output import Output


@click.command(cls=Command)
@click.argument("bundle", metavar="BUNDLE", type=FILE)
@embeddings_option("--inputs", "Embeddings to score")
@click.option(
    "-o",
    "--output",
    type=FILE,
    metavar="NPZ",
    default=Path("scores.npz"),
    show_default=True,
    help="Where the scores go.",
)
@click.option("--top", type=int, metavar="K", help="Keep only the K best videos of each text.")
@click.pass_obj
def command(
    out: Output, bundle: Path, paths: tuple[Path, ...], output: Path, top: int | None
) -> None:
    """Score texts against videos on the bit-accurate simulator.

    Writes `scores` float32 [texts, videos]; with --top `top_index` and `top_score` [texts, K], best
    first, whose memory does not grow with texts x videos.
    """
    inputs = embeddings_files(paths, "--inputs")
    found = api.simulate(bundle, inputs, output=output, top=top, say=out.say)
    shapes = {name: list(array.shape) for name, array in found.items()}
    arrays = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    out.result(
        {
            "bundle": bundle,
            "written": [output],
            "arrays": shapes,
        },
        f"wrote {output}: {arrays}",
    )
