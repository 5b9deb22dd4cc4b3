"""Subjects of an evaluation: raw embeddings, trained projectors in float, compiled bundles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.progress import Say
from cimtool.bundle.matcher import check_gallery, open_bundle
from cimtool.ir.heads import Head, TowerBuilder, assemble
from cimtool.ir.heads.base import raw_heads
from cimtool.ir.program import Program
from cimtool.ir.source import L2Normalize
from cimtool.loading.calibration_rows import require_unseen
from cimtool.loading.embeddings import (
    Embeddings,
    EmbeddingsLike,
    embeddings_in,
    read_data,
    require_rivals,
)
from cimtool.loading.provenance import trained_on
from cimtool.loading.source import ModelSource

if TYPE_CHECKING:
    from cimtool.loading.source import Projectors

RAW = "embeddings"
"""The name of embeddings that nothing projects."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A program to be scored on rows as it takes them; `trained` is the same before any pass.

    `kind` says what it is: embeddings, float, compiled. `warnings` are what a reader of its
    metrics should know.
    """

    name: str
    kind: str
    head: Head
    trained: Program
    program: Program
    data: Embeddings
    warnings: tuple[str, ...] = ()


def sources_of(
    what: Sequence[Projectors], options: Mapping[str, Any]
) -> tuple[ModelSource | Path, ...]:
    """The sources of trained projectors, with the `options` of a ModelSource, and bundles' folders.

    Raises CimError for an option that none of them has a use for; without any the head has one.
    """
    sources = tuple(_source(one, options) for one in what)
    if not any(isinstance(source, ModelSource) for source in sources):
        given = [name for name, value in options.items() if value is not None]
        if unused := [name for name in given if what or name != "head"]:
            has = "a bundle has its score" if what else "raw embeddings have none"
            raise ArgumentError(
                "{} says the score of trained projectors, and {}; expected it with a checkpoint",
                Argument(unused[0]),
                has,
            )
    return sources


def _source(what: Projectors, options: Mapping[str, Any]) -> ModelSource | Path:
    if isinstance(what, Path | str) and Path(what).is_dir():
        return Path(what)
    return ModelSource(what, **options)


def subjects_of(
    data: EmbeddingsLike,
    sources: Sequence[ModelSource | Path],
    head: str | None,
    seen_rows: bool,
    say: Say,
) -> tuple[Subject, ...]:
    """Open what is evaluated, each on its own rows of data, and last the raw embeddings.

    Alone these are compared by `head`, by the first that can where it is None; beside others by
    that one, and left out where they cannot be compared. Raises CimError, one sentence, for
    whatever is missing or does not fit.
    """
    rows = embeddings_in(data)
    if not sources:
        return (raw_subject(rows, head or raw_heads()[0]),)
    found = [
        bundle_subject(source, rows, seen_rows)
        if isinstance(source, Path)
        else trained_subject(source, rows, say)
        for source in sources
    ]
    with suppress(CimError):  # of unequal widths, or with a row that has no cosine
        found.append(raw_subject(rows, raw_heads()[0]))
    return tuple(found)


def raw_subject(data: Embeddings, head: str) -> Subject:
    """Embeddings as they are, by a head that needs no projectors."""
    kind = Head.named(head, Argument("head"))
    if not kind.scores_raw:
        raise ArgumentError(
            '{head} is "{}", which scores what projectors give; expected {} for raw embeddings',
            head,
            " or ".join(raw_heads()),
        )
    require_rivals(data)
    text, video = data.text.shape[1], data.video.shape[1]
    if text != video:
        raise CimError(
            f"{data.file}: text rows have {text} numbers and video rows {video}, so raw embeddings "
            "cannot be compared; expected equal widths, or a checkpoint or bundle to project them"
        )
    made = kind()
    program = assemble(TowerBuilder(text).tower("x"), TowerBuilder(video).tower("x"), made)
    for graph, rows in ((program.text, data.text), (program.video, data.video)):
        zeros = ~rows.any(axis=1)
        if graph.operations(L2Normalize) and zeros.any():
            raise ArgumentError(
                "{}: row {} of {} is all zeros, which has no {}; expected another row, or "
                "{head} {}",
                data.file,
                int(zeros.argmax()),
                graph.name,
                kind.name,
                " or ".join(name for name in raw_heads() if name != kind.name),
            )
    return Subject(RAW, "embeddings", made, program, program, data)


def trained_subject(source: ModelSource, data: EmbeddingsLike, say: Say) -> Subject:
    """Trained projectors in float."""
    model = source.load(say)
    rows = read_data(data, model)
    require_rivals(rows)
    warnings = (*trained_on(model.provenance, model.name, rows.text, rows.video), *model.warnings)
    return Subject(model.name, "float", model.head, model.program, model.program, rows, warnings)


def bundle_subject(folder: Path, data: EmbeddingsLike, seen_rows: bool) -> Subject:
    """A compiled bundle on the bit-accurate simulator; no row calibrated it unless `seen_rows`."""
    bundle = open_bundle(folder)
    card = bundle.model
    rows = read_data(data, card)
    require_rivals(rows)
    if not seen_rows:
        require_unseen(bundle.calibration, rows, bundle.name)
    check_gallery(bundle, rows)
    trained = bundle.stages[0].program
    warnings = (*trained_on(bundle.training, bundle.name, rows.text, rows.video), *card.warnings)
    return Subject(bundle.name, "compiled", card.head, trained, bundle.program, rows, warnings)
