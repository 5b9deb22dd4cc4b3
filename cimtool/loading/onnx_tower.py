"""A projector given as an ONNX file, as the compiler takes one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cimtool.ir.program import Builder
from cimtool.ir.source import Exp
from cimtool.ir.types import real
from cimtool.loading.onnx_graph import OnnxGraph, read_onnx_graph
from cimtool.loading.onnx_rules import translate


@dataclass(frozen=True)
class OnnxTower:
    """One projector as its file has it."""

    graph: OnnxGraph

    @property
    def width(self) -> int:
        """Extent of an input row."""
        return self.graph.width

    @cached_property
    def dimension(self) -> int:
        """Extent of mu and s."""
        builder = Builder("trial", {"x": real(("n", self.width))})
        mu, _ = self.build(builder, "x")
        return int(builder.types[mu].shape[1])

    def build(self, builder: Builder, x: str) -> tuple[str, str | None]:
        """Add the nodes; return the names of `mu` and `s`, None for `s` where the file has none.

        Raises CimError naming the first node that is not supported, and for unequal extents.
        """
        outputs = translate(self.graph, builder, x)
        if "logvar" not in outputs:
            return outputs["mu"], None
        return outputs["mu"], builder.add("s", Exp(), outputs["logvar"])


def read_onnx_tower(path: Path) -> OnnxTower:
    """Read a projector; CimError where the file is no valid ONNX model of one."""
    return OnnxTower(read_onnx_graph(path))
