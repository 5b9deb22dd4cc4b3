"""Scores that a sweep compares: one trained model under each head and polynomial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cimtool.base.errors import ArgumentError
from cimtool.base.files import sha256
from cimtool.base.grids import GridKey
from cimtool.base.progress import Say
from cimtool.experiments.points import DEGREE, HEAD, SAMPLES, Point, ScoreChoice
from cimtool.experiments.references import reference_name
from cimtool.ir.heads import Head, assemble
from cimtool.ir.heads.csd import Csd
from cimtool.ir.surrogate import Polynomial
from cimtool.loading.embeddings import File
from cimtool.loading.model import Model
from cimtool.loading.polynomial import read_polynomial
from cimtool.loading.score import DEFAULT_HEAD
from cimtool.loading.source import ModelSource
from cimtool.training.arguments import FormOptions
from cimtool.training.fit import fit_teacher
from cimtool.training.polynomial import polynomial_text
from cimtool.training.teacher_file import Teacher, read_teacher

FITTED = "degree-{}.json"
"""The file of a fitted polynomial in the folder of a sweep."""


@dataclass(frozen=True)
class ScoredModels:
    """A trained model under each score of a sweep, by its choice, with the sources.

    All share the same weights. `first` has the exact score that all are measured against.
    `projectors` is `first` under head csd, independent of the grid; samples use it. If there is no
    exact score, both are the only model. `sources` are for scores that are compiled, `polynomials`
    are the texts of fitted ones, `files` are the paths read, with their SHA-256.
    """

    models: Mapping[ScoreChoice, Model]
    sources: Mapping[ScoreChoice, ModelSource]
    first: Model
    projectors: Model
    polynomials: Mapping[ScoreChoice, str]
    files: tuple[tuple[str, str], ...]

    @property
    def heads(self) -> dict[str, Head]:
        """The head of each compiled score, by the score's name in tables."""
        return {name: model.head for name, model in self.compiled.items()}

    @property
    def compiled(self) -> dict[str, Model]:
        """The model of each compiled score, by the score's name in tables."""
        return {score_name(one, self.models[one]): self.models[one] for one in self.sources}

    @property
    def reference(self) -> str:
        """The name of the reference, and its measure (logits or probabilities)."""
        return f"{reference_name(self.first, len(self.models))}, {self.first.head.measure}"

    def identity(self, choice: ScoreChoice) -> dict[str, Any]:
        """Plain values that identify the score of a choice."""
        if choice.samples is not None:
            return {SAMPLES: choice.samples}
        return self.models[choice].head.to_json()

    def source(self, choice: ScoreChoice, folder: Path) -> ModelSource:
        """The source of a score, with a fitted polynomial read from `folder`."""
        own = self.sources[choice]
        if choice.form is None:
            return own
        return replace(own, poly=folder / FITTED.format(choice.form.key))

    @property
    def fitted_files(self) -> dict[str, str]:
        """The texts of fitted polynomials by the names of their files."""
        return {
            FITTED.format(one.form.key): text for one, text in self.polynomials.items() if one.form
        }


def fitted_in(folder: Path) -> list[Path]:
    """The files of fitted polynomials in a folder of a sweep."""
    return sorted(folder.glob(FITTED.format("*")))


def score_name(choice: ScoreChoice, model: Model) -> str:
    """The name of a float score in tables: `csd`, or `polynomial, degree 2` if fitted."""
    fitted = "" if choice.form is None else f", {choice.form.name}"
    return f"{model.head.surrogate}{fitted}"


