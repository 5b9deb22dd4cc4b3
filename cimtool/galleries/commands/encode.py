"""Encode a gallery into checksummed shards."""

from __future__ import annotations

from dataclasses import replace

from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.galleries import api
from cimtool.galleries.options import EncodeOptions


@record_command(EncodeOptions)
def command(out: Output, options: EncodeOptions) -> None:
    """Encode a gallery into checksummed shards.

    A .npy is read piece by piece, so memory does not grow with the gallery. A run that was stopped
    continues after its last complete shard. `cimtool search` takes the folder once it is complete.
    """
    found = api.encode(**vars(options), say=out.say)
    values = {
        "bundle": options.bundle,
        "gallery": options.output,
        "items": found.index.items,
        "shards": len(found.shards),
        "bytes": sum(shard.file.stat().st_size for shard in found.shards),
    }
    out.result(replace(found.document(), values=lambda: values))
