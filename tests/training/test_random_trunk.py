"""Random weights of a teacher: those that a training with the same seed starts from."""

from __future__ import annotations

import numpy as np
import torch

from cimtool.base.progress import silent
from cimtool.loading.embeddings import embeddings_in
from cimtool.training.arguments import TrainingOptions
from cimtool.training.items import encoded_items
from cimtool.training.job import make_job
from cimtool.training.projectors import ProjectorTraining
from cimtool.training.random_trunk import random_trunk
from cimtool.training.trainer import seeded


def test_random_weights_are_those_that_train_starts_from() -> None:
    rng = np.random.default_rng(0)
    rows = {name: rng.normal(size=(90, 12)).astype(np.float32) for name in ("text", "video")}
    model, options = random_trunk(embeddings_in(rows), -5.0, 3)
    items = encoded_items(model, rows, None, silent)
    assert -5.3 < np.log(items.text.s).mean() < -4.7
    given = {f"model.{name}": value for name, value in options.items()}
    job = make_job(rows, None, TrainingOptions(seed=3, options=given))
    with seeded(job.seed, job.device):
        towers = ProjectorTraining(job).towers
    text, video = towers.encode(*(torch.tensor(rows[name]) for name in ("text", "video")))
    for own, others in ((items.text, text), (items.video, video)):
        mu, s = (one.double().numpy() for one in others.moments)
        np.testing.assert_allclose(own.mu, mu, atol=1e-5)
        np.testing.assert_allclose(own.s, s, rtol=1e-5)
