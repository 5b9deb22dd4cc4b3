"""Projectors in training: towers and an objective, ranked by the score that is deployed."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cimtool.base.arrays import FloatArray
from cimtool.base.errors import ArgumentError, CimError, naming
from cimtool.base.intervals import Interval
from cimtool.base.modality_names import Modalities, item_names
from cimtool.base.progress import Say
from cimtool.ir.heads import Head
from cimtool.ir.surrogate import FittedRange
from cimtool.loading.model import MODALITIES_KEY
from cimtool.loading.provenance import KEY as PROVENANCE
from cimtool.loading.score import raw
from cimtool.training.arguments import TrainOptions
from cimtool.training.history import (
    Means,
    RetrievalEpoch,
    below_linear,
    below_raw,
    last_is_best,
    linear_is_best,
    raw_recalls,
    recall_interval,
    recalls_of,
    sample,
    shares_text,
    start_is_best,
    suspicion,
)
from cimtool.training.job import TrainingJob, few, make_job
from cimtool.training.linear_fit import FOLDS, fit_linear
from cimtool.training.linear_start import LinearFit
from cimtool.training.loss import HELD_OUTSIDE, Batch, Objective, Task, Terms
from cimtool.training.model import LINEAR_DIMENSIONS, ProjectorModel
from cimtool.training.page import retrieval_page
from cimtool.training.pairs import Pairs, draw_batches, full_batches
from cimtool.training.polynomial import checkpoint_values, fitted_range
from cimtool.training.towers import (
    Encoded,
    TwoTower,
    all_cosines,
    all_pairs_ed,
    all_pairs_vd,
    cosine_gap,
)
from cimtool.training.trainer import (
    CALIBRATION,
    TEST,
    Diverged,
    Run,
    RunPlace,
    Trainable,
    Trainer,
    alone_to_train,
    check_new,
    config,
    read_saved,
    seeded,
)

OUTSIDE = 0.01
"""Share of held-out pairs beyond the polynomial's band above which another is to be fitted."""

BAND_TEXTS = 1024
"""Texts that a band is measured on, at most."""


@dataclass(frozen=True, repr=False)
class ProjectorRun(Run[RetrievalEpoch]):
    """A run that has trained projectors.

    `lacks_polynomial` says that the model's score is a polynomial, and that it has none yet;
    `outgrew_polynomial` that too many held-out pairs of the best epoch are beyond its band, and it
    was not fitted to this very model; `lacks_sigmoid` that the score stands for one whose a and b
    neither loss nor polynomial says. `raw` are the figures of the held-out rows by their cosine,
    None if widths differ; `called` are the names of both modalities. `solved` is the interval of
    the held-out R@1, mean of both ways, of a model in closed form without epochs: no epoch was
    chosen by these pairs. `warnings` say where a figure means less than it seems, `remarks` are on
    the course, the data, that polynomial, and the model's own on its last epoch.
    """

    lacks_polynomial: bool
    outgrew_polynomial: bool
    lacks_sigmoid: bool
    raw: Mapping[str, float] | None
    called: Modalities
    solved: Interval | None
    warnings: tuple[str, ...]
    remarks: tuple[str, ...]


