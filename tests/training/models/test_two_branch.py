from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import cimtool
from cimtool.base.errors import CimError
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.embeddings import embeddings_of, with_unit_rows
from cimtool.loading.model import read_towers
from cimtool.training.linear_fit import WEIGHTS, fit_linear
from cimtool.training.linear_start import rows_and_maps
from cimtool.training.models.two_branch import TwoBranchModel, TwoBranchProjector
from cimtool.training.pairs import Pairs, split


def turned_rows(n: int) -> dict[str, np.ndarray]:
    """Texts, and the same in a space that is turned, so that raw rows cannot be compared."""
    rng = np.random.default_rng(0)
    text = rng.normal(size=(n, 12))
    video = text @ np.linalg.qr(rng.normal(size=(12, 12)))[0] + 0.3 * rng.normal(size=(n, 12))
    return {"text": text.astype(np.float32), "video": video.astype(np.float32)}


def training_part(rows: dict[str, np.ndarray]) -> Pairs:
    return split(with_unit_rows(embeddings_of(rows)), 0.1, 0)[0]


def test_two_branch_follows_its_layout() -> None:
    model = TwoBranchProjector(6, 8, dropout=0.5).eval()
    assert list(model.state_dict()) == [
        f"{branch}.{layer}.{kind}"
        for branch in ("mu_proj", "logvar_proj")
        for layer in (0, 3)
        for kind in ("weight", "bias")
    ]
    x = torch.nn.functional.normalize(torch.randn(5, 6), dim=1)
    mu, logvar = model(100 * x)
    torch.testing.assert_close(mu.norm(dim=1), torch.ones(5))
    with torch.no_grad():
        model.logvar_proj[3].bias.copy_(torch.tensor([-99.0, 99.0, 0, 0, 0, 0]))
    _, logvar = model(x)
    assert (logvar[:, 0] == -5).all()
    assert (logvar[:, 1] == 2).all()


def test_two_branch_starts_from_the_variances_that_are_asked_for() -> None:
    x = torch.nn.functional.normalize(torch.randn(5, 64), dim=1)
    for start in (0.0, -4.0):
        _, logvar = TwoBranchProjector(64, 128, logvar_start=start).eval()(x)
        assert abs(logvar.mean() - start) < 0.1


def test_the_model_builds_what_its_options_say_and_reads_them_back() -> None:
    towers = TwoBranchModel(hidden=8).build(6, 6)
    assert towers(torch.randn(3, 6), torch.randn(2, 6))[1].mu.shape == (2, 6)
    state = {key: value.numpy() for key, value in towers.text_proj.state_dict().items()}
    assert TwoBranchModel.options_of(state, state) == {"hidden": 8}
    assert TwoBranchModel.options_of({}, {}) == {}


def test_bad_options_and_widths() -> None:
    with pytest.raises(CimError, match=r"model.dropout is 1; expected 0 or more, and below 1"):
        TwoBranchModel(dropout=1.0)
    with pytest.raises(CimError, match="the two sides have rows of 6 and 5 numbers; model"):
        TwoBranchModel().build(6, 5)


def test_with_few_pairs_linear_maps_are_added_to_the_rows(tmp_path: Path) -> None:
    rows = turned_rows(200)
    run = cimtool.train(rows, tmp_path / "run", model="two-branch", epochs=0)
    assert run.raw is not None
    assert run.raw["r1_text_to_video"] < 0.3
    assert run.history[0].recalls["r1_text_to_video"] > 0.7
    pairs = training_part(rows)
    fit = fit_linear(pairs, 32, beside_rows=True)
    assert fit.beside_rows > 0
    checkpoint = read_checkpoint(run.model)
    assert "a" not in checkpoint.content  # those of the maps are for their own distances
    _, towers = read_towers(checkpoint)
    for tower, own, x in zip(
        towers, (fit.start.text, fit.start.video), (pairs.text, pairs.video), strict=True
    ):
        found = tower.run({"x": x.numpy().astype(np.float64)})["mu"]
        np.testing.assert_allclose(found, rows_and_maps(x.numpy(), own, fit.beside_rows), atol=1e-5)


def test_rows_that_rank_best_alone_stay_as_they_are() -> None:
    text = turned_rows(100)["text"]
    pairs = training_part({"text": text, "video": text})
    assert fit_linear(pairs, 32, beside_rows=True).beside_rows == WEIGHTS[0] == 0


def test_the_options_say_if_it_starts_from_maps() -> None:
    free = TwoBranchModel(hidden=64)
    assert free.for_few_pairs((), 512, 512).hidden == 256
    assert free.for_few_pairs(("hidden",), 512, 512).start_dimensions == 32
    assert not free.for_few_pairs(("linear",), 512, 512).linear
    assert not TwoBranchModel(activation="tanh").for_few_pairs((), 512, 512).linear
    with pytest.raises(CimError, match=r"model.linear is true, and model.activation is tanh"):
        TwoBranchModel(activation="tanh", linear=True)
