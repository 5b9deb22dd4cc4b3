"""Encode a gallery into checksummed shards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from cimtool import api
from cimtool.cli.group import AtLeast, Command
from cimtool.cli.options import DIR, FILE
from cimtool.cli.output import Output
from cimtool.galleries.encoding import ITEMS_PER_SHARD


@click.command(cls=Command)
@click.argument("bundle", metavar="BUNDLE", type=FILE)
@click.option(
    "--gallery",
    type=FILE,
    required=True,
    help="Embeddings whose video rows are the items (.npz, .npy or .pt).",
)
@click.option("-o", "--output", type=DIR, required=True, help="Folder of the shards.")
@click.option(
    "--items-per-shard",
    type=AtLeast(1),
    metavar="N",
    default=ITEMS_PER_SHARD,
    help="Items of a shard.",
)
@click.pass_obj
def command(
    out: Output, /, bundle: Path, gallery: Path, output: Path, items_per_shard: int
) -> None:
    """Encode a gallery into checksummed shards.

    A .npy is read as it is encoded, so that memory does not grow with the gallery. A call that was
    stopped goes on after its last whole shard; `cimtool search` takes the folder when it is whole.
    """
    found = api.encode(bundle, gallery, output=output, items_per_shard=items_per_shard, say=out.say)
    values = {
        "bundle": bundle,
        "gallery": output,
        "items": found.index.items,
        "shards": len(found.shards),
        "bytes": sum(shard.file.stat().st_size for shard in found.shards),
    }
    out.result(replace(found.document(), values=lambda: values))
