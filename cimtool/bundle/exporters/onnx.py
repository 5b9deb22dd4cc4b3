"""Exporter `onnx`: copies of a bundle's ONNX files."""

from __future__ import annotations

import shutil
from pathlib import Path

from cimtool.bundle.bundle import ONNX_FILES, SHORTLIST, Bundle
from cimtool.bundle.exporter import Exporter, Request


class Onnx(Exporter, name="onnx"):
    """Copies of the ONNX files."""

    @classmethod
    def earlier(cls, folder: Path) -> set[str]:
        """The names of a bundle's ONNX files."""
        return {*ONNX_FILES, SHORTLIST}

    @classmethod
    def write(cls, bundle: Bundle, request: Request, folder: Path) -> None:
        """Copy the ONNX files that the bundle has."""
        for name in bundle.manifest["files"].keys() & {*ONNX_FILES, SHORTLIST}:
            shutil.copyfile(bundle.folder / name, folder / name)
