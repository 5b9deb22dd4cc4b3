"""The figures of `benchmarks/training.md` on formulas, and the code of `docs/embeddings.md`."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logit, logsumexp

from cimtool import api
from cimtool.demo.data import DemoFiles
from cimtool.loading.embeddings import read_embeddings
from cimtool.reference.exact import exact
from cimtool.reference.statistics import Gaussians, distance_variance, expected_distance
from cimtool.training.losses.constraints import Siamese

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = (DOCS.parent / "benchmarks" / "training.md").read_text("utf-8")


@pytest.mark.parametrize(("d", "times"), [(8, 13), (64, 87), (1024, 1365)])
def test_the_simplified_vd_is_too_large(d: int, times: int) -> None:
    rng, ratios = np.random.default_rng(0), []
    for _ in range(100):
        mixed = 4 * np.sum((rng.normal(size=d) - rng.normal(size=d)) ** 2) * 2
        simplified, boxed = 2 * (4 * d) ** 2, 2 * 4 * d  # every variance is 1
        ratios.append((simplified + mixed) / (boxed + mixed))
    assert np.mean(ratios) == pytest.approx(times, rel=0.02)


@pytest.mark.parametrize(("a", "apart"), [(0.1, 3e-5), (5.0, 0.15), (15.0, 0.47)])
def test_equal_statistics_have_other_logits(a: float, apart: float) -> None:
    """Both pairs have ed = vd = 1: of equal means, and of means that differ in one dimension."""
    half = 1 - math.sqrt(0.5)
    pairs = {0.0: [0.25, 0.25], math.sqrt(1 - half): [half / 2, 0.0]}
    logits = []
    for shift, s in pairs.items():
        text = Gaussians(np.array([[shift, 0.0]]), np.array([s]))
        video = Gaussians(np.zeros((1, 2)), np.array([s]))
        ed, vd = expected_distance(text, video), distance_variance(text, video)
        assert (ed[0], vd[0]) == pytest.approx((1.0, 1.0))
        logits.append(exact(text, video, a, 0.0).logit[0, 0])
    assert abs(logits[0] - logits[1]) == pytest.approx(apart, rel=0.15)


def test_labels_clipped_at_a_millionth_are_constant_from_138_on() -> None:
    clipped = math.log(1e-6 / (1 - 1e-6))
    assert clipped == pytest.approx(-13.8, abs=0.05)
    assert -clipped / 0.1 == pytest.approx(138, abs=0.5)


def test_the_labels_of_a_teacher_are_no_probabilities(
    small_trunk: DemoFiles, tmp_path: Path
) -> None:
    """As `fit_poly` reads them, nearly all have one label; as the page says, they are right."""
    file = tmp_path / "teacher.npz"
    api.teacher(small_trunk.projectors, small_trunk.eval, a=0.1, b=0, pairs=200, output=file)
    with np.load(file) as held:
        y, of_log_p = (
            logit(np.clip(p, 1e-6, 1 - 1e-6)) for p in (held["y"], np.exp(held["log_p"]))
        )
        assert np.mean(y == y.min()) > 0.9
        assert y.min() == pytest.approx(-13.8, abs=0.05)
        kept = held["y"] > -13.8
        np.testing.assert_allclose(of_log_p[kept], held["y"][kept], rtol=1e-6)


def test_the_binary_loss_is_minus_the_log_likelihood() -> None:
    """The sum of the document is larger for the better model; the loss is smaller."""
    import torch

    from cimtool.training.losses.pairwise import pairwise_of_logits

    losses = []
    for logits in (4 * np.eye(3) - 2, 2 - 4 * np.eye(3)):  # right pairs likely, and unlikely
        p = 1 / (1 + np.exp(-logits))
        total = np.log(np.where(np.eye(3) > 0, p, 1 - p)).sum()
        loss = float(pairwise_of_logits(torch.tensor(logits)))
        assert loss == pytest.approx(-total / 3)
        losses.append(loss)
    assert losses[0] < losses[1]
    assert "| minus this sum (`pairwise-bce`) |" in PAGE


def test_without_the_temperature_a_right_pair_is_pushed_apart() -> None:
    tau, step = 0.07, 1e-6

    def aim(right: float, by: float) -> float:
        return right / by - float(logsumexp(np.array([right, 0.0, 0.0]) / tau))

    for right in (0.05, 0.2):
        p = math.exp(right / tau - logsumexp(np.array([right, 0.0, 0.0]) / tau))
        assert p > tau
        assert aim(right + step, 1.0) < aim(right, 1.0)
        assert aim(right + step, tau) > aim(right, tau)
        assert (aim(right + step, 1.0) - aim(right, 1.0)) / step == pytest.approx(
            1 - p / tau, rel=1e-3
        )


def test_the_hinge_is_squared_where_the_page_says_so() -> None:
    (row,) = (line for line in PAGE.splitlines() if "`squared_hinge`" in line)
    assert not Siamese().squared_hinge
    assert "| not squared by default, as in the document;" in row


def test_the_limit_of_info_nce_has_the_logarithm_of_the_negatives() -> None:
    n, right, wrong, tau = 100_000, 0.3, 0.2, 0.1
    scores = np.full(n, wrong / tau)
    scores[0] = right / tau
    loss = logsumexp(scores) - scores[0]
    assert loss == pytest.approx(math.log(n - 1) + (wrong - right) / tau, abs=1e-4)
    assert (wrong - right) / tau < 0 < loss


def test_the_code_of_embeddings_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "embeddings.md").read_text("utf-8"), re.S)
    exec(compile(code, "embeddings.md", "exec"), {})
    held = read_embeddings(Path("held-out.npz"))
    assert held.text.shape == held.video.shape == (60, 32)
    found = api.evaluate("held-out.npz", resamples=20)
    assert 0 <= found.scores[0].metrics["r1_text_to_video"] <= 1
