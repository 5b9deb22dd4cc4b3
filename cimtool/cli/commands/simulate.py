"""Score texts against videos on the bit-accurate simulator."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from cimtool.bundle.simulate import SimulateOptions, run_simulation, trial_summary
from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.reference.modality_names import item_names, way_names
from cimtool.report.page import render_text


@record_command(SimulateOptions, defaults={"output": Path("scores.npz")})
def command(out: Output, options: SimulateOptions) -> None:
    """Score texts against videos on the bit-accurate simulator.

    Writes `scores` float32 [texts, videos]; with --top `top_index` and `top_score` [texts, K], best
    first, whose memory does not grow with texts x videos. A bundle that holds a gallery (`cimtool
    program`) looks at the texts alone, and videos are the gallery's items: `top_index` are their
    ids, and `items` those of the columns of `scores`. With --noise also
    `trial_scores` [dies, texts, videos], and it prints what the median die and the worst in twenty
    keep.
    """
    found = run_simulation(options, out.say)
    output = options.output
    model, gallery = found.bundle.model, found.bundle.gallery
    summary = trial_summary(found.arrays)
    shapes = {name: list(array.shape) for name, array in found.arrays.items()}
    out.result(
        {
            "bundle": options.bundle,
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
