"""Search a gallery in shards for the best items of each text."""

from __future__ import annotations

import shlex
from pathlib import Path

from cimtool.bundle.bounds import bound_sentences
from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.galleries import api
from cimtool.galleries.options import SearchOptions
from cimtool.report.document import Document, Verbatim, wrote_arrays


@record_command(SearchOptions, defaults={"output": Path("best.npz")})
def command(out: Output, options: SearchOptions) -> None:
    """Search a gallery in shards for the best items of each text.

    Writes `top_index` and `top_score` [texts, K], best first, as `cimtool simulate --top` does. If
    scores are equal, the lower row comes first. Memory does not grow with the gallery. Workers of
    a Dask cluster must see the gallery under the same path; their answers are the same. With
    --bounds it also writes `certain`: the ranks that are those of the float score.
    """
    found, output = api.search(**vars(options), say=out.say), Path(options.output or "")
    shapes = {name: list(array.shape) for name, array in found.items()}
    values = {
        "bundle": options.bundle,
        "gallery": options.gallery,
        "written": [output],
        "arrays": shapes,
    }
    next_ = Verbatim(f"next: cimtool inspect {shlex.quote(str(output))}")
    blocks = (*bound_sentences(found), wrote_arrays(output, shapes), next_)
    out.result(Document("", blocks, lambda: values))