def train_projectors(options: TrainOptions, say: Say) -> ProjectorRun:
    """Train projectors into a folder, and say what is remarkable about the run."""
    place = RunPlace.of(Path(options.output))
    job = make_job(options.data, options.validation, options, options.qrels)
    with alone_to_train(place), seeded(job.seed, job.device):
        saved = None
        if options.resume:
            saved = read_saved(place, job.settings, job.files, RetrievalEpoch)
        else:
            check_new(place, resumable=True)
        training = ProjectorTraining(job)
        if training.raw is not None:
            say(f"raw embeddings: held out {shares_text(training.raw)} (mean of both ways)")
        known = training.start_recalls()
        run = Trainer(training, job.optimisation, place, say, job.device).run(saved)
    from_linear = job.start is None and job.model.start_dimensions > 0
    warnings = [below_raw(run.history, training.raw, job.model)]
    warnings.append(below_linear(run.history, _linear_recalls(job), job.model))
    if from_linear:
        warnings.append(linear_is_best(run.history, job.model))
    if job.start is not None and known is not None:
        own = run.history[0].recalls
        warnings.append(suspicion(job.start.file, own, known, len(job.held.video)))
    origin = "random weights" if job.start is None else job.start.file
    course = None if from_linear else start_is_best(run.history, origin), last_is_best(run.history)
    remarks = [*job.remarks, *filter(None, course)]
    share = run.best.watched.get(HELD_OUTSIDE, 0.0)
    outgrown = share > OUTSIDE and (job.start is None or run.best.number > 0)
    if share > OUTSIDE:
        cause = "the model has outgrown it; fit another before you compile"
        if not outgrown:
            cause = "it is too narrow for pairs of unseen rows"
        remarks.append(
            f"{share:.1%} of all held-out pairs lie beyond the band that the polynomial was fitted "
            f"on: {cause}"
        )
    solved = training.solved_interval(run.history)
    remarks += job.model.remarks(training.towers.cpu().eval(), job.held)
    stated = training.deployed(run.best)
    head = Head.named(stated["head"], "head")
    if job.polynomial is not None:
        stated |= checkpoint_values(job.polynomial)
    return ProjectorRun(
        **vars(run),
        lacks_polynomial=head.takes_polynomial and job.polynomial is None,
        outgrew_polynomial=outgrown,
        lacks_sigmoid=head.is_sampled and not {"a", "b"} <= stated.keys(),
        raw=training.raw,
        called=job.called,
        solved=solved,
        warnings=tuple(filter(None, warnings)),
        remarks=tuple(remarks),
    )


