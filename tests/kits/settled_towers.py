"""Towers of both layouts that are no longer as they start, their polynomial and their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cimtool.ir.surrogate import Polynomial, exponents
from cimtool.training.models.trunk import TrunkProjector
from cimtool.training.models.two_branch import TwoBranchProjector
from cimtool.training.towers import TwoTower

WIDTH, HIDDEN, D = 6, 9, 5


def settled(module: torch.nn.Module, seed: int) -> torch.nn.Module:
    """A module with statistics and weights that are not the ones of its start."""
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm1d):
            part.running_mean.copy_(torch.randn(part.num_features, generator=generator))
            part.running_var.copy_(torch.rand(part.num_features, generator=generator) + 0.5)
            part.weight.data.copy_(torch.randn(part.num_features, generator=generator))
            part.bias.data.copy_(torch.randn(part.num_features, generator=generator))
    return module.eval()


@pytest.fixture
def trunks() -> TwoTower:
    torch.manual_seed(1)
    text, video = TrunkProjector(WIDTH, HIDDEN, D), TrunkProjector(WIDTH + 2, HIDDEN, D)
    return TwoTower(settled(text, 1), settled(video, 2)).eval()


@pytest.fixture
def branches() -> TwoTower:
    torch.manual_seed(2)
    return TwoTower(TwoBranchProjector(D, HIDDEN), TwoBranchProjector(D, HIDDEN)).eval()


@pytest.fixture
def branch_content(branches: TwoTower, polynomial: Polynomial) -> dict[str, Any]:
    """Checkpoint as the public code of layout two-branch saves it: projectors and polynomial."""
    coeff = torch.tensor(polynomial.coeff, dtype=torch.float64)
    return {
        "text_proj": branches.text_proj.state_dict(),
        "video_proj": branches.video_proj.state_dict(),
        "poly": {"degree": 4, "coeff": coeff, "bias": -1.0, "fit_logit": True},
        "config": {"lr": 1e-4},
        "epoch": 7,
        "loss": 0.5,
    }


@pytest.fixture
def polynomial() -> Polynomial:
    count = len(exponents(4))
    return Polynomial(4, tuple(0.1 * (k + 1) for k in range(count)), -1.0, a=0.1, b=0.5, K=10)


@pytest.fixture
def poly_file(tmp_path: Path, polynomial: Polynomial) -> Path:
    path = tmp_path / "poly.pt"
    coeff = torch.tensor(polynomial.coeff, dtype=torch.float64)
    torch.save({"degree": 4, "coeff": coeff, "bias": -1.0, "a": 0.1, "b": 0.5, "K": 10}, path)
    return path
