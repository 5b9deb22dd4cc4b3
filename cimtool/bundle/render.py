"""The document of a bundle: its files by purpose, and their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from cimtool.bundle.bundle import (
    CALIBRATION,
    CONSTANTS,
    GALLERY,
    OF_STAGES,
    PROGRAM,
    QUERIES,
    SHORTLIST,
    TRAINING,
    Bundle,
)
from cimtool.bundle.ledger import LEDGER, LEDGER_ARRAYS
from cimtool.report.document import Document, Sentence, notes
from cimtool.report.formats import SIZES, percent, scaled
from cimtool.report.table import Column, Table, make_table

PURPOSES = {
    "the program": (PROGRAM, CONSTANTS),
    "ONNX files, for use without cimtool": ("text.onnx", "video.onnx", "score.onnx", SHORTLIST),
    "verify, compare and evaluate": OF_STAGES,
    "the gallery": (GALLERY, QUERIES, LEDGER, LEDGER_ARRAYS),
    "digests of rows seen before": (CALIBRATION, TRAINING),
}
"""The files of a bundle by purpose."""


def sizes(folder: Path, files: Iterable[str]) -> dict[str, int]:
    """Bytes of a bundle's files, by purpose."""
    present = {name: (folder / name).stat().st_size for name in files}
    purposes = {name: purpose for purpose, names in PURPOSES.items() for name in names}
    found: dict[str, int] = {}
    for name, size in present.items():
        purpose = purposes.get(name, "other files")
        found[purpose] = found.get(purpose, 0) + size
    return found


def size_table(found: Mapping[str, int]) -> Table:
    """A table of the sizes, largest first."""
    columns = (
        Column("files for"),
        Column("MB", "{:.3f}".format),
        Column("share", percent, unit="%"),
    )
    every = sum(found.values()) or 1
    ordered = sorted(found.items(), key=lambda one: -one[1])
    rows = [(purpose, size / 1e6, size / every) for purpose, size in ordered]
    return make_table("Sizes of the files", columns, rows)


def document(bundle: Bundle) -> Document:
    """The model, the target, the size and the notes of a bundle."""
    files, model, held = bundle.manifest["files"], bundle.model, bundle.gallery
    held_bytes = sizes(bundle.folder, files)
    title = f"{bundle.folder}, {model.name} on {bundle.target.name}, head {model.head.name}"
    said = [f"{scaled(sum(held_bytes.values()), SIZES)} in {len(files)} files."]
    said += [] if held is None else [f"It holds {held.items:,} items of {held.file}."]
    return Document(
        title,
        (
            *map(Sentence, said),
            *notes(bundle.manifest["notes"]),
            size_table(held_bytes).named("sizes"),
        ),
        lambda: {**bundle.manifest, "bytes": held_bytes},
    )