class ProjectorTraining(Trainable[Batch, RetrievalEpoch]):
    """The towers and the objective of a job on its device, drawn from torch's generators."""

    def __init__(self, job: TrainingJob) -> None:
        self.job = job
        self.settings = job.settings
        self.solved: Mapping[str, float] = {}
        with naming(job.files["data"]):
            self.towers = _built(job.model, job.pairs.text.shape[1], job.pairs.video.shape[1])
        if job.start is not None:
            job.start.load(self.towers, job.model.name)
        elif job.model.start_dimensions:
            fit = _linear_fit(job, job.model.start_dimensions)
            job.model.begin(self.towers, fit, job.pairs)
            if not job.model.starts_from_rows:
                self.solved = fit.sigmoid(_variance(self.towers, job.pairs))
        else:
            job.model.prepare(self.towers, job.pairs)
        task = _task(job, self.towers)
        with naming(job.files["data"]):
            self.objective: Objective = job.loss.objective(task)
        for module in self.modules.values():
            module.to(job.device)

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Towers and objective."""
        return {"towers": self.towers, "objective": self.objective}

    @cached_property
    def files(self) -> Mapping[str, bytes]:
        """The rows that were set aside, if some were, and those of a calibration."""
        found = {}
        for name, rows in ((TEST, self.job.test), (CALIBRATION, self.job.calibration)):
            if rows is not None:
                buffer = io.BytesIO()
                arrays: dict[str, Any] = {**rows.arrays()}
                np.savez(buffer, **arrays)
                found[name] = buffer.getvalue()
        return found

    def parameters(self) -> Iterator[Tensor]:
        """Those of the towers, and what the objective has of its own."""
        for module in self.modules.values():
            yield from module.parameters()

    def batches(self) -> Iterator[Batch]:
        """Draw batches of pairs from torch's generator."""
        self.towers.train()
        self.objective.train()
        job, size = self.job, self.job.optimisation.batch
        if job.by_comparison and job.pairs.compared is not None:
            comparisons = full_batches(torch.randperm(len(job.pairs.compared)), size)
            drawn = map(job.pairs.compared_batch, comparisons)
        else:
            drawn = map(job.pairs.batch, draw_batches(job.pairs, size, job.loss.group))
        return (batch.to(job.device) for batch in drawn)

    def terms(self, batch: Batch) -> Terms:
        """The objective's."""
        terms: Terms = self.objective(*self.towers(batch.text, batch.video), batch)
        return terms

    def resting(self) -> Iterable[Tensor]:
        """The objective's."""
        return self.objective.resting(self.towers)

    @cached_property
    def raw(self) -> dict[str, float] | None:
        """The figures of the held-out rows by their cosine; None if widths differ."""
        return raw_recalls(self.job.held, self.job.loss.needs_labels)

    @property
    def facts(self) -> Mapping[str, Any]:
        """The raw rows' figures."""
        return {"raw": self.raw}

    def start_recalls(self) -> dict[str, float] | None:
        """The start's figures on as many pairs that train as are held out, before any training.

        None if there is no start, all that it was trained on is known, or pairs and triplets are
        the data, of which such a sample joins few.
        """
        job = self.job
        known = None if job.start is None else job.start.provenance
        if job.start is None or (known is not None and known.complete):
            return None
        if job.pairs.judged is not None:
            return None
        pairs = sample(job.pairs, len(job.held.video), job.seed)
        scores = self._measured(*self.towers.encode(pairs.text, pairs.video))[0]
        if not np.isfinite(scores).all():
            return None
        return recalls_of(scores, pairs, job.loss.needs_labels)

    def _measured(self, text: Encoded, video: Encoded) -> tuple[FloatArray, dict[str, float]]:
        """The deployed scores [n, m] of encoded rows, and what the objective watches of them."""
        self.objective.eval()
        with torch.no_grad():
            sides = text.double(), video.double()
            scores = self.objective.scores(*sides).cpu().numpy()
            return scores, {name: x.item() for name, x in self.objective.watched(*sides).items()}

    def validated(self, number: int, means: Means) -> RetrievalEpoch:
        """Rank all held-out pairs by the score that is deployed, in float64 and eval mode."""
        held = self.job.held
        encoded = self.towers.encode(held.text, held.video)
        scores, watched = self._measured(*encoded)
        if not np.isfinite(scores).all():
            if not number:
                raise _not_finite(self.job)
            raise Diverged("training diverged: a score is not finite; try a smaller learning rate")
        recalls = recalls_of(scores, held, self.job.loss.needs_labels)
        watched = {**means.watched, **watched}
        return RetrievalEpoch(
            number, means.loss, means.terms, watched, recalls, self._held(held, encoded)
        )

    def _held(self, held: Pairs, encoded: tuple[Encoded, Encoded]) -> dict[str, float]:
        """The loss of held-out pairs in batches, and the cosine gap of their `encoded` rows.

        There is no loss if batches are made of classes, and no gap between items of one
        modality. Noise that the loss draws is the same in each epoch, and not that of training.
        """
        job, found = self.job, {}
        if not job.loss.group:
            size = min(job.optimisation.batch, len(held))
            with torch.no_grad(), seeded(job.seed, job.device):
                batches = full_batches(torch.arange(len(held)), size)
                losses = [
                    self.terms(held.batch(rows).to(job.device)).total.item() for rows in batches
                ]
            found["loss"] = float(np.mean(losses))
        if not held.alone:
            text, video = (side.mu for side in encoded)
            gap = cosine_gap(all_cosines(text, video[held.right]), held.right.to(text.device))
            found["cosine gap"] = gap.item()
        return {name: value for name, value in found.items() if np.isfinite(value)}

    def deployed(self, epoch: RetrievalEpoch) -> dict[str, Any]:
        """Plain values beside weights and polynomial.

        Linear maps as they are know a and b, which a loss that trains on from them may say itself.
        """
        job = self.job
        solved = {} if epoch.number else self.solved
        scale = job.model.deployed_scale(self.towers, job.pairs)
        if job.model.closed_form:
            return {**job.deployed, **solved, **scale}
        return {**solved, **job.deployed}

    def checkpoint(self, epoch: RetrievalEpoch) -> dict[str, Any]:
        """Both projectors, what the score needs, and where they come from."""
        job = self.job
        found: dict[str, Any] = {
            "text_proj": self.towers.text_proj.state_dict(),
            "video_proj": self.towers.video_proj.state_dict(),
            **self.deployed(epoch),
            **{k: v for k, v in job.settings.items() if k == MODALITIES_KEY},
            "config": config(job.settings),
            PROVENANCE: job.provenance.values(),
            "epoch": epoch.number,
            "loss": epoch.loss,
        }
        if job.polynomial is not None:
            found["poly"] = checkpoint_values(job.polynomial)
        return found

    def page(self, history: Sequence[RetrievalEpoch], stopped: str | None) -> str:
        """Recalls by epoch."""
        title = f"{self.job.model.name} trained by {self.job.loss.name}"
        return retrieval_page(
            title,
            self.settings,
            history,
            stopped,
            self.raw,
            self.job.called,
            self.solved_interval(history),
        )

    def solved_interval(self, history: Sequence[RetrievalEpoch]) -> Interval | None:
        """The interval of R@1 that `ProjectorRun` has; None if epochs were trained."""
        job = self.job
        if not job.model.closed_form or len(history) > 1:
            return None
        scores = self._measured(*self.towers.encode(job.held.text, job.held.video))[0]
        return recall_interval(scores, job.held, job.seed)


