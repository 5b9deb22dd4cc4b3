"""What is evaluated: embeddings as they are, trained projectors in float, compiled bundles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cimtool.base.errors import Argument, ArgumentError, CimError
from cimtool.base.progress import Say
from cimtool.bundle.matcher import open_bundle
from cimtool.deployment.compilation import trained_model
from cimtool.ir.heads import Head, assemble
from cimtool.ir.program import Builder, Program
from cimtool.loading.calibration_rows import require_unseen
from cimtool.loading.data import Data, embeddings_in, read_data
from cimtool.loading.embeddings import Embeddings, require_rivals
from cimtool.verification.run import check_gallery

if TYPE_CHECKING:
    from cimtool.deployment.compilation import Projectors

RAW = "embeddings"
"""The name of embeddings that nothing projects."""

RAW_HEADS = ("cosine", "euclidean")


@dataclass(frozen=True, eq=False)
class Subject:
    """A program to be scored on rows as it takes them; `trained` is the same before any pass.

    `kind` says what it is: embeddings, float, compiled. `warnings` are what a reader of its
    figures should know.
    """

    name: str
    kind: str
    head: Head
    trained: Program
    program: Program
    data: Embeddings
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """What is said of the scores of trained projectors, and of raw embeddings (`head` alone)."""

    head: str | None = None
    poly: Path | None = None
    a: float | None = None
    b: float | None = None
    layer_map: Path | None = None
    seen_rows: bool = False


@dataclass(frozen=True)
class Untouched:
    """The tower of embeddings that nothing projects: `mu` is the row."""

    width: int

    def build(self, builder: Builder, x: str) -> tuple[str, None]:
        """Add nothing; there is no variance."""
        return x, None


def subjects_of(
    data: Data, whats: tuple[Projectors, ...], options: Options, say: Say
) -> tuple[Subject, ...]:
    """Open what is evaluated, the raw embeddings where it is nothing; each on its own rows of data.

    A folder is a bundle. Raises CimError, one sentence, for whatever is missing or does not fit.
    """
    _refuse_unused(whats, options)
    if not whats:
        return (raw_subject(embeddings_in(data), options.head or RAW_HEADS[0]),)
    return tuple(
        bundle_subject(what, data, options.seen_rows)
        if isinstance(what, Path | str) and Path(what).is_dir()
        else trained_subject(what, data, options, say)
        for what in whats
    )


def _refuse_unused(whats: tuple[Projectors, ...], options: Options) -> None:
    """Raise CimError for an option that nothing evaluated has a use for."""
    names = ("head", "poly", "a", "b", "layer_map")
    given = [name for name in names if getattr(options, name) is not None]
    if not whats:
        given = [name for name in given if name != "head"]
    elif not all(isinstance(what, Path | str) and Path(what).is_dir() for what in whats):
        return
    if given:
        has = "a bundle has its score" if whats else "raw embeddings have none"
        raise ArgumentError(
            "{} says the score of trained projectors, and {}; expected it with a checkpoint",
            Argument(given[0]),
            has,
        )


def raw_subject(data: Embeddings, head: str) -> Subject:
    """Embeddings as they are, by their cosine or euclidean distance."""
    kind = Head.named(head, Argument("head"))
    if kind.name not in RAW_HEADS:
        raise ArgumentError(
            '{head} is "{}", which scores what projectors give; expected {} for raw embeddings',
            head,
            " or ".join(RAW_HEADS),
        )
    require_rivals(data)
    text, video = data.text.shape[1], data.video.shape[1]
    if text != video:
        raise CimError(
            f"{data.file}: text rows have {text} numbers and video rows {video}, so raw embeddings "
            "cannot be compared; expected equal widths, or a checkpoint or bundle to project them"
        )
    for key, rows in (("text", data.text), ("video", data.video)):
        zeros = ~rows.any(axis=1)
        if kind.name == "cosine" and zeros.any():
            raise ArgumentError(
                "{}: row {} of {} is all zeros, which has no cosine; expected another row, or "
                "{head} euclidean",
                data.file,
                int(zeros.argmax()),
                key,
            )
    made = kind()
    program = assemble(Untouched(text), Untouched(video), made)
    return Subject(RAW, "embeddings", made, program, program, data)


def trained_subject(what: Projectors, data: Data, options: Options, say: Say) -> Subject:
    """Trained projectors in float."""
    model = trained_model(
        what, options.poly, options.a, options.b, options.layer_map, say, options.head
    )
    rows = read_data(data, model)
    require_rivals(rows)
    return Subject(
        model.name, "float", model.head, model.program, model.program, rows, model.warnings
    )


def bundle_subject(folder: Path | str, data: Data, seen_rows: bool) -> Subject:
    """A compiled bundle on the bit-accurate simulator; no row calibrated it unless `seen_rows`."""
    bundle = open_bundle(folder)
    card = bundle.model
    rows = read_data(data, card)
    require_rivals(rows)
    if not seen_rows:
        require_unseen(bundle.calibration, rows, bundle.name)
    check_gallery(bundle, rows)
    trained = bundle.stages[0].program
    return Subject(bundle.name, "compiled", card.head, trained, bundle.program, rows, card.warnings)
