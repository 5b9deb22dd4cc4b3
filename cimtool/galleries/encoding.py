"""Encoding of a gallery into shards, which goes on where it stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from cimtool.base.arrays import Array
from cimtool.base.errors import ArgumentError, CimError, naming
from cimtool.base.files import check_room, keeping_inputs, replace_files, replace_texts, sha256
from cimtool.base.folders import KindOfWork
from cimtool.base.options import takes
from cimtool.base.progress import Countdown, PartDone, Say, silent
from cimtool.bundle.matcher import open_bundle
from cimtool.galleries.options import EncodeOptions
from cimtool.galleries.shards import (
    BLOCK,
    INDEX,
    GalleryIndex,
    GalleryShards,
    bundle_digest,
    item_bytes,
    open_gallery,
    read_gallery,
    shard_name,
    stored_features,
)
from cimtool.loading.embeddings import checked_rows, read_rows, require_width
from cimtool.loading.model import ModelCard
from cimtool.loading.npy import map_npy
from cimtool.loading.row_norms import warn_of_scale
from cimtool.simulation.simulator import Simulator

GALLERY = KindOfWork(
    "gallery",
    "encoding.json",
    {"bundle": "bundle", "input": "input", "items_per_shard": "number of items a shard"},
)


@keeping_inputs
@takes(EncodeOptions)
def encode(options: EncodeOptions, say: Say = silent) -> GalleryShards:
    """Encode the video rows of a file into the shards of a gallery that `search` reads.

    A `.npy` is read as it is encoded, so that memory stays the same however long it is. The same
    rows give the same bytes. A call that was stopped goes on after its last whole shard; of a whole
    gallery the shards that are not what its index says are encoded anew. Raises CimError for rows
    that do not fit, and where `output` holds something else.
    """
    opened, items_per_shard = open_bundle(options.bundle), options.items_per_shard
    if items_per_shard < 1:
        raise ArgumentError("{items_per_shard} is {}; expected at least 1", items_per_shard)
    rows, checked = _rows(Path(options.gallery), opened.model)
    folder, size = Path(options.output), item_bytes(opened.program)
    whose: dict[str, str | int] = {
        "bundle": bundle_digest(opened),
        "input": sha256(Path(options.gallery)),
        "items_per_shard": items_per_shard,
    }
    simulator = Simulator(opened.program)
    starts = range(0, len(rows), items_per_shard)
    if not (folder / INDEX).is_file():
        check_room(folder, len(rows) * size)
    with GALLERY.opened(folder, whose):
        written, digests = _written(folder, len(starts)), list[str]()
        countdown, made_now = Countdown(say), 0
        for index, start in enumerate(starts):
            file = folder / shard_name(index)
            found = sha256(file) if file.is_file() else None
            if found is not None and (written is None or found == written[index]):
                digests.append(found)
                continue
            part = slice(start, min(start + items_per_shard, len(rows)))
            content = _shard(simulator, part, checked)
            replace_files(folder, {shard_name(index): content}, "the shard")
            digests.append(hashlib.sha256(content).hexdigest())
            made_now += 1
            said = f"{part.stop:,} of {len(rows):,} items encoded"
            rest = len(starts) - index - 1
            told = PartDone(f"shard {index + 1} of {len(starts)}: {said}")
            countdown.tell(told, made_now, made_now + rest)
        made = GalleryIndex(
            bundle=opened.name,
            bundle_sha256=str(whose["bundle"]),
            items=len(rows),
            items_per_shard=items_per_shard,
            shards=digests,
        )
        replace_texts(folder, {INDEX: made.text}, "the index")
    return open_gallery(folder, opened)


def _written(folder: Path, count: int) -> list[str] | None:
    """The SHA-256 of each shard by the index; None where a stopped call left none.

    A broken index has none that any shard fits.
    """
    if not (folder / INDEX).is_file():
        return None
    try:
        held = read_gallery(folder).index.shards
    except CimError:
        held = []
    return held if len(held) == count else [""] * count


def _rows(file: Path, model: ModelCard) -> tuple[Array, Callable[[slice], Array]]:
    """All rows, mapped where they can be, and what gives some of them checked."""
    if file.suffix != ".npy":
        whole = read_rows(file, "video", model)
        return whole, lambda part: whole[part]
    mapped = map_npy(file)
    with naming(file):
        checked_rows(mapped[:1], "video", model.unit_rows)
    require_width(mapped, "video", model, str(file))
    if not model.unit_rows:
        warn_of_scale(mapped, "video", model, str(file))

    def some(part: slice) -> Array:
        with naming(f"{file}, of rows {part.start} to {part.stop - 1}"):
            return checked_rows(mapped[part], "video", model.unit_rows)

    return mapped, some


def _shard(simulator: Simulator, rows: slice, checked: Callable[[slice], Array]) -> bytes:
    """The bytes of a shard: the features of these rows."""
    stored = stored_features(simulator.program)
    count = rows.stop - rows.start
    arrays = {name: np.empty(one.shape(count), one.dtype) for name, one in stored.items()}
    for start in range(rows.start, rows.stop, BLOCK):
        part = slice(start, min(start + BLOCK, rows.stop))
        features = simulator.encode("video", checked(part))
        for name, array in arrays.items():
            array[start - rows.start : part.stop - rows.start] = features[name]
    content: bytes = save(arrays)
    return content
