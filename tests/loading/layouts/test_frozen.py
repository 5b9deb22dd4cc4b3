"""Layout `frozen`: rows as they are, with one log-variance a row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import cimtool
from cimtool.base.errors import CimError
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.model import read_towers


def saved(folder: Path, weight: torch.Tensor, **more: object) -> Path:
    tower = {"logvar.weight": weight, "logvar.bias": torch.full((len(weight),), -3.0)}
    file = folder / "model.pth"
    values = {"head": "csd", "a": 2.0, "b": 1.0, **more}
    torch.save({"text_proj": tower, "video_proj": tower, **values}, file)
    return file


def test_the_row_is_mu_and_its_variance_is_the_same_in_all_dimensions(tmp_path: Path) -> None:
    torch.manual_seed(0)
    weight = torch.randn(1, 5)
    layout, (tower, _) = read_towers(read_checkpoint(saved(tmp_path, weight)))
    assert layout.name == "frozen"
    rows = np.random.default_rng(0).normal(size=(7, 5))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    found = tower.run({"x": rows})
    np.testing.assert_allclose(found["mu"], rows)
    variance = np.exp(rows @ weight.double().numpy().T - 3.0)
    np.testing.assert_allclose(found["s"], np.repeat(variance, 5, axis=1))


def test_more_than_one_log_variance_a_row_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path, torch.randn(5, 5))
    with pytest.raises(CimError, match=r"model.pth: .*logvar.weight has shape .*5, 5.*expected"):
        cimtool.ModelSource(file).load()
