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
    def expected_bytes(cls, bundle: Bundle, request: Request) -> dict[str, int]:
        """The bytes of the ONNX files that the bundle has."""
        names = sorted(bundle.manifest["files"].keys() & cls.earlier(bundle.folder))
        return {name: (bundle.folder / name).stat().st_size for name in names}

    @classmethod
    def write(cls, bundle: Bundle, request: Request, folder: Path) -> None:
        """Copy the ONNX files that the bundle has."""
        for name in bundle.manifest["files"].keys() & {*ONNX_FILES, SHORTLIST}:
            shutil.copyfile(bundle.folder / name, folder / name)
