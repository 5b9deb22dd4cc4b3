from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import cimtool
from cimtool.reference.exact import exact
from cimtool.reference.montecarlo import monte_carlo
from cimtool.training.items import model_items
from cimtool.training.loss import Batch, Task
from cimtool.training.losses.pairwise import log_mean_sigmoid, sampled
from cimtool.training.losses.sampled_nce import SampledNce, balanced
from cimtool.training.towers import Encoded


def encoded(seed: int, rows: int = 4, width: int = 3) -> Encoded:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(2, rows, width, generator=generator, dtype=torch.float64)
    return Encoded(drawn[0], drawn[1] - 1)


def terms(
    options: SampledNce, items: torch.Tensor | None = None, right: torch.Tensor | None = None
) -> dict[str, float]:
    text, video = encoded(0), encoded(1)
    torch.manual_seed(7)
    found = options.objective(Task(3))(
        text, video, Batch(text.mu, video.mu, items, right=right)
    ).loss
    return {name: term.item() for name, term in found.items()}


def logs() -> tuple[np.ndarray, np.ndarray]:
    """log p and log(1-p) of the same draws."""
    torch.manual_seed(7)
    drawn = [sampled(side, 5) for side in (encoded(0), encoded(1))]
    log_p, log_1mp = log_mean_sigmoid(*drawn, 0.5, 1.0)
    return log_p.numpy(), log_1mp.numpy()


def test_the_terms_are_those_of_the_definition() -> None:
    found = terms(SampledNce(samples=5, a=0.5, b=1.0, match=0.7, variance=0.2))
    log_p, log_1mp = logs()
    p = np.exp(log_p)
    text = -np.log(p.diagonal() / p.sum(axis=1)).mean()
    video = -np.log(p.diagonal() / p.sum(axis=0)).mean()
    assert found["info_nce"] == pytest.approx(text + video)
    wrong = log_1mp[~np.eye(4, dtype=bool)]
    assert found["match"] == pytest.approx(-0.7 * (log_p.diagonal().mean() + wrong.mean()))
    means, variances = zip(*(side.moments for side in (encoded(0), encoded(1))), strict=True)
    kl = sum(
        0.5 * (mu.square() + s - s.log() - 1).sum().item()
        for mu, s in zip(means, variances, strict=True)
    )
    assert found["variance"] == pytest.approx(0.2 * kl / (4 * 3))


def test_a_pair_with_the_video_of_its_text_is_not_wrong() -> None:
    items = torch.tensor([0, 1, 1, 2])
    found = terms(SampledNce(samples=5, a=0.5, b=1.0, match=1.0), items)
    log_p, log_1mp = logs()
    wrong = items[:, None].numpy() != items[None].numpy()
    assert found["match"] == pytest.approx(-(log_p.diagonal().mean() + log_1mp[wrong].mean()))
    asked = np.where(wrong | np.eye(4, dtype=bool), np.exp(log_p), 0)
    shares = [asked.diagonal() / asked.sum(axis=axis) for axis in (1, 0)]
    assert found["info_nce"] == pytest.approx(-sum(np.log(one).mean() for one in shares))


def test_of_several_right_pairs_any_is_asked_for_and_all_match() -> None:
    right = np.eye(4, dtype=bool)
    right[0, 1] = right[2, 0] = right[2, 3] = True
    options = SampledNce(samples=5, a=0.5, b=1.0, match=1.0)
    found = terms(options, right=torch.from_numpy(right))
    log_p, log_1mp = logs()
    p = np.exp(log_p)
    shares = [(p * right).sum(axis=way) / p.sum(axis=way) for way in (1, 0)]
    assert found["info_nce"] == pytest.approx(-sum(np.log(one).mean() for one in shares))
    assert found["match"] == pytest.approx(-(log_p[right].mean() + log_1mp[~right].mean()))


def test_right_and_wrong_pairs_weigh_alike_whatever_their_number() -> None:
    log_p, log_1mp = torch.full((50, 50), -0.5), torch.full((50, 50), -2.0)
    assert balanced(log_p, log_1mp).item() == pytest.approx(2.5)


def test_gradients_pass_through_the_samples() -> None:
    def loss(mu: torch.Tensor, logvar: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        other = encoded(1)
        objective = SampledNce(samples=4, a=0.5, b=1.0).objective(Task(3))
        found = objective(Encoded(mu, logvar), other, Batch(mu, other.mu))
        total: torch.Tensor = sum(found.loss.values(), torch.zeros(()))
        return total

    given = encoded(0)
    assert given.logvar is not None
    assert torch.autograd.gradcheck(
        loss, (given.mu.requires_grad_(), given.logvar.requires_grad_())
    )


def test_the_score_is_the_one_of_the_other_losses_with_a_sigmoid() -> None:
    assert SampledNce(a=0.5, b=1.0).deployed() == {"a": 0.5, "b": 1.0}
    text, video = encoded(0), encoded(1)
    scores = SampledNce(a=0.5, b=1.0).objective(Task(3)).scores(text, video)
    (mu, s), (other, t) = text.moments, video.moments
    ed = (mu[0] - other[2]).square().sum() + s[0].sum() + t[2].sum()
    assert scores[0, 2].item() == pytest.approx((1.0 - 0.5 * ed).item())


@pytest.mark.thorough("a whole training")
def test_variances_stay_alive(tmp_path: Path) -> None:
    """After some training K = 10 samples miss the exact logit by more than half of its unit."""
    rng = np.random.default_rng(0)
    text = rng.normal(size=(320, 16)).astype(np.float32)
    video = text @ np.linalg.qr(rng.normal(size=(16, 16)))[0].astype(np.float32)
    video += 0.5 * rng.normal(size=video.shape).astype(np.float32)
    rows = tmp_path / "rows.npz"
    np.savez(rows, text=text, video=video)
    options = {"model.hidden": 32, "model.width": 16, "model.logvar_start": -1.0}
    options |= {"loss.a": 0.5, "loss.b": 20.0}
    folder = tmp_path / "out"
    cimtool.train(
        rows, folder, loss="sampled-nce", options=options, epochs=20, batch=32, learning_rate=3e-3
    )
    items = model_items(cimtool.ModelSource(folder / "model.pth"), rows, print)
    assert items.a is not None
    assert items.b is not None
    given = (items.text, items.video, items.a, items.b)
    truth = exact(*given)
    missed = monte_carlo(*given, 10).logit - (truth.log_p - truth.log_1mp)
    assert np.sqrt(np.square(missed).mean()) > 0.5
