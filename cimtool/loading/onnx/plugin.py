"""Kinds of projector pairs that this folder reads: ONNX files, and torch modules in memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cimtool.loading.projectors import ProjectorFile, ProjectorPair

if TYPE_CHECKING:
    from cimtool.base.arrays import Array
    from cimtool.loading.layer_map import LayerMap
    from cimtool.loading.model import Model, RowWidths
    from cimtool.loading.score import ScoreOptions

MODULES = ("torch.nn.modules.module.Module", "torch.export.exported_program.ExportedProgram")
"""Names of the classes that a model in memory may have."""


class OnnxFiles(ProjectorPair, name="onnx"):
    """Two ONNX files."""

    @classmethod
    def takes(cls, given: object) -> bool:
        """True for a path; reading checks its suffix."""
        return isinstance(given, Path)

    @classmethod
    def read(
        cls,
        pair: tuple[Path, Path],
        score: ScoreOptions,
        layer_map: LayerMap,
        widths: RowWidths,
        rows: tuple[Array, Array] | None,
    ) -> Model:
        """The model of two files; their extents give the widths."""
        from cimtool.loading.model import model_of_towers
        from cimtool.loading.onnx.graph import read_onnx_graph
        from cimtool.loading.onnx.towers import translate

        text, video = pair
        graphs = read_onnx_graph(text), read_onnx_graph(video)
        towers = translate(graphs[0]), translate(graphs[1])
        places = str(text), str(video)
        return model_of_towers(f"{text.stem}-{video.stem}", towers, places, score)


class TorchModules(ProjectorPair, name="torch"):
    """Two torch modules or exported programs."""

    @classmethod
    def takes(cls, given: object) -> bool:
        """True for a torch module or exported program; the test does not import torch."""
        kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(given).__mro__}
        return not kinds.isdisjoint(MODULES)

    @classmethod
    def read(
        cls,
        pair: tuple[Any, Any],
        score: ScoreOptions,
        layer_map: LayerMap,
        widths: RowWidths,
        rows: tuple[Array, Array] | None,
    ) -> Model:
        """The model of two modules, compared with the modules' outputs."""
        from cimtool.loading.onnx.modules import model_from_modules

        return model_from_modules(*pair, score, layer_map, widths=widths, rows=rows)


class OnnxFile(ProjectorFile, name=".onnx"):
    """One ONNX file."""

    @classmethod
    def describe(cls, file: Path) -> dict[str, Any]:
        """Inputs, outputs, operator sets, local functions and nodes by kind."""
        from cimtool.loading.onnx.graph import describe_onnx

        return describe_onnx(file)
