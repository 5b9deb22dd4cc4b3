"""A point of a grid of trainings: train it, and measure its best epoch on unseen pairs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.files import replace_texts
from cimtool.base.folders import read_object
from cimtool.base.progress import Say
from cimtool.base.typed_fields import made_of
from cimtool.experiments.kept_queries import counts_by_name, plain_queries, read_queries
from cimtool.loading.checkpoint import load_torch
from cimtool.reference.measures import RANKINGS
from cimtool.reference.metrics import settle
from cimtool.reference.queries import Queries, led
from cimtool.reference.retrieval import rank_queries
from cimtool.reference.truth import Truth
from cimtool.training.history import Question, RetrievalEpoch, asked, truth_in
from cimtool.training.job import TrainingJob
from cimtool.training.pairs import Pairs
from cimtool.training.projectors import ProjectorTraining
from cimtool.training.towers import all_cosines
from cimtool.training.trainer import RunPlace, Trainer, alone_to_train, read_saved, seeded

KEPT = (
    *(led(by_class)[0].of for by_class in (False, True)),
    *(one.of for one in RANKINGS if one.of_means is not None),
)
"""The measurements that are kept for each query."""

SECONDS = "seconds.json"
"""The seconds that a point's training took: the only file that differs between equal runs."""


@dataclass(frozen=True, eq=False)
class TrainedPoint:
    """The result of a point's training: the best of its `epochs`, and all measured queries.

    `pairs` is the number that it trained on, `weights` the number in both projectors.
    """

    best_epoch: int
    epochs: int
    pairs: int
    weights: int
    queries: Queries
    question: Question | None

    @property
    def price(self) -> tuple[int, int]:
        """The number of deployed weights, and of pairs seen in all epochs of training."""
        return self.weights, self.epochs * self.pairs

    @property
    def error(self) -> None:
        """None: a point that failed has no figures."""

    def to_json(self) -> dict[str, Any]:
        """Plain values by name."""
        return {
            **{name: getattr(self, name) for name in COUNTS},
            "queries": plain_queries(self.queries),
            "question": None if self.question is None else asdict(self.question),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrainedPoint:
        """Read the values of `to_json`; KeyError, TypeError or ValueError for other values."""
        question = values["question"]
        parts = {name: values[name] for name in COUNTS}
        parts["queries"] = read_queries(values["queries"])
        parts["question"] = None if question is None else made_of(Question, question)
        found = made_of(cls, parts)
        if not 0 <= found.best_epoch <= found.epochs or min(found.pairs, found.weights) < 0:
            raise ValueError("its best epoch is none of its epochs, or a count is below 0")
        return found


COUNTS = ("best_epoch", "epochs", "pairs", "weights")


@dataclass(frozen=True, eq=False)
class Unseen:
    """The pairs that measure the points of a seed, and the queries of the `raw` rows on them.

    `raw` is None if the rows of both sides differ in width.
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
        """Measurements with the names and counts that a point must have; values do not matter."""
        if self.raw is not None:
            return self.raw
        texts, videos = (np.ones((count, 1)) for count in (self.texts, self.truth.videos))
        return _queries(texts @ videos.T, texts, videos, self.truth)

    def measured_in(self, queries: Queries) -> bool:
        """True if `queries` have the names and counts of these texts and videos."""
        return counts_by_name(self._expected) == counts_by_name(queries)


def _queries(scores: FloatArray, text: Array, video: Array, truth: Truth) -> Queries:
    """The kept measurements of all queries, from scores [n, m] and means."""
    scores = scores.copy()
    settle(scores)
    return rank_queries(scores, text, video, truth).only(KEPT)


def train_point(job: TrainingJob, folder: Path, say: Say) -> TrainedPoint:
    """Train a point into its folder, or resume it there, and measure it; CimError as in training.

    The seconds of training are stored there too, unless the training was resumed.
    """
    began = time.perf_counter()
    place = RunPlace(folder)
    with alone_to_train(place), seeded(job.seed, job.device):
        saved = read_saved(place, job.settings, job.files, RetrievalEpoch)
        training = ProjectorTraining(job)
        run = Trainer(training, job.optimisation, place, say, job.device).run(saved)
    if saved is None:
        seconds = round(time.perf_counter() - began, 1)
        replace_texts(folder, {SECONDS: json.dumps({"seconds": seconds}) + "\n"}, "the point")
    best, towers = load_torch(run.model), training.towers
    for name in ("text_proj", "video_proj"):
        getattr(towers, name).load_state_dict(best[name])
    pairs = job.unseen
    text, video = towers.encode(pairs.text, pairs.video)
    training.objective.eval()
    with torch.no_grad():
        scores = training.objective.scores(text.double(), video.double()).cpu()
    text_mu, video_mu = (one.mu.double().cpu().numpy() for one in (text, video))
    queries = _queries(scores.numpy(), text_mu, video_mu, truth_in(pairs, by_class=True))
    question = None
    if not pairs.alone:
        question = asked(job.loss, scores, pairs.right, job.optimisation.batch)
    both = torch.nn.ModuleList([towers.text_proj, towers.video_proj])
    weights = sum(one.numel() for one in both.parameters())
    epochs = run.history[-1].number
    return TrainedPoint(run.best.number, epochs, len(job.pairs), weights, queries, question)


def seconds_in(folder: Path) -> float | None:
    """Seconds that the training of a point took; None if unknown."""
    found = (read_object(folder / SECONDS) or {}).get("seconds")
    return found if isinstance(found, float) else None
