"""A trained model as the compiler takes it: its program of real numbers and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cimtool.errors import CimError
from cimtool.files import sha256
from cimtool.ir.heads import PcmePoly, assemble
from cimtool.ir.program import Graph, Program
from cimtool.loading.checkpoint import Checkpoint, read_checkpoint
from cimtool.loading.layer_map import LayerMap, read_layer_map
from cimtool.loading.layout import recognise
from cimtool.loading.polynomial import parse_polynomial, read_polynomial
from cimtool.loading.weights import find_weights
from cimtool.reference.surrogate import Polynomial

INNER_POLYNOMIAL = "poly"
"""Where a checkpoint that brings its own polynomial holds it."""


@dataclass(frozen=True)
class Model:
    """A trained matcher: its program before any pass, its score, its teacher where known.

    `polynomial` takes raw ed and vd, whatever the layout divides them by. `a` and `b` are the
    teacher's sigmoid, `samples` its K a side, None where not known. `unit_rows` says that
    embeddings are expected at unit norm; `files` are the paths read, with the SHA-256 of each.
    """

    name: str
    layout: str
    head: PcmePoly
    program: Program
    a: float | None
    b: float | None
    samples: int | None
    unit_rows: bool
    files: tuple[tuple[str, str], ...] = ()

    @property
    def polynomial(self) -> Polynomial:
        """The trained surrogate in raw ed and vd."""
        return self.head.polynomial

    @property
    def text_width(self) -> int:
        """Extent of a text embedding."""
        return _width(self.program.text, "x")

    @property
    def video_width(self) -> int:
        """Extent of a video embedding."""
        return _width(self.program.video, "x")

    @property
    def dimension(self) -> int:
        """Extent d of mu and s."""
        return _width(self.program.text, self.program.text.outputs["mu"])


def _width(graph: Graph, value: str) -> int:
    return int(graph.types[value].shape[1])


def load_model(
    projectors: Path,
    poly: Path | None = None,
    a: float | None = None,
    b: float | None = None,
    layer_map: Path | None = None,
) -> Model:
    """Read a checkpoint and its polynomial; `a`, `b` and `poly` override what the files hold.

    Raises CimError naming file and key for whatever is missing, broken or does not fit.
    """
    checkpoint = read_checkpoint(projectors)
    named = LayerMap() if layer_map is None else read_layer_map(layer_map)
    trained = inner_polynomial(checkpoint) if poly is None else read_polynomial(poly)
    read = [path for path in (projectors, poly, layer_map) if path is not None]
    model = build_model(checkpoint, trained, named)
    return replace(
        model,
        name=projectors.stem,
        a=model.a if a is None else a,
        b=model.b if b is None else b,
        files=tuple((str(path), sha256(path)) for path in read),
    )


def inner_polynomial(checkpoint: Checkpoint) -> Polynomial:
    """The polynomial that a checkpoint brings; CimError naming `cimtool fit` where it has none."""
    values = checkpoint.content.get(INNER_POLYNOMIAL)
    if not isinstance(values, Mapping):
        raise CimError(
            f"{checkpoint.file}: holds no polynomial; give one with --poly, or make one with "
            "`cimtool fit`"
        )
    return parse_polynomial(values, f"{checkpoint.file}: {INNER_POLYNOMIAL}")


def build_model(
    checkpoint: Checkpoint, trained: Polynomial, layer_map: LayerMap | None = None
) -> Model:
    """The model of a checkpoint's weights; `trained` takes the layout's own statistics.

    Raises CimError where no layout fits or the two modalities do not meet in one space.
    """
    text, video = find_weights(checkpoint, layer_map or LayerMap())
    layout = recognise(text, video)
    towers = layout.tower(text), layout.tower(video)
    d_text, d_video = (tower.dimension for tower in towers)
    if d_text != d_video:
        raise CimError(
            f"{checkpoint.file}: {text.prefix} gives {d_text} dimensions and {video.prefix} "
            f"{d_video}; expected the same for both"
        )
    head = PcmePoly(layout.polynomial(trained, d_text))
    return Model(
        name=Path(checkpoint.file).stem,
        layout=layout.name,
        head=head,
        program=assemble(*towers, head),
        a=trained.a,
        b=trained.b,
        samples=trained.K,
        unit_rows=layout.unit_rows,
    )
