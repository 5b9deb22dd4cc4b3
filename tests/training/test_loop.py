from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool.base.arrays import Array
from cimtool.base.errors import CimError
from cimtool.reference.statistics import pair_statistics
from cimtool.training.loop import TrainSettings, encode, save_projectors, train, train_towers
from cimtool.training.models.trunk import Trunk
from cimtool.training.models.two_branch import TwoBranch
from cimtool.training.towers import TwoTower

SETTINGS = TrainSettings(epochs=4, batch=16, learning_rate=3e-3, hidden=32, width=8, seed=7)


@pytest.fixture(scope="module")
def rows() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    text = rng.standard_normal((90, 12)).astype(np.float32)
    return text, (text @ rng.standard_normal((12, 10))).astype(np.float32)


def quiet(_: str) -> None:
    pass


def test_training_makes_right_pairs_the_nearest(rows: tuple[Array, Array]) -> None:
    ed, _ = pair_statistics(*encode(train(*rows, replace(SETTINGS, epochs=30), quiet), *rows))
    assert (ed.argmin(axis=1) == np.arange(90)).mean() > 0.5


def test_training_repeats_and_leaves_the_random_state(rows: tuple[Array, Array]) -> None:
    before = torch.get_rng_state()
    first, second = (train(*rows, SETTINGS, quiet).state_dict() for _ in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert torch.equal(before, torch.get_rng_state())


def test_projectors_of_another_layout_train_as_well() -> None:
    rng = np.random.default_rng(0)
    text = rng.standard_normal((90, 12)).astype(np.float32)
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    video = text[:, ::-1].copy()

    def make() -> TwoTower:
        return TwoTower(TwoBranch(12, 32), TwoBranch(12, 32))

    settings = replace(SETTINGS, epochs=30, a=5.0, temperature=1.0)
    first, second = (train_towers(make, text, video, settings, quiet) for _ in range(2))
    ed, _ = pair_statistics(*encode(first, text, video))
    assert (ed.argmin(axis=1) == np.arange(90)).mean() > 0.5
    one, other = first.state_dict(), second.state_dict()
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_progress_is_one_line_an_epoch(rows: tuple[Array, Array]) -> None:
    said: list[str] = []
    train(*rows, SETTINGS, said.append)
    assert [line.split(":")[0] for line in said] == [f"epoch {i} of 4" for i in (1, 2, 3, 4)]


def test_too_few_rows(rows: tuple[Array, Array]) -> None:
    with pytest.raises(CimError, match="batch is 16, and 15 pairs train"):
        train(rows[0][:15], rows[1][:15], SETTINGS, quiet)


def test_training_that_diverges(rows: tuple[Array, Array]) -> None:
    with pytest.raises(CimError, match="the loss is nan before the first step"):
        train(rows[0] * np.float32(np.nan), rows[1], SETTINGS, quiet)


def test_saved_projectors_load_with_weights_only(tmp_path: Path) -> None:
    towers = TwoTower(Trunk(6, 8, 4), Trunk(5, 8, 4))
    save_projectors(towers, tmp_path / "projectors.pth")
    loaded = torch.load(tmp_path / "projectors.pth", weights_only=True)
    assert loaded.keys() == towers.state_dict().keys()
    assert torch.equal(loaded["video_proj.mu.weight"], towers.state_dict()["video_proj.mu.weight"])