def _linear_fit(job: TrainingJob, dimensions: int) -> LinearFit:
    """The linear maps of the pairs that train; CimError for items of one modality."""
    if job.pairs.alone:
        option = "linear" in type(job.model).model_fields
        what = "model.linear is true" if option else f'model "{job.model.name}" maps two modalities'
        raise CimError(
            f"{what}, and {job.files['data']} holds items of one modality; expected rows of two"
        )
    if len(job.pairs.video) < FOLDS:
        items = item_names(job.called)[1]
        raise CimError(
            f"{job.files['data']}: {len(job.pairs.video)} {items} train; expected at least {FOLDS} "
            "for linear maps, whose penalty is tried on folds of them"
        )
    return fit_linear(job.pairs, dimensions, job.loss.needs_labels, job.model.starts_from_rows)


def _linear_recalls(job: TrainingJob) -> dict[str, float] | None:
    """The held-out figures of linear maps of few pairs, beside a model that starts elsewhere.

    None if the model is solved, or starts from such maps or a checkpoint, or if pairs are many.
    """
    solved = job.model.closed_form or job.model.start_dimensions > 0
    if job.start is not None or solved or not few(job.pairs):
        return None
    held, start = job.held, _linear_fit(job, LINEAR_DIMENSIONS).start
    distances = start.distances(held.text.numpy(), held.video.numpy())
    return recalls_of(-distances, held, job.loss.needs_labels)


def _variance(towers: TwoTower, pairs: Pairs) -> float:
    """The variances of both sides added up, if they are the same for all rows."""
    sides = towers.encode(pairs.text[:1], pairs.video[:1])
    return sum(side.double().moments[1].sum().item() for side in sides)


def _built(model: ProjectorModel, text: int, video: int) -> TwoTower:
    try:
        return model.build(text, video)
    except (RuntimeError, MemoryError):  # torch's allocator has no error of its own
        sizes = ", ".join(f"{name} {value}" for name, value in model.model_dump().items())
        raise CimError(
            f'model "{model.name}" for rows of {text} and {video} numbers does not fit in memory; '
            f"expected smaller options ({sizes})"
        ) from None


def _task(job: TrainingJob, towers: TwoTower) -> Task:
    towers.eval()
    with torch.no_grad():
        dimension = towers.text_tower(job.pairs.text[:1]).mu.shape[1]
    projectors = nn.ModuleList([towers.text_proj, towers.video_proj])
    weights = tuple(one for one in projectors.parameters() if one.ndim == 2)
    classes = max(job.pairs.classes, job.held.classes)
    task = Task(
        dimension, classes, compared=job.by_comparison, weights=weights, decoder=towers.decoder
    )
    if job.polynomial is None:
        return task
    polynomial = raw(job.polynomial, job.layout.statistics(dimension))
    if polynomial.domain is None or polynomial.domain.vd_line is None:
        if job.start is None:
            raise ArgumentError(
                "{}: the polynomial has no domain, and it is meaningless outside of it; expected "
                "one that `cimtool fit` wrote, or {start}, the model that it was fitted to",
                job.files["poly"],
            )
        try:
            with np.errstate(all="ignore"):
                polynomial = replace(polynomial, domain=measured_range(towers, job.pairs))
        except CimError:
            raise _not_finite(job) from None
    return replace(task, polynomial=polynomial)


def measured_range(towers: TwoTower, pairs: Pairs) -> FittedRange:
    """The range of raw ed and vd over all pairs of the first texts and their videos.

    Raises CimError if these are not finite.
    """
    rows = pairs.batch(torch.arange(min(len(pairs), BAND_TEXTS)))
    text, video = towers.encode(rows.text, rows.video)
    sides = [x.double() for x in (*text.moments, *video.moments)]
    ed, vd = (f(*sides).flatten().numpy() for f in (all_pairs_ed, all_pairs_vd))
    return fitted_range(ed, vd)


def _not_finite(job: TrainingJob) -> CimError:
    data, start = job.files["validation"] or job.files["data"], job.files["start"]
    what = "the model" if start is None else start
    error = CimError(
        f"{data}: {what} gives scores that are not finite before any training; expected smaller "
        "numbers in its rows"
    )
    return error if start is None else ArgumentError("{}, or another {start}", error)
