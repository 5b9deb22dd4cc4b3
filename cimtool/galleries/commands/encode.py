"""Encode a gallery into checksummed shards."""

from __future__ import annotations

import shlex
from dataclasses import replace

from cimtool.cli.output import Output
from cimtool.cli.records import record_command
from cimtool.galleries import api
from cimtool.galleries.options import EncodeOptions
from cimtool.report.document import Verbatim


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
    bundle, gallery = (shlex.quote(str(one)) for one in (options.bundle, options.output))
    next_ = Verbatim(f"next: cimtool search {bundle} --gallery {gallery} --queries NPZ")
    out.result(replace(found.document().plus(next_), values=lambda: values))
