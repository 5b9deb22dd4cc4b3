"""A gallery on disk: encoded items in checksummed shards, which a search maps one by one.

A call continues the work of a call that was stopped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from pydantic import ConfigDict, Field
from safetensors.numpy import save

from cimtool.base.arrays import Array, blocks, narrow
from cimtool.base.errors import ArgumentError, CimError, naming
from cimtool.base.files import (
    check_room,
    keeping_inputs,
    reading,
    replace_files,
    replace_texts,
    sha256,
)
from cimtool.base.folders import KindOfWork, sealed_text
from cimtool.base.json_files import LARGEST, table_in
from cimtool.base.options import takes
from cimtool.base.progress import Countdown, PartDone, Say, silent
from cimtool.base.toml_files import TomlTable, validated
from cimtool.base.untrusted import read_bounded
from cimtool.bundle.arrays_file import TYPE_NAMES, StoredArray, check_stored, opened_arrays
from cimtool.bundle.bundle import MANIFEST, Bundle
from cimtool.bundle.inspect import Described, Facts
from cimtool.bundle.matcher import open_bundle
from cimtool.bundle.serial import STORED_INTEGERS
from cimtool.galleries.options import EncodeOptions
from cimtool.hardware.image_file import Sha256
from cimtool.ir.program import Program, features_of
from cimtool.loading.embeddings import (
    checked_rows,
    read_rows,
    require_tokens,
    require_width,
)
from cimtool.loading.model import ModelCard
from cimtool.loading.npy import map_npy
from cimtool.loading.row_norms import warn_of_scale
from cimtool.report.document import Document
from cimtool.report.formats import counted, whole
from cimtool.report.result import Result
from cimtool.report.table import Column, make_table
from cimtool.simulation.simulator import Simulator

INDEX = "gallery.json"
"""The file that makes a folder of shards a gallery; it is written after the last shard."""

GALLERY_VERSION = 2
AGAIN = "run `cimtool encode`"
BLOCK = 1 << 15
"""Items that are encoded, or scored, at a time."""


class GalleryIndex(TomlTable):
    """`gallery.json`: the SHA-256 of each shard, in order, and of the bundle that encoded them.

    The file also has the SHA-256 of these values.
    """

    model_config = ConfigDict(extra="ignore")

    format_version: int = GALLERY_VERSION
    bundle: str
    bundle_sha256: Sha256
    items: int = Field(ge=1, description="an integer of at least 1")
    items_per_shard: int = Field(ge=1, description="an integer of at least 1")
    shards: list[Sha256] = Field(description="a list of SHA-256")

    @property
    def text(self) -> str:
        """The text of the file."""
        return sealed_text(self.model_dump())


def empty_features(program: Program, items: int) -> dict[str, Array]:
    """Empty arrays for the features of `items` videos, in the narrowest types for their ranges."""
    found = {}
    for name, known in features_of(program.video, program.score.inputs).items():
        ends = np.array([int(known.lo.min()), int(known.hi.max())])
        shape = (items, *(int(width) for width in known.shape[1:]))
        found[name] = np.empty(shape, narrow(ends, STORED_INTEGERS).dtype)
    return found


def shard_name(index: int) -> str:
    """The file of a shard."""
    return f"{index:06}.safetensors"


@dataclass(frozen=True)
class Shard:
    """Some items of a gallery, from row `first` on, in one file."""

    file: Path
    digest: str
    first: int
    items: int

    @property
    def blocks(self) -> list[slice]:
        """The items of the shard, in blocks."""
        return list(blocks(self.items, BLOCK))

    def verify(self) -> None:
        """Raise CimError if the file changed since it was written."""
        with reading(self.file):
            changed = sha256(self.file) != self.digest
        if changed:
            raise CimError(
                f"{self.file}: is not the shard that was written (its SHA-256 differs from "
                f"{INDEX}); {AGAIN} again"
            )

    @contextmanager
    def opened(self, program: Program) -> Iterator[Callable[[slice], dict[str, Array]]]:
        """Verify and map the file; yields a function from a slice of items to their features.

        Raises CimError if the file changed since it was written.
        """
        self.verify()
        form = {
            name: StoredArray((TYPE_NAMES[one.dtype],), (self.items, *one.shape[1:]))
            for name, one in empty_features(program, 0).items()
        }
        with opened_arrays(self.file, AGAIN) as held:
            if missing := sorted(form.keys() - set(held.keys())):
                raise CimError(f"{self.file}: has no {missing[0]}; {AGAIN} again")
            mapped = {name: held.get_slice(name) for name in form}
            check_stored(self.file, mapped, form)
            yield lambda part: {name: mapped[name][part] for name in form}


@dataclass(frozen=True, repr=False)
class GalleryShards(Result):
    """A gallery that `cimtool encode` wrote: its folder and its index."""

    folder: Path
    index: GalleryIndex

    @cached_property
    def shards(self) -> list[Shard]:
        """The shards in the order of their items."""
        index, height = self.index, self.index.items_per_shard
        firsts = range(0, index.items, height)
        return [
            Shard(self.folder / shard_name(i), digest, first, min(height, index.items - first))
            for i, (first, digest) in enumerate(zip(firsts, index.shards, strict=True))
        ]

    def document(self) -> Document:
        """The items, the bytes and the shards."""
        items, size = self.index.items, sum(one.file.stat().st_size for one in self.shards)
        columns = (Column("file"), Column("first item", whole), Column("items", whole))
        rows = [(one.file.name, one.first, one.items) for one in self.shards]
        return Document(
            f"{self.folder}: {items:,} items, {counted(len(self.shards), 'shard')}, {size:,} bytes "
            f"({size / items:.4g} an item)",
            (make_table("Shards", columns, rows).named("shards", "detail"),),
            self.index.model_dump,
        )


def open_gallery(folder: Path, bundle: Bundle) -> GalleryShards:
    """Open a gallery; CimError if it is not whole, or was encoded by another bundle."""
    found = read_gallery(folder)
    if found.index.bundle_sha256 != bundle_digest(bundle):
        raise ArgumentError(
            "{gallery} {} was encoded by {}, not by {}; {} with this bundle", folder,
            found.index.bundle, bundle.name, AGAIN,
        )  # fmt: skip
    return found


def read_gallery(folder: Path) -> GalleryShards:
    """Open a gallery of any bundle; CimError if it is not whole."""
    file = folder / INDEX
    if folder.exists() and not file.is_file():
        raise CimError(
            f"{folder}: has no {INDEX}, so it is not a gallery, or not complete yet; {AGAIN} "
            "(again)"
        )
    content = read_bounded(file, LARGEST)
    table = table_in(content, file, AGAIN)
    if table.get("format_version") != GALLERY_VERSION:
        raise CimError(
            f"{file}: format_version is {table.get('format_version')}; expected {GALLERY_VERSION}; "
            f"{AGAIN} again"
        )
    index = validated(GalleryIndex, table, str(file))
    if content != index.text.encode():
        raise CimError(
            f"{file}: changed since it was written (its text or SHA-256 does not match its "
            f"values), so it is not searched; {AGAIN} again"
        )
    needed = -(-index.items // index.items_per_shard)
    if len(index.shards) != needed:
        raise CimError(
            f"{file}: lists {len(index.shards)} shards for {index.items} items; expected {needed}"
        )
    return GalleryShards(folder, index)


def bundle_digest(bundle: Bundle) -> str:
    """The SHA-256 of a bundle's manifest, which lists the SHA-256 of all its files."""
    return sha256(bundle.folder / MANIFEST)


