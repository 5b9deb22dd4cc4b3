"""A trained model as the compiler takes it: its program of real numbers and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from cimtool.base.errors import CimError
from cimtool.ir.heads import Head, assemble, dimension
from cimtool.ir.program import Graph, Program
from cimtool.loading.checkpoint import Checkpoint
from cimtool.loading.layer_map import NO_MAP, LayerMap
from cimtool.loading.layouts import Layout, recognise
from cimtool.loading.onnx_graph import read_onnx_graph
from cimtool.loading.onnx_rules import translate
from cimtool.loading.score import ScoreOptions, read_score
from cimtool.loading.weights import find_weights

ONNX_LAYOUT = "onnx"
"""The layout of projectors that are ONNX files: nothing is divided, rows are taken as they are."""

RUN_STEMS = ("model", "last")
"""Names of the checkpoints of a training run, whatever it trained."""


@dataclass(frozen=True)
class Model:
    """A trained matcher: its program before any pass, its score, its teacher where known.

    The head takes raw ed and vd; `divisors` are what the layout divides them by. `a` and `b` are
    the teacher's sigmoid, `samples` its K a side, None where not known. `unit_rows` says that
    embeddings are expected at unit norm; `warnings` are what a reader of its figures should know of
    how it was trained; `files` are the paths read, with the SHA-256 of each.
    """

    name: str
    layout: str
    head: Head
    program: Program
    a: float | None
    b: float | None
    samples: int | None
    unit_rows: bool = False
    divisors: tuple[float, float] = (1.0, 1.0)
    warnings: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()

    @property
    def text_width(self) -> int:
        """Extent of a text embedding."""
        return self.program.text.extent("x")

    @property
    def video_width(self) -> int:
        """Extent of a video embedding."""
        return self.program.video.extent("x")

    @property
    def dimension(self) -> int:
        """Extent d of mu and s."""
        return dimension(self.program.text)


def build_model(
    checkpoint: Checkpoint, wanted: ScoreOptions, layer_map: LayerMap = NO_MAP
) -> Model:
    """The model of a checkpoint's weights; `wanted` is what the caller says of its score.

    Raises CimError where no layout fits, the two modalities do not meet in one space, or the score
    lacks something.
    """
    layout, towers = read_towers(checkpoint, layer_map)
    divisors = layout.statistics(dimension(towers[0]))
    name = model_name(Path(checkpoint.file))
    model = _model(name, towers, checkpoint, wanted, divisors)
    warnings = layout.warnings(checkpoint.content)
    return replace(model, layout=layout.name, unit_rows=layout.unit_rows, warnings=warnings)


def model_name(file: Path) -> str:
    """The name of a checkpoint's bundles: its own, or its folder's where a run wrote it."""
    return file.parent.name or file.stem if file.stem in RUN_STEMS else file.stem


def build_onnx_model(text: Path, video: Path, wanted: ScoreOptions) -> Model:
    """The model of two ONNX files; `wanted` is what the caller says of its score.

    Raises CimError where a file is no projector, the two do not meet in one space, or the score
    lacks something.
    """
    towers = translate(read_onnx_graph(text)), translate(read_onnx_graph(video))
    _require_one_space(towers, (str(text), str(video)))
    source = Checkpoint(f"{text}, {video}", {})
    return _model(f"{text.stem}-{video.stem}", towers, source, wanted, (1.0, 1.0))


def _model(
    name: str,
    towers: tuple[Graph, Graph],
    source: Checkpoint,
    wanted: ScoreOptions,
    divisors: tuple[float, float],
) -> Model:
    head, known = read_score(source.file, source.content, wanted, towers, divisors)
    samples = None if known.polynomial is None else known.polynomial.K
    program = assemble(*towers, head)
    return Model(name, ONNX_LAYOUT, head, program, known.a, known.b, samples, divisors=divisors)


def read_towers(
    checkpoint: Checkpoint, layer_map: LayerMap = NO_MAP
) -> tuple[type[Layout], tuple[Graph, Graph]]:
    """The layout of a checkpoint and both its projectors.

    Raises CimError where no layout fits or the two modalities do not meet in one space.
    """
    text, video = find_weights(checkpoint, layer_map)
    layout = recognise(text, video)
    towers = layout.tower(text), layout.tower(video)
    _require_one_space(towers, (f"{checkpoint.file}: {text.prefix}", video.prefix))
    return layout, towers


def _require_one_space(towers: tuple[Graph, Graph], places: tuple[str, str]) -> None:
    """Raise CimError where two projectors, found at `places`, differ in dimensions."""
    d_text, d_video = map(dimension, towers)
    if d_text != d_video:
        raise CimError(
            f"{places[0]} gives {d_text} dimensions and {places[1]} {d_video}; expected the same "
            "for both"
        )
