"""Exporters: classes that write a bundle's content in the format of another tool."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.files import check_room, check_way
from cimtool.base.json_files import read_table
from cimtool.base.named import Named
from cimtool.base.options import DIR, EMBEDDINGS, FILE, OneOfFamily, Topic, option, optional
from cimtool.base.progress import PartDone, Say, silent
from cimtool.base.untrusted import memory_size
from cimtool.bundle.bundle import Bundle, replaced_folder
from cimtool.bundle.dies import DrawnDies, NoiseOptions
from cimtool.loading.embeddings import Embeddings, EmbeddingsLike, read_data

LARGE = 100_000_000
"""Bytes of an export from which on a log tells its size too."""

MAX_SIZE = 2_000_000_000
"""Bytes that the files of an export may take, unless a request says otherwise."""


@dataclass(frozen=True)
class Request:
    """Wishes for an export: the pattern of layers' names, rows of embeddings, dies.

    With `gallery`, the layers of the gallery in the arrays are exported too. Files may take
    `max_size` bytes. Any exporter may call `say` with a line of progress.
    """

    layers: str = "*"
    inputs: Embeddings | None = None
    noise: NoiseOptions | None = None
    gallery: bool = False
    max_size: int = MAX_SIZE
    say: Say = silent

    @classmethod
    def of(cls, bundle: Bundle, options: ExportOptions, say: Say) -> Request:
        """The wishes that options hold. Raises CimError if the embeddings don't fit the bundle."""
        layers = "*" if options.layers is None else options.layers
        rows = None if options.inputs is None else read_data(options.inputs, bundle.model)
        limit = MAX_SIZE if options.max_size is None else amount_of(options.max_size)
        return cls(layers, rows, options.noise, options.gallery, limit, say)


def amount_of(text: str) -> int:
    """The bytes of `2G` or `500M`; ArgumentError for anything else, and for none."""
    try:
        size = memory_size(text)
    except CimError:
        size = 0
    if size < 1:
        raise ArgumentError(
            '{max_size} is "{}"; expected bytes, such as 500000000, 500M or 4G', text
        ) from None
    return size


class Exporter(Named):
    """Base of the exporters; a subclass in `cimtool/bundle/exporters/` is found by itself."""

    counted: ClassVar[bool] = False
    """True if the exporter writes many files: the output then gives only their number."""
    takes: ClassVar[tuple[str, ...]] = ()
    """The fields of a request that the exporter uses, beside `say` and `max_size`."""

    @classmethod
    @abstractmethod
    def earlier(cls, folder: Path) -> set[str]:
        """The names of files that an earlier export in `folder` may have, and no others."""

    @classmethod
    @abstractmethod
    def write(cls, bundle: Bundle, request: Request, folder: Path) -> None:
        """Write the files into a new folder."""

    @classmethod
    def expected_bytes(cls, bundle: Bundle, request: Request) -> dict[str, int]:
        """The bytes that the files take, about, by folder or file; small ones may be left out."""
        del bundle, request
        return {}


class ExportOptions(DrawnDies):
    """The options of `export`."""

    bundle: Path = option(
        "The bundle's folder.", FILE, positional=True, argument="BUNDLE", place="bundle"
    )
    format_name: str = option("Kind of files.", OneOfFamily(family=Exporter), flag="format")
    output: Path = option("Folder of the files.", DIR, short="o")
    layers: str | None = optional(
        "Only these layers (default: all).", "PATTERN", topic=Topic.WRITTEN
    )
    inputs: EmbeddingsLike | None = optional(
        "Embeddings, for test vectors of real rows.", EMBEDDINGS
    )
    gallery: bool = option("Also export the gallery in the bundle's arrays.", default=False)
    max_size: str | None = optional(
        "Most bytes that the files may take, such as 500M (default: 2 GB).",
        "SIZE",
        topic=Topic.WRITTEN,
    )


def export_bundle(
    bundle: Bundle, format_name: str, folder: Path, request: Request | None = None
) -> tuple[Path, ...]:
    """Write a bundle to `folder` in the format of an exporter, and return the files written.

    The export is complete or nothing is written. `folder` is a new place, an empty folder, or an
    earlier export of the format, which is moved to `<name>.previous`. Raises CimError for any other
    place, an unknown format, a field of `request` that the format does not use, files that would
    take more than `request.max_size`, and a full disk.
    """
    exporter = Exporter.named(format_name, "format")
    request = request or Request()
    for name in vars(request):
        taken = name in ("say", "max_size", *exporter.takes)
        if not taken and getattr(request, name) != getattr(Request, name):
            able = (f'"{other}"' for other, one in Exporter.every().items() if name in one.takes)
            raise ArgumentError(
                '{format_name} is "{}", which does not take {}; expected {} with it',
                format_name,
                Argument(name),
                " or ".join(able),
            )
    _check_place(folder, exporter)
    check_room(folder, _checked_size(bundle, format_name, request))
    with replaced_folder(folder) as partial:
        exporter.write(bundle, request, partial)
        files = (file for file in partial.rglob("*") if file.is_file())
        names = sorted(file.relative_to(partial) for file in files)
    return tuple(folder / name for name in names)


def _checked_size(bundle: Bundle, format_name: str, request: Request) -> int:
    """The bytes that an export takes, about, which are told; CimError if they are too many."""
    parts = Exporter.named(format_name, "format").expected_bytes(bundle, request)
    size = sum(parts.values())
    if not size:
        return 0
    listed = ", ".join(f"{name} {amount_text(one)}" for name, one in parts.items())
    told = f"takes about {amount_text(size)}: {listed}"
    request.say(PartDone(told) if size >= LARGE else told)
    if size > request.max_size:
        raise ArgumentError(
            '{format_name} "{}" takes about {} ({}), more than {max_size} of {}; expected fewer '
            "{layers}, another {format_name} that has a part of it, or a larger {max_size}; "
            "nothing was written",
            format_name,
            amount_text(size),
            listed,
            amount_text(request.max_size),
        )
    return size


def amount_text(size: int) -> str:
    """A number of bytes in GB, MB or kB; below 1 kB in bytes."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return "1 byte" if size == 1 else f"{size} bytes"


def names_listed(description: Path) -> list[str]:
    """The names in the table `files` of an export's `description`, a JSON file.

    Empty if the description cannot be read or has no such table.
    """
    try:
        files = read_table(description, "export").get("files")
    except CimError:
        return []
    return list(files) if isinstance(files, dict) else []


def _check_place(folder: Path, exporter: type[Exporter]) -> None:
    check_way(folder, folder.absolute().parent)
    if not (folder.exists() or folder.is_symlink()):
        return
    if not folder.is_dir() or not {f.name for f in folder.iterdir()} <= exporter.earlier(folder):
        raise CimError(
            f"{folder}: exists and is not an earlier export, so it is not replaced; expected a new "
            "place"
        )
