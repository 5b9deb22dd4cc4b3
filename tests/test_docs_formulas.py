"""The figures of `docs/formulas.md`, and the code of `docs/embeddings.md`."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp

from cimtool import api
from cimtool.loading.embeddings import read_embeddings
from cimtool.reference.exact import exact
from cimtool.reference.statistics import Gaussians, distance_variance, expected_distance

DOCS = Path(__file__).resolve().parents[1] / "docs"


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
