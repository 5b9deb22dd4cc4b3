"""A trained model as the compiler takes it: a program of real numbers, and facts about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.escapes import clean_name
from cimtool.base.modality_names import TEXT_VIDEO, Modalities
from cimtool.base.typed_fields import list_of, made_of, table_of
from cimtool.ir.heads import Head, assemble, dimension
from cimtool.ir.heads.base import VARIANCE
from cimtool.ir.program import Graph, Program
from cimtool.loading.checkpoint import Checkpoint
from cimtool.loading.layer_map import NO_MAP, LayerMap
from cimtool.loading.layout import remarks
from cimtool.loading.layouts import Layout, recognise
from cimtool.loading.provenance import Provenance, provenance_of
from cimtool.loading.score import ScoreOptions, named_head, read_score
from cimtool.loading.tokens import of_each_token
from cimtool.loading.unread import unread
from cimtool.loading.weights import UnknownLayers, Weights, find_weights, require_weights

ONNX_LAYOUT = "onnx"
"""The layout of ONNX projectors: ed and vd are not divided, and rows are not normalised."""

MODALITIES_KEY = "modalities"
"""A checkpoint's key for the names of the arrays that are its text and its video."""

VARIANCE_NAMES = re.compile(r"var|sigma", re.IGNORECASE)
"""A part of a layer's name that shows a variance beside the mean."""

EXPORT = (
    "export both projectors, `torch.onnx.export({}, torch.zeros(2, {}), "
    '"{}.onnx"{}, dynamo=False)` and {} likewise, '
)
COMPILE = (
    "then `cimtool compile --projectors {}.onnx --projectors {}.onnx ...`; or in Python "
    "`cimtool.compile(({}, {}), ...)`"
)

RUN_STEMS = ("model", "last")
"""Names of the checkpoints that every training run writes."""


RowWidths = tuple[int | None, int | None]
"""Numbers in a row of text and of video, None if not known."""

ReadWidths = Callable[[Modalities | None], RowWidths]
"""Gives the widths of the data's rows, for the modalities that a checkpoint names."""

ReadNames = Callable[[Modalities | None], Modalities]
"""Gives the data's names of both modalities, for the modalities that a checkpoint names."""


def unknown_widths(modalities: Modalities | None) -> RowWidths:
    """The widths without data."""
    return None, None


def usual_names(modalities: Modalities | None) -> Modalities:
    """The names without data."""
    return TEXT_VIDEO


def check_modalities(modalities: Sequence[str], where: str) -> Modalities:
    """Return the names of two modalities; CimError, which gives `where`, for other values."""
    if len(modalities) != 2 or len(set(modalities)) != 2 or not all(modalities):
        raise ArgumentError(
            "{} is {}; expected two different names of arrays, such as text,audio",
            where,
            ",".join(modalities),
        )
    return modalities[0], modalities[1]


@dataclass(frozen=True)
class ModelCard:
    """The facts of a trained model that its bundle keeps beside the program.

    The head takes raw ed and vd. `a` and `b` are of the teacher's sigmoid and `samples` is its K
    per side, None if not known. With `unit_rows`, the model expects rows at unit norm. Rows have
    `text_width` and `video_width` numbers; `dimension` is the extent d of mu and s. `warnings` tell
    a reader of the figures how the model was trained. `modalities` are the names of the arrays that
    are its text and video, None for the usual names; `called` are the names of both in tables.
    `row_norms` are the median norms of the text and video rows that calibrated the model, None
    before calibration.
    """

    name: str
    layout: str
    head: Head
    a: float | None
    b: float | None
    samples: int | None
    unit_rows: bool
    text_width: int
    video_width: int
    dimension: int
    warnings: tuple[str, ...]
    modalities: Modalities | None = field(default=None, kw_only=True)
    called: Modalities = field(default=TEXT_VIDEO, kw_only=True)
    row_norms: tuple[float, float] | None = field(default=None, kw_only=True)

    @property
    def card(self) -> ModelCard:
        """The card without a subclass's fields."""
        return ModelCard(**{field.name: getattr(self, field.name) for field in fields(ModelCard)})

    def to_json(self) -> dict[str, Any]:
        """Plain values for the manifest."""
        values = {**vars(self.card), "head": self.head.to_json()}
        for name in ("modalities", "row_norms"):
            if values[name] is None:
                del values[name]
        if self.called == TEXT_VIDEO:
            del values["called"]
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ModelCard:
        """Read what `to_json` returned; TypeError or ValueError for anything else."""
        head = Head.from_json(table_of(values["head"], "model.head"), "head")
        lists = ("warnings", "modalities", "called", "row_norms")
        tuples = {k: list_of(values[k], f"model.{k}") for k in lists if k in values}
        for key in ("modalities", "called"):
            if key in tuples:
                check_modalities(tuples[key], f"model.{key}")
        card = made_of(ModelCard, {**values, "head": head, **tuples})
        if card.row_norms is not None and min(card.row_norms) <= 0:
            raise ValueError(f"model.row_norms are {card.row_norms}; expected numbers above 0")
        return card


