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
from cimtool.base.options import DIR, EMBEDDINGS, FILE, OneOfFamily, option, optional
from cimtool.base.progress import Say, silent
from cimtool.bundle.bundle import Bundle, replaced_folder
from cimtool.bundle.dies import DrawnDies, NoiseOptions
from cimtool.loading.embeddings import Embeddings, EmbeddingsLike, read_data


@dataclass(frozen=True)
class Request:
    """Wishes for an export: the pattern of layers' names, rows of embeddings, dies.

    With `gallery`, the layers of the gallery in the arrays are exported too. Any exporter may call
    `say` with a line of progress.
    """

    layers: str = "*"
    inputs: Embeddings | None = None
    noise: NoiseOptions | None = None
    gallery: bool = False
    say: Say = silent

    @classmethod
    def of(cls, bundle: Bundle, options: ExportOptions, say: Say) -> Request:
        """The wishes that options hold. Raises CimError if the embeddings don't fit the bundle."""
        layers = "*" if options.layers is None else options.layers
        rows = None if options.inputs is None else read_data(options.inputs, bundle.model)
        return cls(layers, rows, options.noise, options.gallery, say)


class Exporter(Named):
    """Base of the exporters; a subclass in `cimtool/bundle/exporters/` is found by itself."""

    counted: ClassVar[bool] = False
    """True if the exporter writes many files: the output then gives only their number."""
    takes: ClassVar[tuple[str, ...]] = ()
    """The fields of a request that the exporter uses, except `say`, which all exporters get."""

    @classmethod
    @abstractmethod
    def earlier(cls, folder: Path) -> set[str]:
        """The names of files that an earlier export in `folder` may have, and no others."""

    @classmethod
    @abstractmethod
    def write(cls, bundle: Bundle, request: Request, folder: Path) -> None:
        """Write the files into a new folder."""

    @classmethod
    def least_bytes(cls, bundle: Bundle, request: Request) -> int:
        """The least number of bytes that the files take; 0 if they are small next to the bundle."""
        del bundle, request
        return 0


class ExportOptions(DrawnDies):
    """The options of `export`."""

    bundle: Path = option("The bundle's folder.", FILE, positional=True, argument="BUNDLE")
    format_name: str = option("Kind of files.", OneOfFamily(family=Exporter), flag="format")
    output: Path = option("Folder of the files.", DIR, short="o")
    layers: str | None = optional("Only these layers (default: all).", "PATTERN")
    inputs: EmbeddingsLike | None = optional(
        "Embeddings, for test vectors of real rows.", EMBEDDINGS
    )
    gallery: bool = option("Also export the gallery in the bundle's arrays.", default=False)


def export_bundle(
    bundle: Bundle, format_name: str, folder: Path, request: Request | None = None
) -> tuple[Path, ...]:
    """Write a bundle to `folder` in the format of an exporter, and return the files written.

    The export is complete or nothing is written. `folder` is a new place, an empty folder, or an
    earlier export of the format, which is moved to `<name>.previous`. Raises CimError for any other
    place, an unknown format, a field of `request` that the format does not use, and a full disk.
    """
    exporter = Exporter.named(format_name, "format")
    request = request or Request()
    for name in vars(request):
        taken = name in ("say", *exporter.takes)
        if not taken and getattr(request, name) != getattr(Request, name):
            able = (f'"{other}"' for other, one in Exporter.every().items() if name in one.takes)
            raise ArgumentError(
                '{format_name} is "{}", which does not take {}; expected {} with it',
                format_name,
                Argument(name),
                " or ".join(able),
            )
    _check_place(folder, exporter)
    check_room(folder, exporter.least_bytes(bundle, request))
    with replaced_folder(folder) as partial:
        exporter.write(bundle, request, partial)
        files = (file for file in partial.rglob("*") if file.is_file())
        names = sorted(file.relative_to(partial) for file in files)
    return tuple(folder / name for name in names)


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
