from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool.ir.program import Graph
from cimtool.load.model import Model
from cimtool.reference.surrogate import Polynomial, exponents
from cimtool.simulate import run
from cimtool.training.models import Trunk, TwoBranch, TwoTower

WIDTH, HIDDEN, D = 6, 9, 5


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


def settled(module: torch.nn.Module, width: int, seed: int = 0) -> torch.nn.Module:
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
    return TwoTower(settled(text, WIDTH, 1), settled(video, WIDTH + 2, 2)).eval()


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


def features(graph: Graph, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    result = run(graph, {"x": x.astype(np.float64)})
    return result["mu"], result["s"]


def assert_same_as_torch(model: Model, towers: TwoTower, unit: bool = False) -> None:
    rng = np.random.default_rng(3)
    for graph, module in (
        (model.program.text, towers.text_proj),
        (model.program.video, towers.video_proj),
    ):
        x = rng.normal(size=(7, graph.inputs["x"].shape[1])).astype(np.float32)
        if unit:
            x /= np.linalg.norm(x, axis=1, keepdims=True)
        with torch.no_grad():
            mu, logvar = module(torch.from_numpy(x))
        found_mu, found_s = features(graph, x)
        np.testing.assert_allclose(found_mu, mu.numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found_s, np.exp(logvar.numpy()), rtol=1e-5, atol=1e-6)