@dataclass(frozen=True)
class Model(ModelCard):
    """A trained matcher: its card, and its program before any pass.

    `towers` are its projectors, from which `program` is assembled. The layout divides ed and vd by
    `divisors`. `files` are the paths read, with their SHA-256. `provenance` is None if the
    checkpoint does not record it.
    """

    program: Program
    towers: tuple[Graph, Graph]
    divisors: tuple[float, float] = (1.0, 1.0)
    files: tuple[tuple[str, str], ...] = ()
    provenance: Provenance | None = None


def build_model(
    checkpoint: Checkpoint,
    wanted: ScoreOptions,
    layer_map: LayerMap = NO_MAP,
    widths: ReadWidths = unknown_widths,
    names: ReadNames = usual_names,
) -> Model:
    """The model of a checkpoint's weights; `wanted` has the caller's choices for the score.

    `widths` is called if the layout takes rows of any number of tokens, `names` if an error needs
    the names. Raises CimError if no layout fits, the projectors differ in dimensions, or the score
    lacks something, or for a variance of the file that the layout does not read.
    """
    layout, weights, towers = _read(
        checkpoint, layer_map, widths, names, _takes_tokens(checkpoint, wanted)
    )
    has_variance = any(VARIANCE in tower.outputs for tower in towers)
    left = unread(layout, checkpoint.content, weights, has_variance)
    if not wanted.ignore_uncertainty:
        left.require_no_variance()
    divisors = layout.statistics(dimension(towers[0]))
    name = model_name(Path(checkpoint.file))
    head = named_head(checkpoint.file, checkpoint.content, wanted)
    if head is None and None in (wanted.a, wanted.b):
        layout.require_score(checkpoint.file, checkpoint.content)
    known = {**layout.score(checkpoint.content), **checkpoint.content}
    model = _model(name, towers, replace(checkpoint, content=known), wanted, divisors)
    return replace(
        model,
        layout=layout.name,
        unit_rows=layout.unit_rows,
        warnings=(
            *remarks(layout, checkpoint.content, weights),
            *left.remarks,
            *_left_variance(checkpoint.file, wanted.head, has_variance),
        ),
        provenance=provenance_of(checkpoint.content, checkpoint.file),
        modalities=modalities_of(checkpoint),
    )


def _takes_tokens(checkpoint: Checkpoint, wanted: ScoreOptions) -> bool:
    """True if the head that is named scores items of several tokens."""
    kind = named_head(checkpoint.file, checkpoint.content, wanted)
    return kind is not None and kind.takes_tokens


def _left_variance(file: str, wanted: str | None, has_variance: bool) -> tuple[str, ...]:
    """The warning if the caller's head leaves out the variance that projectors give."""
    if wanted is None or not has_variance or Head.named(wanted, "head").needs_variance:
        return ()
    return (f'{file}: head "{wanted}" leaves out the variance that the projectors give',)


def modalities_of(checkpoint: Checkpoint) -> Modalities | None:
    """The modalities that a checkpoint names, as `text,audio`; None if it names none."""
    said = checkpoint.content.get(MODALITIES_KEY)
    if said is None:
        return None
    return check_modalities(str(said).split(","), f"{checkpoint.file}: {MODALITIES_KEY}")


def model_name(file: Path) -> str:
    """The name for a checkpoint's bundles: the file's, or the folder's if a run wrote the file."""
    return file.parent.name or file.stem if file.stem in RUN_STEMS else file.stem


