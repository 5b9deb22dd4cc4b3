"""Sources of a trained model: projectors and score as a caller gives them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from cimtool.base.arrays import Array
from cimtool.base.errors import Argument, ArgumentError, CimError, kind_of
from cimtool.base.files import sha256
from cimtool.base.modality_names import TEXT_VIDEO, Modalities
from cimtool.base.options import FILE, FILES, OneOfFamily, Record, Topic, option, optional
from cimtool.base.progress import Say, silent
from cimtool.ir.heads import Head
from cimtool.ir.surrogate import Polynomial
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.embeddings import Embeddings, EmbeddingsLike, File, embeddings_in
from cimtool.loading.layer_map import NO_MAP, read_layer_map
from cimtool.loading.layouts import require_known_keys
from cimtool.loading.model import Model, RowWidths, build_model
from cimtool.loading.polynomial import fitted_to, read_polynomial
from cimtool.loading.projectors import ProjectorPair
from cimtool.loading.score import DEFAULT_HEAD, ScoreOptions

if TYPE_CHECKING:
    from torch import nn

Reader = Callable[[Modalities | None], Embeddings]
"""Reads data; if a model names two modalities, reads the arrays of these."""

Projectors: TypeAlias = "Path | str | tuple[Path | str, Path | str] | tuple[nn.Module, nn.Module]"

STAND_IN = Polynomial(degree=1, coeff=(-1.0, 1.0), bias=0.0)
"""The score of a model that has no polynomial yet: it takes ed and vd, and so keeps mu and s."""


class ModelOptions(Record, topic=Topic.MODEL):
    """Fields of a ModelSource beside its projectors and their polynomial."""

    head: str | None = optional(
        "The score, if the checkpoint names none.",
        OneOfFamily(family=Head, checked=False),
        place="score.head",
        topic="",
    )
    layer_map: File | None = optional(
        "Names of the layers (TOML).", FILE, flag="map", place="model.map"
    )
    a: float | None = optional(
        "The teacher's a in sigmoid(b - a D), or a cosine's scale.", "X", place="score.a"
    )
    b: float | None = optional("The teacher's b, or a cosine's offset.", "X", place="score.b")
    ignore_uncertainty: bool = option(
        "Leave out a variance in the checkpoint that its layout does not read.",
        default=False,
        place="model.ignore_uncertainty",
    )


class ModelArguments(ModelOptions):
    """The fields of a ModelSource."""

    projectors: Projectors = option(
        "The checkpoint (or twice, .onnx: text, then video).",
        FILES,
        positional=True,
        place="model.projectors",
    )
    poly: File | Polynomial | None = optional(
        "The polynomial, if the checkpoint has none.", FILE, positional=True, place="score.poly"
    )


@dataclass(frozen=True)
class ModelSource:
    """A checkpoint, two ONNX files or two torch modules, text first, and options for them.

    `poly` is a polynomial's file; with modules it may be a Polynomial. The teacher's `a` and `b`,
    and the score function `head`, replace the files' values. The file `layer_map` names the layers
    of a checkpoint. `ignore_uncertainty` allows leaving out a variance that its layout does not
    read. Paths may be texts. Raises CimError for arguments that cannot make a model; the
    files are not read yet.

    `for_rows` fills in the facts of the data. For modules these are `widths`, the widths of a row
    of text and of video, and `rows`, on which the modules are compared with the model that was
    read. For files it is `read`, which gives the data if a layout needs the widths, or an error the
    names of both modalities.
    """

    projectors: Projectors
    poly: Path | str | Polynomial | None = None
    _: KW_ONLY
    a: float | None = None
    b: float | None = None
    layer_map: Path | str | None = None
    head: str | None = None
    ignore_uncertainty: bool = False
    widths: RowWidths = (None, None)
    rows: tuple[Array, Array] | None = field(default=None, compare=False, repr=False)
    read: Reader | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "projectors", _projectors(self.projectors))
        for name in ("poly", "layer_map"):
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, Path(value))
        for name, value in (("a", self.a), ("b", self.b)):
            if value is not None and not math.isfinite(value):
                raise ArgumentError("{} is {}; expected a finite number", Argument(name), value)
        if self.a is not None and self.a <= 0:
            raise ArgumentError("{a} is {}; expected a number above 0", self.a)
        if self.files and isinstance(self.poly, Polynomial):
            raise CimError("a checkpoint file takes its polynomial from a file (poly=PATH)")
        if len(self.files) == 2 and self.layer_map is not None:
            raise CimError(
                f"{self.layer_map}: a map names the layers of a checkpoint; expected none with "
                "ONNX files"
            )

    @classmethod
    def of(cls, options: ModelArguments) -> Self:
        """The source given by options."""
        return cls(**options.part(ModelArguments))

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the projectors; empty for modules."""
        given = self.projectors if isinstance(self.projectors, tuple) else (self.projectors,)
        return tuple(file for file in given if isinstance(file, Path))

    def digest_of(self, model: Model) -> str | None:
        """The SHA-256 of the projectors' files, for a model that this source read; else None."""
        read = dict(model.files)
        return " ".join(read[str(file)] for file in self.files) or None

    def __str__(self) -> str:
        return " and ".join(map(str, self.files)) or "torch modules"

    def for_rows(self, data: EmbeddingsLike) -> Self:
        """The source with data: the widths of rows, and for modules the rows to compare on."""
        return self.for_read(partial(embeddings_in, data))

    def for_read(self, read: Reader) -> Self:
        """The source with data from `read`: called now for modules, when needed for files."""
        if self.files:
            return replace(self, read=read)
        rows = read(None)
        return replace(self, widths=widths_of(rows), rows=(rows.text, rows.video))

    def _widths(self, modalities: Modalities | None) -> RowWidths:
        """The widths of a row, as given or from the data."""
        return self.widths if self.read is None else widths_of(self.read(modalities))

    def _names(self, modalities: Modalities | None) -> Modalities:
        """The data's names of both modalities; the usual names if the data cannot be read."""
        try:
            return TEXT_VIDEO if self.read is None else self.read(modalities).called
        except CimError:  # the user should mend the calling error first
            return TEXT_VIDEO

    def load(self, say: Say = silent, polynomial: Polynomial | None = None) -> Model:
        """Read the model; CimError, which names file and key, if a part is missing or broken.

        A `polynomial` that is not in a file yet replaces `poly`.
        """
        poly = polynomial or self.poly
        if poly is None or isinstance(poly, Polynomial):
            return self._read(self._score(poly), say)
        file = Path(poly)
        model = self._read(self._score(read_polynomial(file)), say)
        known = model.provenance
        own = (self.digest_of(model), *(() if known is None else known.ancestors))
        return replace(model, warnings=(*model.warnings, *foreign_fit(file, str(self), own)))

    def load_projectors(self, say: Say = silent) -> Model:
        """Read the projectors without a polynomial; STAND_IN is the score, which keeps mu and s."""
        return self._read(ScoreOptions(DEFAULT_HEAD, STAND_IN, ignore_uncertainty=True), say)

    def _score(self, polynomial: Polynomial | None) -> ScoreOptions:
        return ScoreOptions(self.head, polynomial, self.a, self.b, self.ignore_uncertainty)

    def _read(self, score: ScoreOptions, say: Say) -> Model:
        layer_map = NO_MAP if self.layer_map is None else read_layer_map(Path(self.layer_map))
        require_known_keys(layer_map)
        if self.files:
            say(f"loading {self}")
        beside: tuple[Path, ...] = ()
        match self.projectors:
            case Path() as file:
                checkpoint = read_checkpoint(file)
                beside = checkpoint.beside
                model = build_model(checkpoint, score, layer_map, self._widths, self._names)
            case (text, video):
                pair: tuple[Any, Any] = text, video
                kind = ProjectorPair.of(pair)
                if kind is None:
                    raise CimError(
                        f"{self}: this cimtool cannot read pairs of projectors, as its folder "
                        "loading/onnx is missing; expected a checkpoint"
                    )
                model = kind.read(pair, score, layer_map, self.widths, self.rows)
                if not self.files:
                    return model
        options = (one for one in (self.poly, self.layer_map) if isinstance(one, Path))
        read = [*self.files, *beside, *options]
        return replace(model, files=tuple((str(path), sha256(path)) for path in read))


def widths_of(rows: Embeddings) -> RowWidths:
    """Numbers in a row of text and of video."""
    return rows.text.shape[1], rows.video.shape[1]


def foreign_fit(poly: Path, model: str, digests: Collection[str | None]) -> tuple[str, ...]:
    """The warning if a polynomial was fitted to another model.

    `digests` are the SHA-256 of the model and its ancestors. There is no warning if the file does
    not record its model.
    """
    fitted = fitted_to(poly)
    if fitted is None or fitted in digests:
        return ()
    return (
        f"{poly} was fitted to another model ({fitted[:8]}), neither {model} nor one that it "
        "started from: its pairs may lie outside the polynomial's domain",
    )


def _projectors(given: object) -> Projectors:
    """The files as paths, or the modules; CimError for anything else."""
    match given:
        case Path() | str():
            return Path(given)
        case (Path() | str() as text, Path() | str() as video):
            return Path(text), Path(video)
        case (text, video) if ProjectorPair.of((text, video)) is not None:
            pair: tuple[Any, Any] = text, video
            return pair
    raise ArgumentError(
        "{projectors} are given as {}; expected a checkpoint, two ONNX files or two torch modules",
        kind_of(given),
    )
