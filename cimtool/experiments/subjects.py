"""Subjects of an evaluation: raw embeddings, trained projectors in float, compiled bundles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.modality_names import Modalities, name_of
from cimtool.base.progress import Say
from cimtool.bundle.matcher import check_gallery, open_bundle
from cimtool.experiments.options import EvaluateOptions
from cimtool.ir.heads import Head, TowerBuilder, assemble
from cimtool.ir.heads.base import raw_heads
from cimtool.ir.program import Program
from cimtool.ir.source import L2Normalize
from cimtool.loading.calibration_rows import SeenRows, require_unseen
from cimtool.loading.embeddings import (
    Embeddings,
    embeddings_in,
    read_data,
    require_rivals,
    require_vectors,
)
from cimtool.loading.model import check_modalities
from cimtool.loading.provenance import trained_on
from cimtool.loading.source import ModelSource, Reader
from cimtool.verification.drift import without_cosine

if TYPE_CHECKING:
    from cimtool.loading.source import Projectors

ALLOW = ArgumentError("or {calibration_rows} allow")
"""The argument that allows evaluation on calibration rows, as a clause."""

RAW = "embeddings"
"""The name of embeddings without projectors."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A program and its input rows; `trained` is the program before any pass.

    `kind` is embeddings, float, Monte Carlo or compiled. `warnings` are for readers of its metrics.
    `samples` is the number per side that scores its means and variances, if any. `sigmoid` has the
    a and b of its logits, if they are known; then its trained model has an exact score.
    """

    name: str
    kind: str
    head: Head
    trained: Program
    program: Program
    data: Embeddings
    warnings: tuple[str, ...] = ()
    sigmoid: tuple[float, float] | None = None
    samples: int | None = None


def sources_of(
    what: Sequence[Projectors | ModelSource], options: Mapping[str, Any], heads: Sequence[str] = ()
) -> tuple[ModelSource | Path, ...]:
    """The sources of trained projectors, with the `options` of a ModelSource, and bundles' folders.

    With `heads` there is a source for each of them. A ModelSource in `what` keeps its own options.
    Raises CimError for an option that no subject uses, and for `heads` beside a head; raw
    embeddings (an empty `what`) use the head.
    """
    if heads and options.get("head") is not None:
        raise ArgumentError(
            "{heads} and {head} are both given; expected one of them, the heads in one list"
        )
    sources = tuple(one for each in what for one in _sources(each, options, heads))
    if not any(isinstance(source, ModelSource) for source in sources):
        given = ["heads"] if heads else []
        given += [n for n, value in options.items() if value is not None and value is not False]
        if unused := [name for name in given if what or name != "head"]:
            has = "a bundle has its score" if what else "raw embeddings have none"
            raise ArgumentError(
                "{} sets the score of trained projectors, but {}; expected it with a checkpoint",
                Argument(unused[0]),
                has,
            )
    return sources


def _sources(
    what: Projectors | ModelSource, options: Mapping[str, Any], heads: Sequence[str]
) -> tuple[ModelSource | Path, ...]:
    if isinstance(what, ModelSource):
        return (what,)
    if isinstance(what, Path | str) and Path(what).is_dir():
        return (Path(what),)
    source = ModelSource(what, **options)
    return tuple(replace(source, head=head) for head in heads) or (source,)


def subjects_of(
    asked: EvaluateOptions, sources: Sequence[ModelSource | Path], say: Say
) -> tuple[Subject, ...]:
    """Open all subjects, each on its rows of the data, with raw embeddings last.

    Raw embeddings are added for each pair of modalities of the subjects, under the first raw head.
    If widths differ or a row has no cosine, they are left out with a warning. Raises CimError, one
    sentence, if anything is missing or does not fit.
    """
    modalities, samples = asked.modalities, asked.samples

    @cache
    def rows(pair: Modalities | None) -> Embeddings:
        return embeddings_in(asked.data, pair)

    if sources and modalities is not None:
        raise ArgumentError(
            "{modalities} names raw embeddings to compare, but a model knows its own; expected it "
            "without a checkpoint or bundle"
        )
    found: list[Subject] = []
    for source in sources:
        if isinstance(source, Path):
            found.append(bundle_subject(source, rows, asked.calibration_rows))
        else:
            found += trained_subjects(source, rows, samples, say)
    if samples and not any(subject.samples for subject in found):
        raise ArgumentError(
            "{samples} is {}, but no subject has a score that sampling can estimate; expected "
            "trained projectors with variances whose a and b are known",
            ",".join(map(str, samples)),
        )
    if not sources:
        pairs: list[Modalities | None] = [None]
        if modalities is not None:
            if len(modalities) < 2:
                check_modalities(modalities, Argument("modalities"))  # raises
            of = combinations(modalities, 2)
            pairs = [check_modalities(one, Argument("modalities")) for one in of]
        return tuple(raw_subject(rows(one), asked.head or raw_heads()[0]) for one in pairs)
    for one in dict.fromkeys(subject.data.modalities for subject in found):
        said = without_cosine(rows(one))
        if not said:
            try:
                found.append(raw_subject(rows(one), raw_heads()[0]))
            except CimError as error:  # a row without a cosine
                said = f"raw embeddings are not compared: {error}"
        if said:
            found[0] = replace(found[0], warnings=(*found[0].warnings, said))
    return tuple(found)


def raw_subject(data: Embeddings, head: str) -> Subject:
    """Raw embeddings under a head that needs no projectors."""
    kind = Head.named(head, Argument("head"))
    if not kind.scores_raw:
        raise ArgumentError(
            '{head} is "{}", which scores outputs of projectors; expected {} for raw embeddings',
            head,
            " or ".join(raw_heads()),
        )
    require_rivals(data)
    require_vectors(data)
    text, video = data.text.shape[1], data.video.shape[1]
    if text != video:
        one, other = data.called
        raise CimError(
            f"{data.file}: {one} rows have {text} numbers and {other} rows {video}, so raw "
            "embeddings cannot be compared; expected equal widths, or a checkpoint or bundle to "
            "project them"
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
                name_of(graph.name, data.called),
                kind.name,
                " or ".join(name for name in raw_heads() if name != kind.name),
            )
    return Subject(RAW, "embeddings", made, program, program, data)


def trained_subjects(
    source: ModelSource, read: Reader, samples: Sequence[int], say: Say
) -> tuple[Subject, ...]:
    """Trained projectors in float, and by Monte Carlo if a and b of their score are known."""
    model = source.for_read(read).load(say)
    rows = read_data(read(model.modalities), model)
    require_rivals(rows)
    seen = trained_on(model.provenance, model.name, rows.text, rows.video, rows.called)
    warnings = (*seen, *model.warnings)
    plain = Subject(
        model.name, "float", model.head, model.program, model.program, rows, warnings,
        _sigmoid(model.head, model.a, model.b),
    )  # fmt: skip
    if plain.sigmoid is None:
        return (plain,)
    return plain, *(
        replace(
            plain, name=f"{plain.name}, K={count}", kind="Monte Carlo", warnings=(), samples=count
        )
        for count in samples
    )


def _sigmoid(head: Head, a: float | None, b: float | None) -> tuple[float, float] | None:
    """The a and b of a score that samples estimate, if both are known."""
    return None if not head.is_sampled or a is None or b is None else (a, b)


def bundle_subject(folder: Path, read: Reader, seen_rows: SeenRows) -> Subject:
    """A compiled bundle on the bit-accurate simulator; rows that calibrated it only if allowed."""
    bundle = open_bundle(folder)
    card = bundle.model
    rows = read_data(read(card.modalities), card)
    require_rivals(rows)
    if seen_rows == "refuse":
        require_unseen(bundle.calibration, rows, bundle.name, ALLOW)
    check_gallery(bundle, rows)
    trained = bundle.stages[0].program
    seen = trained_on(bundle.training, bundle.name, rows.text, rows.video, rows.called)
    warnings = (*seen, *card.warnings)
    sigmoid = _sigmoid(card.head, card.a, card.b)
    return Subject(
        bundle.name, "compiled", card.head, trained, bundle.program, rows, warnings, sigmoid
    )
