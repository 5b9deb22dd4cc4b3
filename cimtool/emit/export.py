"""Hand a bundle's content to other tools: one function a format, by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cimtool.base.errors import ArgumentError, CimError
from cimtool.base.named import unknown
from cimtool.bundle.bundle import ONNX_FILES, SHORTLIST, Bundle, replaced_folder
from cimtool.emit.testvectors import LAYOUT, README, Request, write_testvectors


@dataclass(frozen=True)
class Format:
    """A form to export: which files an earlier export may have, and what writes a new one."""

    earlier: Callable[[Path], set[str]]
    write: Callable[[Bundle, Request, Path], None]


def export_bundle(
    bundle: Bundle, format_name: str, folder: Path, request: Request | None = None
) -> tuple[Path, ...]:
    """Write a bundle to `folder` in one of FORMATS, all or nothing, and return the files written.

    A new place, an empty folder, or an earlier export of the format, which is then moved aside to
    `<name>.previous`; raises CimError for any other place, and for an unknown format. `request`
    says which test vectors; other formats take none.
    """
    if format_name not in FORMATS:
        raise unknown("format", format_name, FORMATS)
    if request is not None and format_name != "testvectors":
        raise ArgumentError(
            '{format_name} is "{}", which takes no {layers} and no {inputs}; expected '
            '"testvectors" with them',
            format_name,
        )
    _check_place(folder, FORMATS[format_name])
    with replaced_folder(folder) as partial:
        FORMATS[format_name].write(bundle, request or Request(), partial)
        names = sorted(file.name for file in partial.iterdir())
    return tuple(folder / name for name in names)


def _check_place(folder: Path, known: Format) -> None:
    if not (folder.exists() or folder.is_symlink()):
        return
    if not folder.is_dir() or not {file.name for file in folder.iterdir()} <= known.earlier(folder):
        raise CimError(
            f"{folder}: exists and is no earlier export, so it is not replaced; expected a new "
            "place"
        )


def _onnx_names(folder: Path) -> set[str]:
    return {*ONNX_FILES, SHORTLIST}


def _copy_onnx(bundle: Bundle, request: Request, folder: Path) -> None:
    for name in bundle.manifest["files"].keys() & {*ONNX_FILES, SHORTLIST}:
        shutil.copyfile(bundle.folder / name, folder / name)


def _testvector_names(folder: Path) -> set[str]:
    """The files that an earlier export's own layout names; none where there is no layout."""
    try:
        arrays = json.loads((folder / LAYOUT).read_text("utf-8"))["files"]
        return {LAYOUT, README, *(f"{n}.{kind}" for n in arrays for kind in ("npy", "mem"))}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


FORMATS: dict[str, Format] = {
    "onnx": Format(_onnx_names, _copy_onnx),
    "testvectors": Format(_testvector_names, write_testvectors),
}
"""The formats by name."""
