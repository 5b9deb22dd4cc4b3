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


def posterior(folder: Path, **changed: torch.Tensor) -> Path:
    """A checkpoint of the second form, of which some tensors are changed or more."""
    torch.manual_seed(0)
    tower = {"factor.weight": torch.randn(4, 5), "spread.weight": torch.rand(5) + 0.1}
    tower |= {name.replace("_", "."): value for name, value in changed.items()}
    file = folder / "model.pth"
    torch.save({"text_proj": tower, "video_proj": tower, "head": "csd", "a": 2.0, "b": 1.0}, file)
    return file


def test_the_variance_of_a_posterior_is_a_sum_of_squares_times_a_spread(tmp_path: Path) -> None:
    file = posterior(tmp_path)
    layout, (tower, _) = read_towers(read_checkpoint(file))
    assert layout.name == "frozen"
    saved = torch.load(file, weights_only=True)["text_proj"]
    factor, spread = (saved[f"{one}.weight"].double().numpy() for one in ("factor", "spread"))
    rows = np.random.default_rng(0).normal(size=(7, 5))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    found = tower.run({"x": rows})
    np.testing.assert_allclose(found["mu"], rows)
    for row, variance in zip(rows, found["s"], strict=True):
        np.testing.assert_allclose(variance, row @ factor.T @ factor @ row * spread)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"spread_weight": torch.ones(4)}, r"spread.weight has shape \[4\]; expected \[5\]"),
        (
            {"spread_weight": torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0])},
            "spread.weight holds 0; expected variances above 0",
        ),
        ({"factor_bias": torch.ones(4)}, "factor.bias is not part of layout"),
    ],
)
def test_a_posterior_that_does_not_fit_is_refused(
    changed: dict[str, torch.Tensor], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(CimError, match=expected):
        cimtool.ModelSource(posterior(tmp_path, **changed)).load()


@pytest.mark.parametrize("head", ["cosine", "euclidean"])
def test_a_bundle_without_layers_is_read(head: str, tmp_path: Path) -> None:
    """A head of points leaves out the only layers, by which layouts are told apart."""
    rows = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    bundle = cimtool.compile(
        posterior(tmp_path), calibration={"text": rows[9:], "video": rows[9:]}, target="ideal",
        drift="given", output=tmp_path / "bundle", head=head,
    )  # fmt: skip
    report = cimtool.verify(bundle.folder, {"text": rows[:9], "video": rows[:9]})
    assert sum(one.differing for one in report.checks.bits) == 0
