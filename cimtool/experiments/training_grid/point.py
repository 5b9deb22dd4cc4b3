"""A point of a grid: its training, and what is measured of its best epoch on unseen pairs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.progress import Say
from cimtool.base.typed_fields import fits, made_of
from cimtool.experiments.training_grid.question import Question, asked
from cimtool.loading.checkpoint import load_torch
from cimtool.reference.measures import RANKINGS
from cimtool.reference.metrics import settle
from cimtool.reference.queries import Queries, led
from cimtool.reference.retrieval import of_means, retrieved
from cimtool.reference.truth import Truth
from cimtool.training.history import RetrievalEpoch, truth_in
from cimtool.training.job import TrainingJob
from cimtool.training.pairs import Pairs
from cimtool.training.projectors import ProjectorTraining
from cimtool.training.towers import TwoTower, all_cosines
from cimtool.training.trainer import BEST, Trainer, alone_to_train, read_saved, seeded

KEPT = (
    *(led(by_class)[0].of for by_class in (False, True)),
    *(one.of for one in RANKINGS if one.of_means is not None),
)
"""The measurements of each query that are kept."""


@dataclass(frozen=True, eq=False)
class TrainedPoint:
    """The result of a point's training: the best of its `epochs`, and every query it was asked.

    `pairs` trained it; `weights` are those of both projectors.
    """

    best_epoch: int
    epochs: int
    pairs: int
    weights: int
    queries: Queries
    question: Question | None

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        sides = {"text": self.queries.text, "video": self.queries.video}
        return {
            **{name: getattr(self, name) for name in COUNTS},
            "queries": {way: {k: v.tolist() for k, v in one.items()} for way, one in sides.items()},
            "question": None if self.question is None else asdict(self.question),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrainedPoint:
        """The same of plain values; KeyError, TypeError or ValueError where they are none."""
        sides = [_side(values["queries"][way]) for way in ("text", "video")]
        question = values["question"]
        parts = {name: values[name] for name in COUNTS}
        parts["queries"] = Queries(*sides)
        parts["question"] = None if question is None else made_of(Question, question)
        found = made_of(cls, parts)
        if not 0 <= found.best_epoch <= found.epochs or min(found.pairs, found.weights) < 0:
            raise ValueError("its best epoch is none of its epochs, or a count is below 0")
        return found


COUNTS = ("best_epoch", "epochs", "pairs", "weights")

MOST_VALUE = 1e30
"""A measurement of a query is less, in size: sums of them stay in float64's range."""


def _side(values: Mapping[str, Any]) -> dict[str, FloatArray]:
    """Measurements [n] by name, NaN where there is none; TypeError or ValueError for others."""
    if not isinstance(values, dict):
        raise TypeError("the measurements are no table")
    found = {}
    for name, numbers in values.items():
        if not isinstance(numbers, list) or not all(fits(one, float) for one in numbers):
            raise TypeError(f"{name} is no list of numbers")
        found[name] = np.array(numbers, np.float64)
        if (np.abs(found[name]) > MOST_VALUE).any():
            raise ValueError(f"{name} has a number beyond {MOST_VALUE:g}")
    return found


@dataclass(frozen=True, eq=False)
class Unseen:
    """The pairs of a seed that its points are measured on, and the `raw` rows' queries of them.

    `raw` is None where rows differ in width.
    """

    truth: Truth
    texts: int
    raw: Queries | None

    @classmethod
    def of(cls, pairs: Pairs) -> Unseen:
        """Rank raw rows by their cosine."""
        truth, raw = truth_in(pairs, by_class=True), None
        if pairs.text.shape[1] == pairs.video.shape[1]:
            text, video = pairs.text.double(), pairs.video.double()
            raw = _queries(all_cosines(text, video).numpy(), text.numpy(), video.numpy(), truth)
        return cls(truth, len(pairs), raw)

    @cached_property
    def _expected(self) -> Queries:
        """The measurements that a point has, of whatever values."""
        if self.raw is not None:
            return self.raw
        texts, videos = (np.ones((count, 1)) for count in (self.texts, self.truth.videos))
        return _queries(texts @ videos.T, texts, videos, self.truth)

    def measured_in(self, queries: Queries) -> bool:
        """True where these are the measurements of its texts and videos, by names and counts."""
        own, other = (
            [{name: len(values) for name, values in side.items()} for side in (one.text, one.video)]
            for one in (self._expected, queries)
        )
        return own == other


def _queries(scores: FloatArray, text: Array, video: Array, truth: Truth) -> Queries:
    """The measurements of all queries that are kept, by scores [n, m] and means."""
    scores = scores.copy()
    settle(scores)
    return retrieved(scores, truth).merged(of_means(truth, text, video)).only(KEPT)


def train_point(job: TrainingJob, folder: Path, say: Say) -> tuple[TrainedPoint, float | None]:
    """Train a point into its folder, or go on there, and measure it; with the seconds it took.

    These are None where a part was done before. Raises CimError as a training does.
    """
    began = time.perf_counter()
    with alone_to_train(folder), seeded(job.seed, job.device):
        saved = read_saved(folder, job.settings, job.files, RetrievalEpoch)
        training = ProjectorTraining(job)
        run = Trainer(training, job.optimisation, folder, say, job.device).run(saved)
    took = None if saved is not None else time.perf_counter() - began
    _restore(training.towers, folder / BEST)
    pairs = job.unseen
    text, video = training.towers.encode(pairs.text, pairs.video)
    training.objective.eval()
    with torch.no_grad():
        scores = training.objective.scores(text.double(), video.double()).cpu()
    right = pairs.right
    text_mu, video_mu = (one.mu.double().cpu().numpy() for one in (text, video))
    queries = _queries(scores.numpy(), text_mu, video_mu, truth_in(pairs, by_class=True))
    question = None if pairs.alone else asked(job.loss, scores, right, job.optimisation.batch)
    towers = torch.nn.ModuleList([training.towers.text_proj, training.towers.video_proj])
    weights = sum(one.numel() for one in towers.parameters())
    epochs = run.history[-1].number
    found = TrainedPoint(run.best.number, epochs, len(job.pairs), weights, queries, question)
    return found, took


def _restore(towers: TwoTower, file: Path) -> None:
    content = load_torch(file)
    for name in ("text_proj", "video_proj"):
        getattr(towers, name).load_state_dict(content[name])
