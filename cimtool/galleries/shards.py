"""A gallery on disk: encoded items in checksummed shards, which a search maps part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ConfigDict, Field

from cimtool.base.arrays import Array, narrow
from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.files import reading, sha256
from cimtool.base.folders import sealed_text
from cimtool.base.json_files import LARGEST, table_in
from cimtool.base.toml_files import TomlTable, validated
from cimtool.base.untrusted import read_bounded
from cimtool.bundle.arrays_file import TYPE_NAMES, StoredArray, check_stored, opened_arrays
from cimtool.bundle.bundle import MANIFEST, Bundle
from cimtool.bundle.serial import STORED_INTEGERS
from cimtool.hardware.image_file import Sha256
from cimtool.ir.program import Program, features_of
from cimtool.report.document import Document
from cimtool.report.formats import counted, whole
from cimtool.report.result import Result
from cimtool.report.table import Column, make_table

INDEX = "gallery.json"
"""The file that makes a folder of shards a gallery, written when all of them are there."""

GALLERY_VERSION = 2
AGAIN = "run `cimtool encode`"
BLOCK = 1 << 15
"""Items that are encoded, or scored, at a time."""


class GalleryIndex(TomlTable):
    """`gallery.json`: the SHA-256 of each shard, in order, and of the bundle that encoded them.

    The file has a SHA-256 of its own values beside them.
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


@dataclass(frozen=True)
class StoredFeature:
    """A feature as shards store it: integers of one type, `width` an item, None for one number."""

    dtype: np.dtype[np.signedinteger]
    width: int | None

    def shape(self, items: int) -> tuple[int, ...]:
        """The shape of so many items."""
        return (items,) if self.width is None else (items, self.width)


def stored_features(program: Program) -> dict[str, StoredFeature]:
    """The features of a program's videos, each in the narrowest type that holds its range."""
    found = {}
    for name, known in features_of(program.video, program.score.inputs).items():
        ends = np.array([int(known.lo.min()), int(known.hi.max())])
        width = None if len(known.shape) == 1 else int(known.shape[1])
        found[name] = StoredFeature(narrow(ends, STORED_INTEGERS).dtype, width)
    return found


def item_bytes(program: Program) -> int:
    """Bytes that an item takes in a shard."""
    stored = stored_features(program).values()
    return sum(one.dtype.itemsize * (one.width or 1) for one in stored)


def shard_name(index: int) -> str:
    """The file of a shard."""
    return f"{index:06}.safetensors"


@dataclass(frozen=True)
class Shard:
    """Some items of a gallery, from `first` on, in a file of its own."""

    file: Path
    digest: str
    first: int
    items: int

    @property
    def blocks(self) -> list[slice]:
        """The items of the shard, a block each."""
        starts = range(0, self.items, BLOCK)
        return [slice(start, min(start + BLOCK, self.items)) for start in starts]

    def verify(self) -> None:
        """Raise CimError where the file is not the one that was written."""
        with reading(self.file):
            changed = sha256(self.file) != self.digest
        if changed:
            raise CimError(
                f"{self.file}: is not the shard that was written (its SHA-256 is not that of "
                f"{INDEX}); {AGAIN} again"
            )

    @contextmanager
    def opened(self, program: Program) -> Iterator[Callable[[slice], dict[str, Array]]]:
        """Verify and map the file; yields what gives the features of some of its items.

        Raises CimError where the file is not the one that was written.
        """
        self.verify()
        form = {
            name: StoredArray((TYPE_NAMES[one.dtype],), one.shape(self.items))
            for name, one in stored_features(program).items()
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
    """Open a gallery; CimError where it is not whole, or was encoded by another bundle."""
    found = read_gallery(folder)
    if found.index.bundle_sha256 != bundle_digest(bundle):
        raise ArgumentError(
            "{gallery} {} was encoded by {}, not by {}; {} with this bundle", folder,
            found.index.bundle, bundle.name, AGAIN,
        )  # fmt: skip
    return found


def read_gallery(folder: Path) -> GalleryShards:
    """Open a gallery of any bundle; CimError where it is not whole."""
    file = folder / INDEX
    if folder.exists() and not file.is_file():
        raise CimError(
            f"{folder}: has no {INDEX}, so it is no gallery or not whole yet; {AGAIN} (again)"
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
            f"{file}: changed since it was written (it is not the text of its values and their "
            f"SHA-256), so it is not searched; {AGAIN} again"
        )
    needed = -(-index.items // index.items_per_shard)
    if len(index.shards) != needed:
        raise CimError(
            f"{file}: shards has {len(index.shards)} of {index.items} items; expected {needed}"
        )
    return GalleryShards(folder, index)


def describe_gallery(folder: Path) -> dict[str, Any]:
    """The contents of a gallery as plain data, after its shards are verified.

    Raises CimError for the first shard that is missing or not the one that was written.
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


def bundle_digest(bundle: Bundle) -> str:
    """The SHA-256 of a bundle's manifest, which has those of all its files."""
    return sha256(bundle.folder / MANIFEST)
