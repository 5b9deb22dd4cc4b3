from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cimtool.training.loss import Batch, Objective, Task, Terms
from cimtool.training.losses.info_nce import InfoNce
from cimtool.training.models.trunk import TrunkModel
from cimtool.training.optimisation import Optimisation
from cimtool.training.pairs import Pairs
from cimtool.training.towers import Encoded
from cimtool.training.trainer import ENCODED_ROWS, Diverged, Trainer, encoded


class Classifier(Objective):
    """An objective with a module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, text: Encoded, video: Encoded, batch: Batch) -> Terms:
        wrong = nn.functional.cross_entropy(self.layer(text.mu), (batch.text[:, 0] > 0).long())
        return Terms({"class": wrong, "size": 0.01 * video.mu.square().mean()}, {"half": wrong / 2})

    def scores(self, text: Encoded, video: Encoded) -> Tensor:
        return text.mu @ video.mu.T


@pytest.fixture
def pairs() -> Pairs:
    text = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    return Pairs.aligned(text, text.copy())


def trainer(objective: Objective) -> Trainer:
    torch.manual_seed(0)
    return Trainer.start(TrunkModel(8, 4).build(6, 6), objective, Optimisation(learning_rate=1e-2))


def test_modules_of_an_objective_are_trained_and_saved(pairs: Pairs) -> None:
    torch.manual_seed(1)
    one = trainer(Classifier())
    before = one.state()["objective"]["layer.weight"].clone()
    means = [one.epoch(pairs, 16) for _ in range(8)]
    assert not torch.equal(one.state()["objective"]["layer.weight"], before)
    assert means[-1].terms["class"] < means[0].terms["class"]
    for mean in means:
        assert mean.loss == pytest.approx(sum(mean.terms.values()))
        assert mean.watched["half"] == pytest.approx(mean.terms["class"] / 2)


def test_a_restored_trainer_goes_on_alike(pairs: Pairs) -> None:
    one, other = (trainer(InfoNce().objective(Task(6, 6, 4))) for _ in range(2))
    one.epoch(pairs, 16)
    other.restore(copy.deepcopy(one.state()))
    state = torch.get_rng_state()
    first = one.epoch(pairs, 16)
    torch.set_rng_state(state)
    assert other.epoch(pairs, 16) == first


def test_scores_that_are_not_finite(pairs: Pairs) -> None:
    one = trainer(InfoNce().objective(Task(6, 6, 4)))
    assert one.validate(pairs)[0].shape == (64, 64)
    one.epoch(pairs, 16)
    break_off(one)
    with pytest.raises(Diverged, match="training diverged: a score is not finite; try a smaller"):
        one.validate(pairs)
    with pytest.raises(Diverged, match="training diverged: the loss is nan; try a smaller"):
        one.epoch(pairs, 16)


def test_before_the_first_step_the_learning_rate_is_not_to_blame(pairs: Pairs) -> None:
    one = trainer(InfoNce().objective(Task(6, 6, 4)))
    break_off(one)
    with pytest.raises(Diverged, match=r"^the loss is nan before the first step; expected other"):
        one.epoch(pairs, 16)
    with pytest.raises(Diverged, match=r"^a score is not finite before the first step"):
        one.validate(pairs)


def break_off(one: Trainer) -> None:
    with torch.no_grad():
        one.towers.text_proj.mu.bias.fill_(float("inf"))  # type: ignore[union-attr, operator]


def test_rows_are_encoded_in_blocks() -> None:
    towers = TrunkModel(8, 4).build(6, 5).eval()
    text, video = torch.randn(ENCODED_ROWS + 3, 6), torch.randn(2, 5)
    found, _ = encoded(towers, text, video)
    torch.testing.assert_close(found.mu, towers.text_tower(text).mu)
    assert found.gaussian[1].shape == (ENCODED_ROWS + 3, 4)
