"""An exporter: the digits of every cell, as the programmer of ACME's arrays reads them."""

from __future__ import annotations

from pathlib import Path

from cimtool.bundle.bundle import Bundle
from cimtool.bundle.exporter import Exporter, Request
from cimtool.hardware.mvm import CrossbarMvm

FILE = "cells.txt"


class CellFile(Exporter, name="acme-cells"):
    """One line a row of cells: graph, layer, slice and row, then the digits of all columns."""

    @classmethod
    def earlier(cls, folder: Path) -> set[str]:
        return {FILE}

    @classmethod
    def write(cls, bundle: Bundle, request: Request, folder: Path) -> None:
        lines = []
        for graph in bundle.program.graphs:
            for node in graph.nodes:
                if not isinstance(node.op, CrossbarMvm):
                    continue
                for k, cells in enumerate(node.op.stored.slices):
                    for row, digits in enumerate(cells.digits.tolist()):
                        lines.append(" ".join(map(str, (graph.name, node.name, k, row, *digits))))
        (folder / FILE).write_text("\n".join(lines) + "\n", "utf-8")
