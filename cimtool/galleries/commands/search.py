"""Search a gallery in shards for the best items of each text."""

from __future__ import annotations

from pathlib import Path

import click

from cimtool import api
from cimtool.cli.group import AtLeast, Command
from cimtool.cli.options import DIR, FILE, NPZ, Files, dask_option, files_option
from cimtool.cli.output import Output
from cimtool.report.document import Document, wrote_arrays


@click.command(cls=Command)
@click.argument("bundle", metavar="BUNDLE", type=FILE)
@click.option("--gallery", type=DIR, required=True, help="Shards that `cimtool encode` wrote.")
@files_option("--queries", "Embeddings whose text rows are the queries (.npz, .npy or .pt).")
@click.option(
    "--top", type=AtLeast(1), metavar="K", default=10, help="Items that are kept of each query."
)
@click.option("-o", "--output", type=NPZ, default=Path("best.npz"), help="File of the answers.")
@dask_option("Scheduler of a Dask cluster that searches.")
@click.pass_obj
def command(
    out: Output,
    /,
    bundle: Path,
    gallery: Path,
    queries: Files,
    top: int,
    output: Path,
    dask: str | None,
) -> None:
    """Search a gallery in shards for the best items of each text.

    Writes `top_index` and `top_score` [texts, K], best first, as `cimtool simulate --top` does; of
    equal scores the lower row comes first. Memory does not grow with the gallery. Workers of a Dask
    cluster see the gallery under the same path; their answers are the same.
    """
    found = api.search(bundle, gallery, queries, top=top, output=output, dask=dask, say=out.say)
    shapes = {name: list(array.shape) for name, array in found.items()}
    values = {"bundle": bundle, "gallery": gallery, "written": [output], "arrays": shapes}
    out.result(Document("", (wrote_arrays(output, shapes),), lambda: values))
