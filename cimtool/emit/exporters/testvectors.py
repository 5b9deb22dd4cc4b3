"""Exporter `testvectors`: stimuli and the numbers at the taps of each row group."""

from __future__ import annotations

import json
from pathlib import Path

from cimtool.bundle.bundle import Bundle
from cimtool.emit.exporter import Exporter
from cimtool.emit.testvectors import LAYOUT, README, Request, write_testvectors


class TestVectors(Exporter, name="testvectors"):
    """Test vectors, described in a layout file."""

    takes_request = True

    @classmethod
    def earlier(cls, folder: Path) -> set[str]:
        """The files that an earlier export's own layout names; none where there is no layout."""
        try:
            arrays = json.loads((folder / LAYOUT).read_text("utf-8"))["files"]
            return {LAYOUT, README, *(f"{n}.{kind}" for n in arrays for kind in ("npy", "mem"))}
        except (OSError, ValueError, KeyError, TypeError):
            return set()

    @classmethod
    def write(cls, bundle: Bundle, request: Request, folder: Path) -> None:
        """Write those of the layers and rows in the request."""
        write_testvectors(bundle, request, folder)
