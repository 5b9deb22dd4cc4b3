"""Score texts against videos on the bit-accurate simulator."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from cimtool.base.modality_names import item_names, way_names
from cimtool.bundle.bounds import bound_sentences
from cimtool.bundle.simulate import (
    Percentiles,
    SimulateOptions,
    Simulation,
    run_simulation,
    trial_summary,
)
from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.report.document import (
    Block,
    Document,
    FactList,
    Sentence,
    Verbatim,
    wrote_arrays,
)
from cimtool.report.formats import counted


@record_command(SimulateOptions, defaults={"output": Path("scores.npz")})
def command(out: Output, options: SimulateOptions) -> None:
    """Score texts against videos on the bit-accurate simulator.

    Writes `scores` float32 [texts, videos]; with --top `top_index` and `top_score` [texts, K], best
    first, so memory does not grow with texts x videos. A bundle that holds a gallery (`cimtool
    program`) reads only the texts and scores them against the gallery's items: `top_index` are
    their ids, and `items` are the ids of the columns of `scores`. With --noise it also writes
    `trial_scores` [dies, texts, videos], and prints what the median die and the worst in twenty
    keep. With --bounds it also writes `bound`, which a score's error stays within, and with --top
    `certain`: the ranks that are those of the float score.
    """
    found = run_simulation(options, out.say)
    output, gallery = Path(options.output or ""), found.bundle.gallery
    summary = trial_summary(found.arrays)
    shapes = {name: list(array.shape) for name, array in found.arrays.items()}
    document = Document(
        "",
        (
            *_dies(found, summary),
            *bound_sentences(found.arrays),
            wrote_arrays(output, shapes),
            *_gallery(found),
            Verbatim(f"next: cimtool verify {shlex.quote(str(options.bundle))} --data NPZ"),
        ),
        lambda: {
            "bundle": options.bundle,
            "written": [output],
            "arrays": shapes,
            "gallery": None if gallery is None else asdict(gallery),
            "dies": {name: one.to_json() for name, one in summary.items()} or None,
        },
    )
    out.result(document)


def _dies(found: Simulation, summary: Mapping[str, Percentiles]) -> Iterator[Block]:
    """The figures of dies: of the median die and of the worst in twenty."""
    if not summary:
        return
    ways = way_names(found.called)
    names = {
        "rmse": "RMSE from the noise-free scores",
        "recall": "share of best items on the shortlists",
        "r1_text_to_video": f"R@1 {ways['text_to_video']}",
        "r1_video_to_text": f"R@1 {ways['video_to_text']}",
    }
    arrays = found.arrays
    dies = arrays["trial_scores" if "trial_scores" in arrays else "trial_index"]
    facts = [
        (names[name], f"median {one.median:.4g}, {one.percentile:g}th percentile {one.worst:.4g}")
        for name, one in summary.items()
    ]
    yield Sentence(f"{counted(len(dies), 'die')}:")
    yield FactList(tuple(facts))


def _gallery(found: Simulation) -> Iterator[Sentence]:
    """The gallery in memory, which was scored in place of the inputs."""
    gallery, items = found.bundle.gallery, item_names(found.bundle.model.called)[1]
    if gallery is None:
        return
    changed = f", changed {counted(gallery.changes, 'time')}," if gallery.changes else ""
    some = ""
    if gallery.shortlist is not None:
        some = f", of which the {gallery.shortlist:,} of the smallest ed are scored"
    yield Sentence(
        f"{items} are the {gallery.items:,} items of {gallery.file}{changed} in the memory{some}; "
        "the inputs' own are not used"
    )
