from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.training.job import read_start
from cimtool.training.models.trunk import TrunkModel
from cimtool.training.models.two_branch import TwoBranchModel


@pytest.fixture
def file(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "start.pth"
    torch.save({"model": TrunkModel(hidden=8, width=4).build(6, 5).state_dict()}, path)
    return path


def test_the_weights_come_over(file: Path) -> None:
    start = read_start(file)
    towers = TrunkModel(hidden=8, width=4).build(6, 5)
    start.load(towers, "trunk")
    saved = torch.load(file, weights_only=True)["model"]
    assert all(torch.equal(saved[key], value) for key, value in towers.state_dict().items())
    assert start.model() == "trunk"
    assert start.poly is None


def test_widths_that_do_not_fit(file: Path) -> None:
    towers = TrunkModel(hidden=8, width=4).build(7, 5)
    with pytest.raises(CimError, match=r"trunk.0.weight has shape \[8, 6\]; expected \[8, 7\]"):
        read_start(file).load(towers, "trunk")


def test_another_model(file: Path) -> None:
    with pytest.raises(CimError, match=r'text_proj.trunk.0.weight is no weight of model "two-b'):
        read_start(file).load(TwoBranchModel(hidden=8).build(6, 6), "two-branch")