def check_scores(
    keys: Sequence[GridKey], head: str | None, poly: object, teacher: File | None
) -> None:
    """Raise CimError for keys of the score that contradict other arguments."""
    grid = {key.path[0]: key.values for key in keys if len(key.path) == 1}
    if HEAD in grid and head is not None:
        raise ArgumentError("{head} is given twice; expected either {head} or {grid} head=NAME")
    if (DEGREE in grid) != (teacher is not None):
        raise ArgumentError(
            "{teacher} has the labels that polynomials of {grid} degree are fitted to; expected "
            "both or neither"
        )
    if DEGREE not in grid:
        return
    if poly is not None:
        raise ArgumentError(
            "{poly} is given, and {grid} degree fits other polynomials; expected one of them"
        )
    heads = [str(name) for name in grid.get(HEAD, (head or DEFAULT_HEAD,))]
    if not any(Head.named(name, HEAD).takes_polynomial for name in heads):
        raise ArgumentError(
            "{grid} degree: head {} has no polynomial; expected {}", ", ".join(heads), DEFAULT_HEAD
        )


def scored_models(
    source: ModelSource, made: Sequence[Point], teacher: File | None, say: Say
) -> ScoredModels:
    """Read the model under each score of the points `made`; fit polynomials to the `teacher`.

    Raises CimError if several scores, or samples, have no exact score to be measured against, and
    if reading or fitting fails.
    """
    choices = dict.fromkeys(point.score for point in made)
    labels = None if teacher is None else read_teacher(Path(teacher))
    forms = dict.fromkeys(one.form for one in choices if one.form is not None)
    fits = {
        form: fit_teacher(labels, FormOptions(degree=form.degree, ed_alone=form.ed_alone), say=say)
        for form in forms
        if labels is not None
    }
    models, sources, texts = dict[ScoreChoice, Model](), dict[ScoreChoice, ModelSource](), {}
    for choice in choices:
        if choice.samples is not None:
            continue
        sources[choice] = own = _of_head(source, choice.head, labels)
        if choice.form is None:
            model = own.load(say)
        else:
            fit = fits[choice.form]
            texts[choice] = polynomial_text(fit.polynomial, fit.teacher.model)
            model = own.load(say, fit.polynomial)
        towers = next(iter(models.values()), model).towers
        models[choice] = replace(model, towers=towers, program=assemble(*towers, model.head))
    first = projectors = _first(models, len(choices))
    if first.a is not None and first.b is not None and first.head.is_sampled:
        closed = Csd(first.a, first.b)
        projectors = replace(first, head=closed, program=assemble(*first.towers, closed))
    files = {file: None for model in models.values() for file in model.files}
    if teacher is not None:
        files[str(teacher), sha256(Path(teacher))] = None
    models |= {choice: projectors for choice in choices if choice.samples is not None}
    return ScoredModels(models, sources, first, projectors, texts, tuple(files))


def _first(models: Mapping[ScoreChoice, Model], scores: int) -> Model:
    """The first model with an exact score; CimError if several `scores` cannot share one."""
    known = [m for m in models.values() if m.head.is_sampled and None not in (m.a, m.b)]
    if scores > 1 and not known:
        raise ArgumentError(
            "{grid}: several scores, or samples, are measured against the trained model's exact "
            "score, which needs the teacher's a and b; expected {a} and {b}, and projectors with a "
            "variance"
        )
    if len({model.head.measure for model in known}) > 1:
        raise ArgumentError(
            "{grid} head: a polynomial of probabilities is measured against probabilities, other "
            "scores against logits; expected a polynomial that was fitted to logits"
        )
    return next(iter([*known, *models.values()]))


def _of_head(source: ModelSource, head: str | None, labels: Teacher | None) -> ModelSource:
    """The source of a head of the grid, with only the options that this head takes."""
    if head is None:
        return source
    kind, own = Head.named(head, HEAD), replace(source, head=head)
    if kind.takes_polynomial:
        return own
    if not kind.is_sampled:
        return replace(own, poly=None, a=None, b=None)
    known: Teacher | Polynomial | None = labels
    if known is None and source.poly is not None:
        given = source.poly
        known = given if isinstance(given, Polynomial) else read_polynomial(Path(given))
    a = source.a if source.a is not None or known is None else known.a
    b = source.b if source.b is not None or known is None else known.b
    return replace(own, poly=None, a=a, b=b)