class Shards(Described, name="gallery"):
    """A gallery in shards; the SHA-256 of each shard is checked."""

    file = INDEX

    @classmethod
    def facts(cls, folder: Path) -> Facts:
        """Its items, its shards and their bytes, and the bundle that encoded them.

        Raises CimError for the first shard that is missing or changed since it was written.
        """
        found = read_gallery(folder)
        for shard in found.shards:
            shard.verify()
        index = found.index
        return {
            "file": str(folder),
            "kind": "gallery",
            "items": index.items,
            "shards": len(found.shards),
            "items per shard": index.items_per_shard,
            "bytes": sum(shard.file.stat().st_size for shard in found.shards),
            "encoded by": f"{index.bundle} (manifest {index.bundle_sha256})",
        }


GALLERY = KindOfWork(
    "gallery",
    "encoding.json",
    {"bundle": "bundle", "input": "input", "items_per_shard": "number of items a shard"},
)


@keeping_inputs
@takes(EncodeOptions)
def encode(options: EncodeOptions, say: Say = silent) -> GalleryShards:
    """Encode the video rows of a file into the shards of a gallery that `search` reads.

    A `.npy` is encoded while it is read, so memory does not grow with its length. The same rows
    give the same bytes. A call continues after the last whole shard of a call that was stopped. If
    the gallery is whole, shards that differ from its index are encoded again. Raises CimError for
    rows that do not fit, and if `output` holds something else.
    """
    opened, items_per_shard = open_bundle(options.bundle), options.items_per_shard
    if items_per_shard < 1:
        raise ArgumentError("{items_per_shard} is {}; expected at least 1", items_per_shard)
    rows, checked = _rows(Path(options.gallery), opened.model)
    folder = Path(options.output)
    whose: dict[str, str | int] = {
        "bundle": bundle_digest(opened),
        "input": sha256(Path(options.gallery)),
        "items_per_shard": items_per_shard,
    }
    simulator = Simulator(opened.program)
    starts = range(0, len(rows), items_per_shard)
    if not (folder / INDEX).is_file():
        of_an_item = sum(one.nbytes for one in empty_features(opened.program, 1).values())
        check_room(folder, len(rows) * of_an_item)
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
    """The SHA-256 of each shard from the index; None if there is no index, after a stopped call.

    For a broken index the texts are empty, so that no shard matches.
    """
    if not (folder / INDEX).is_file():
        return None
    try:
        held = read_gallery(folder).index.shards
    except CimError:
        held = []
    return held if len(held) == count else [""] * count


def _rows(file: Path, model: ModelCard) -> tuple[Array, Callable[[slice], Array]]:
    """All rows, mapped if possible, and a function that returns a slice of them, checked."""
    if file.suffix != ".npy":
        whole = read_rows(file, "video", model)
        return whole, lambda part: whole[part]
    mapped = map_npy(file)
    if mapped.ndim == 3 and model.head.takes_tokens:
        require_tokens(mapped.shape[1], "video", model, str(file), "video")
        mapped = mapped.reshape(len(mapped), -1)
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
    count = rows.stop - rows.start
    arrays = empty_features(simulator.program, count)
    for part in blocks(count, BLOCK):
        asked = slice(rows.start + part.start, rows.start + part.stop)
        features = simulator.encode("video", checked(asked))
        for name, array in arrays.items():
            array[part] = features[name]
    content: bytes = save(arrays)
    return content