def model_of_towers(
    name: str, towers: tuple[Graph, Graph], places: tuple[str, str], wanted: ScoreOptions
) -> Model:
    """The model of two ONNX projectors, text first; `places` names them in messages.

    `wanted` has the caller's choices for the score. Raises CimError if the projectors differ in
    dimensions, or the score lacks something.
    """
    _require_one_space(towers, places)
    if wanted.head is not None and Head.named(wanted.head, Argument("head")).takes_tokens:
        raise ArgumentError(
            '{head} is "{}", which applies projectors to each token of a row; expected a '
            "checkpoint of them, or another head for {}",
            wanted.head,
            " and ".join(places),
        )
    return _model(name, towers, Checkpoint(", ".join(places), {}), wanted, (1.0, 1.0))


def _model(
    name: str,
    towers: tuple[Graph, Graph],
    source: Checkpoint,
    wanted: ScoreOptions,
    divisors: tuple[float, float],
) -> Model:
    head, known = read_score(source.file, source.content, wanted, towers, divisors)
    samples = None if known.polynomial is None else known.polynomial.K
    text, video = towers
    return Model(
        *(clean_name(name), ONNX_LAYOUT, head, known.a, known.b, samples),
        unit_rows=False,
        text_width=text.extent("x"),
        video_width=video.extent("x"),
        dimension=dimension(text),
        warnings=(),
        program=assemble(text, video, head),
        towers=towers,
        divisors=divisors,
    )


def read_towers(
    checkpoint: Checkpoint, layer_map: LayerMap = NO_MAP, widths: ReadWidths = unknown_widths
) -> tuple[type[Layout], tuple[Graph, Graph]]:
    """The layout of a checkpoint and both its projectors.

    Raises CimError if no layout fits or the projectors differ in dimensions.
    """
    layout, _, towers = _read(checkpoint, layer_map, widths)
    return layout, towers


def _read(
    checkpoint: Checkpoint,
    layer_map: LayerMap,
    widths: ReadWidths,
    names: ReadNames = usual_names,
    of_tokens: bool = False,
) -> tuple[type[Layout], tuple[Weights, Weights], tuple[Graph, Graph]]:
    try:
        text, video = find_weights(checkpoint, layer_map, lambda: names(modalities_of(checkpoint)))
    except UnknownLayers as error:
        raise _other_ways(error, checkpoint, None, widths, names) from None
    try:
        layout = recognise(text, video)
        if of_tokens or layout.reads_tokens or layout.depends_on_width:
            of_text, of_video = widths(modalities_of(checkpoint))
            text, video = replace(text, row_width=of_text), replace(video, row_width=of_video)
        read = partial(of_each_token, layout) if of_tokens else layout.tower
        towers = read(text), read(video)
    except CimError as error:
        for weights in (text, video):
            require_weights(weights.keys, weights.file)
        if isinstance(error, UnknownLayers):
            raise _other_ways(error, checkpoint, (text, video), widths, names) from None
        raise
    _require_one_space(towers, (f"{text.file}: {text.prefix}", video.prefix))
    return layout, (text, video), towers


def _other_ways(
    error: UnknownLayers,
    checkpoint: Checkpoint,
    pair: tuple[Weights, Weights] | None,
    widths: ReadWidths,
    names: ReadNames,
) -> ArgumentError:
    """The error with the ways in that take any architecture first: ONNX files, and torch modules.

    `pair` are the weights of both projectors, None if they were not found.
    """
    modalities = modalities_of(checkpoint)
    called, width = names(modalities), None
    with suppress(CimError):  # the data may be broken too
        width, _ = widths(modalities)
    modules = [f"{name}_projector" for name in called]
    places = [] if pair is None else [weights.prefix for weights in pair]
    if places and all(part.isidentifier() for place in places for part in place.split(".")):
        modules = [f"model.{place}" for place in places]
    outputs = ""
    if pair is None or any(VARIANCE_NAMES.search(layer) for layer in pair[0].layers):
        outputs = ', output_names=["mu", "logvar"]'
    (text, video), (first, second) = modules, called
    ways = EXPORT.format(text, width or "WIDTH", first, outputs, video)
    ways += COMPILE.format(first, second, text, video)
    return ArgumentError("{}; {}; or {}", error.found, ways, error.by_map)


def _require_one_space(towers: tuple[Graph, Graph], places: tuple[str, str]) -> None:
    """Raise CimError if two projectors, named by `places`, differ in dimensions."""
    d_text, d_video = map(dimension, towers)
    if d_text != d_video:
        raise CimError(
            f"{places[0]} gives {d_text} dimensions and {places[1]} {d_video}; expected the same "
            "for both"
        )
