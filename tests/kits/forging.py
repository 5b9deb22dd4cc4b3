"""Bundles changed by hand, with checksums made anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cimtool.base.files import sha256
from cimtool.base.json_files import values_digest
from cimtool.bundle.bundle import MANIFEST, manifest_text

Change = Callable[[dict[str, Any]], object]


def changed(folder: Path, file: str, change: Change, signed: bool) -> None:
    """Change a JSON file of a bundle; where `signed`, make all checksums anew."""
    values = json.loads((folder / file).read_text("utf-8"))
    change(values)
    (folder / file).write_text(json.dumps(values), "utf-8")
    if signed:
        sign(folder, file)


def sign(folder: Path, file: str) -> None:
    """Make the checksums of a changed file anew."""
    manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    if file != MANIFEST:
        manifest["files"][file] = sha256(folder / file)
    manifest["sha256"] = values_digest(manifest)
    (folder / MANIFEST).write_text(manifest_text(manifest), "utf-8")
