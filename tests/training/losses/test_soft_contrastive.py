from __future__ import annotations

import math
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch

import cimtool
from cimtool.reference.exact import exact
from cimtool.reference.statistics import Gaussians
from cimtool.training.loss import Batch, Task
from cimtool.training.losses.pairwise import SoftContrastive, log_mean_sigmoid, sampled
from cimtool.training.towers import Encoded


def encoded(seed: int, rows: int = 4, width: int = 3) -> Encoded:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(2, rows, width, generator=generator, dtype=torch.float64)
    return Encoded(drawn[0], drawn[1] - 1)


def test_the_probability_is_the_mean_of_the_sigmoids_of_all_pairs_of_samples() -> None:
    torch.manual_seed(0)
    text, video = sampled(encoded(0, 2), 3), sampled(encoded(1, 2), 3)
    text[0] += 30  # a probability of about e^-500, which float64 holds as its logarithm alone
    log_p, log_1mp = log_mean_sigmoid(text, video, 0.2, 1.5)
    with mpmath.workdps(40):
        for i in range(2):
            for j in range(2):
                total = mpmath.mpf(0)
                for one in text[i].tolist():
                    for other in video[j].tolist():
                        d = sum((mpmath.mpf(x) - y) ** 2 for x, y in zip(one, other, strict=True))
                        total += 1 / (1 + mpmath.exp(mpmath.mpf("0.2") * d - 1.5))
                p = total / 9
                assert log_p[i, j].item() == pytest.approx(float(mpmath.log(p)), rel=1e-12)
                assert log_1mp[i, j].item() == pytest.approx(float(mpmath.log1p(-p)), rel=1e-10)
    assert log_p.min() < -300


@pytest.mark.thorough("a statistical check over many draws")
def test_many_samples_come_to_the_exact_probability() -> None:
    text, video = encoded(0), encoded(1)
    torch.manual_seed(0)
    log_p, log_1mp = log_mean_sigmoid(sampled(text, 1500), sampled(video, 1500), 0.5, 1.0)
    sides = (Gaussians(mu.numpy(), s.numpy()) for mu, s in (text.moments, video.moments))
    wanted = exact(*sides, 0.5, 1.0)
    np.testing.assert_allclose(log_p.exp(), np.exp(wanted.log_p), atol=0.01)
    np.testing.assert_allclose(log_1mp.exp(), np.exp(wanted.log_1mp), atol=0.01)


def test_gradients_pass_through_the_samples_to_mean_and_variance() -> None:
    def loss(mu: torch.Tensor, logvar: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        given, other = Encoded(mu, logvar), encoded(1)
        objective = SoftContrastive(samples=4, a=0.5).objective(Task(3))
        found: torch.Tensor = objective(given, other, Batch(mu, other.mu)).loss["pairs"]
        return found

    given = encoded(0)
    assert given.logvar is not None
    assert torch.autograd.gradcheck(
        loss, (given.mu.requires_grad_(), given.logvar.requires_grad_())
    )


def test_the_loss_is_the_cross_entropy_of_all_pairs() -> None:
    text, video = encoded(0), encoded(1)
    objective = SoftContrastive(samples=5).objective(Task(3))
    torch.manual_seed(7)
    found = objective(text, video, Batch(text.mu, video.mu)).loss["pairs"]
    torch.manual_seed(7)
    log_p, log_1mp = log_mean_sigmoid(sampled(text, 5), sampled(video, 5), 0.1, 5.0)
    total = -sum((log_p if i == j else log_1mp)[i, j].item() for i in range(4) for j in range(4))
    assert found.item() == pytest.approx(total / 4)


def test_it_trains_and_says_its_sigmoid(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    text = rng.standard_normal((160, 12)).astype(np.float32)
    rows = {"text": text, "video": (text @ rng.standard_normal((12, 10))).astype(np.float32)}
    small = {"model.hidden": 32, "model.width": 8, "loss.samples": 4}
    wanted = {"batch": 16, "epochs": 3, "learning_rate": 3e-3, "options": small}
    runs = [
        cimtool.train(rows, tmp_path / name, loss="soft-contrastive", **wanted)  # type: ignore[arg-type]
        for name in ("one", "other")
    ]
    first, *_, last = runs[0].history[1:]
    assert first.loss is not None
    assert last.loss is not None
    assert math.isfinite(last.loss)
    assert last.loss < 0.8 * first.loss
    assert last.held["loss"] < 0.8 * runs[0].history[0].held["loss"]
    kept = torch.load(runs[0].folder / "model.pth", weights_only=True)
    assert (kept["a"], kept["b"], kept["head"]) == (0.1, 5.0, "pcme-poly")
    contents = [(run.folder / "last.pth").read_bytes() for run in runs]
    assert contents[0] == contents[1]
