"""Hand a bundle's content to other tools: one function a format, by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from cimtool.emit.bundle import ONNX_FILES, Bundle, replaced_folder
from cimtool.errors import CimError
from cimtool.named import unknown


def export_bundle(bundle: Bundle, format_name: str, folder: Path) -> tuple[Path, ...]:
    """Write a bundle to `folder` in one of FORMATS, all or nothing, and return the files written.

    A new place, an empty folder, or an earlier export of the format, which is then moved aside to
    `<name>.previous`; raises CimError for any other place, and for an unknown format.
    """
    if format_name not in FORMATS:
        raise unknown("format", format_name, FORMATS)
    names, write = FORMATS[format_name]
    _check_place(folder, names)
    with replaced_folder(folder) as partial:
        write(bundle, partial)
    return tuple(folder / name for name in names)


def _check_place(folder: Path, names: tuple[str, ...]) -> None:
    if not (folder.exists() or folder.is_symlink()):
        return
    if not folder.is_dir() or not {file.name for file in folder.iterdir()} <= set(names):
        raise CimError(
            f"{folder}: exists and is no earlier export, so it is not replaced; expected a new "
            "place (-o DIR)"
        )


def _copy_onnx(bundle: Bundle, folder: Path) -> None:
    for name in ONNX_FILES:
        shutil.copyfile(bundle.folder / name, folder / name)


FORMATS: dict[str, tuple[tuple[str, ...], Callable[[Bundle, Path], None]]] = {
    "onnx": (ONNX_FILES, _copy_onnx),
}
"""The files of each format, and what writes them into an empty folder."""
