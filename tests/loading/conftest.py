from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cimtool.reference.surrogate import Polynomial, exponents
from cimtool.training.models import Trunk, TwoBranch, TwoTower

WIDTH, HIDDEN, D = 6, 9, 5


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


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
    text, video = Trunk(WIDTH, HIDDEN, D), Trunk(WIDTH + 2, HIDDEN, D)
    return TwoTower(settled(text, 1), settled(video, 2)).eval()


@pytest.fixture
def branches() -> TwoTower:
    torch.manual_seed(2)
    return TwoTower(TwoBranch(D, HIDDEN), TwoBranch(D, HIDDEN)).eval()


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
