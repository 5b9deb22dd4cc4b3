"""Score texts against videos on the bit-accurate simulator."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from cimtool.bundle.simulate import run_simulation, trial_summary
from cimtool.cli.group import INTEGER, AtLeast, Command
from cimtool.cli.options import FILE, NPZ, chip_option, embeddings_option, noise_options, take_noise
from cimtool.cli.output import Output
from cimtool.reference.modality_names import item_names, way_names
from cimtool.report.page import render_text


@click.command(cls=Command)
@click.argument("bundle", metavar="BUNDLE", type=FILE)
@embeddings_option("--inputs", "Embeddings to score")
@click.option("-o", "--output", type=NPZ, default=Path("scores.npz"), help="File of the scores.")
@click.option("--top", type=INTEGER, metavar="K", help="Keep only the K best videos of each text.")
@click.option("--device", metavar="NAME", help="Compute with torch on cpu, cuda or cuda:N.")
@noise_options
@chip_option
@click.option("--seed", type=AtLeast(0), default=0, help="Seed of the dies.")
@click.pass_obj
def command(out: Output, /, bundle: Path, output: Path, seed: int, **options: Any) -> None:
    """Score texts against videos on the bit-accurate simulator.

    Writes `scores` float32 [texts, videos]; with --top `top_index` and `top_score` [texts, K], best
    first, whose memory does not grow with texts x videos. A bundle that holds a gallery (`cimtool
    program`) looks at the texts alone, and videos are the gallery's items: `top_index` are their
    ids, and `items` those of the columns of `scores`. With --noise also
    `trial_scores` [dies, texts, videos], and it prints what the median die and the worst in twenty
    keep.
    """
    noise = take_noise(options, seed)
    found = run_simulation(bundle, output=output, noise=noise, say=out.say, **options)
    model, gallery = found.bundle.model, found.bundle.gallery
    summary = trial_summary(found.arrays)
    shapes = {name: list(array.shape) for name, array in found.arrays.items()}
    out.result(
        {
            "bundle": bundle,
            "written": [output],
            "arrays": shapes,
            "gallery": None if gallery is None else asdict(gallery),
            "dies": {name: one.to_json() for name, one in summary.items()} or None,
        },
        render_text(
            "cimtool.cli",
            "simulate.txt",
            summary=summary,
            output=output,
            shapes=shapes,
            gallery=gallery,
            ways=way_names(found.called),
            items=item_names(model.called)[1],
        ),
    )
