"""A point of a grid: its training, and what is measured of its best epoch on unseen pairs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cimtool.base.arrays import Array, FloatArray
from cimtool.base.progress import Say
from cimtool.reference.metrics import settle
from cimtool.reference.queries import Queries
from cimtool.reference.truth import Truth, retrieved
from cimtool.training.grid.question import Question, asked
from cimtool.training.history import RetrievalEpoch, truth_in
from cimtool.training.job import TrainingJob
from cimtool.training.pairs import Pairs
from cimtool.training.projectors import ProjectorTraining
from cimtool.training.towers import TwoTower, all_cosines
from cimtool.training.trainer import BEST, Trainer, read_saved, seeded

KEPT = ("rank", "precision", "cosine_gap")
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
            "best_epoch": self.best_epoch,
            "epochs": self.epochs,
            "pairs": self.pairs,
            "weights": self.weights,
            "queries": {way: {k: v.tolist() for k, v in one.items()} for way, one in sides.items()},
            "question": None if self.question is None else asdict(self.question),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrainedPoint:
        """The same of plain values; KeyError or TypeError where they are none."""
        text, video = (
            {name: np.array(one, np.float64) for name, one in values["queries"][way].items()}
            for way in ("text", "video")
        )
        question = values["question"]
        return cls(
            values["best_epoch"],
            values["epochs"],
            values["pairs"],
            values["weights"],
            Queries(text, video),
            None if question is None else Question(**question),
        )


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


def _queries(scores: FloatArray, text: Array, video: Array, truth: Truth) -> Queries:
    """The ranks and cosine gaps of all queries, by scores [n, m] and means."""
    scores = scores.copy()
    settle(scores)
    found, gaps = retrieved(scores, truth), truth.cosine_gaps(text, video)
    if gaps is not None:
        found.text["cosine_gap"] = gaps
    return Queries(
        *({k: one for k, one in side.items() if k in KEPT} for side in (found.text, found.video))
    )


def train_point(job: TrainingJob, folder: Path, say: Say) -> tuple[TrainedPoint, float | None]:
    """Train a point into its folder, or go on there, and measure it; with the seconds it took.

    These are None where a part was done before. Raises CimError as a training does.
    """
    began = time.perf_counter()
    saved = read_saved(folder, job.settings, job.files, RetrievalEpoch)
    with seeded(job.seed, job.device):
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
    content = torch.load(file, map_location="cpu", weights_only=True)
    for name in ("text_proj", "video_proj"):
        getattr(towers, name).load_state_dict(content[name])
