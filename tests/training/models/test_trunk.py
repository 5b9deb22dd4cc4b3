from __future__ import annotations

import numpy as np
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.training.linear_start import LinearFit, linear_starts
from cimtool.training.models.trunk import TrunkModel, TrunkProjector
from cimtool.training.pairs import Pairs
from cimtool.training.towers import TwoTower


def test_trunk_has_the_layers_and_the_start_of_the_layout() -> None:
    towers = TwoTower(TrunkProjector(6, 8, 4), TrunkProjector(6, 8, 4))
    shapes = {key: tuple(tensor.shape) for key, tensor in towers.state_dict().items()}
    assert all(key.startswith(("text_proj.", "video_proj.")) for key in shapes)
    weights = [shape for key, shape in shapes.items() if key.endswith("weight")]
    one = [(8, 6), (8,), (8, 8), (8,), (4, 8), (4, 8)]
    assert weights == one * 2
    assert (towers.text_proj.state_dict()["logvar.bias"] == -3.0).all()
    mu, logvar = towers.eval().text_proj(torch.randn(3, 6))
    assert mu.shape == logvar.shape == (3, 4)


def test_the_model_builds_what_its_options_say_and_reads_them_back() -> None:
    towers = TrunkModel(hidden=8, width=4, logvar_start=-1.0).build(6, 5)
    text, video = towers(torch.randn(3, 6), torch.randn(2, 5))
    assert text.mu.shape == text.gaussian[1].shape == (3, 4)
    assert video.mu.shape == (2, 4)
    state = {key: value.numpy() for key, value in towers.text_proj.state_dict().items()}
    assert (state["logvar.bias"] == -1.0).all()
    assert TrunkModel.options_of(state, state) == {"hidden": 8, "width": 4}
    assert TrunkModel.options_of({}, {}) == {}


def test_no_hidden_units() -> None:
    with pytest.raises(CimError, match=r"model.hidden is 0; expected more than 0"):
        TrunkModel(hidden=0)


def test_dropout_is_of_training_alone_and_has_no_weights() -> None:
    torch.manual_seed(0)
    plain = TrunkProjector(5, 16, 4)
    dropping = TrunkProjector(5, 16, 4, dropout=0.5)
    dropping.load_state_dict(plain.state_dict())
    rows = torch.randn(8, 5)
    assert not torch.equal(dropping(rows)[0], plain(rows)[0])
    dropping.load_state_dict(plain.eval().state_dict())
    assert torch.equal(dropping.eval()(rows)[0], plain(rows)[0])


@pytest.mark.parametrize("activation", ["relu", "leaky-relu", "none"])
@pytest.mark.parametrize(("hidden", "width"), [(64, 4), (9, 4), (6, 16), (64, 32)])
def test_a_linear_start_is_the_map(activation: str, hidden: int, width: int) -> None:
    """Also with an odd unit, with fewer units than dimensions, and with narrow rows."""
    torch.manual_seed(0)
    text, video = torch.randn(40, 6) + 2, torch.randn(40, 5) - 1
    video[:, :3] += text[:, :3]
    options = {"hidden": hidden, "width": width, "activation": activation, "dropout": 0.5}
    model = TrunkModel(linear=True, logvar_start=-1.0, **options)
    start = next(linear_starts(text.numpy(), video.numpy(), model.start_dimensions))
    fit = LinearFit(start, np.ones(1), 1.0, 0.0)
    towers = model.build(6, 5)
    # The rows that train may have another mean than their pairs, which count a video by its texts.
    model.begin(towers, fit, Pairs(text + 0.5, video[:30] - 1, torch.arange(40) % 30))
    assert towers.text_proj.training
    k = min(width, hidden // 2, 5)
    unseen = torch.randn(7, 6), torch.randn(8, 5)
    maps = (start.text, unseen[0]), (start.video, unseen[1])
    for found, (own, rows) in zip(towers.encode(*unseen), maps, strict=True):
        mu, logvar = found.gaussian
        np.testing.assert_allclose(mu[:, :k], own.of(rows.numpy()), atol=1e-5)
        assert (mu[:, k:] == 0).all()
        assert (logvar == -1).all()


def test_no_weight_of_a_linear_start_stands_out() -> None:
    """Rounding a layer of ones and zeros to 8 bits would lose what training adds to it."""
    torch.manual_seed(0)
    rows = torch.randn(100, 16)
    model = TrunkModel(hidden=128, width=16, linear=True)
    towers = model.build(16, 16)
    start = next(linear_starts(rows.numpy(), rows.numpy(), model.start_dimensions))
    fit = LinearFit(start, np.ones(16), 1.0, 0.0)
    model.begin(towers, fit, Pairs(rows, rows, torch.arange(100)))
    for key in ("trunk.0.weight", "trunk.3.weight", "mu.weight"):
        weight = towers.state_dict()[f"text_proj.{key}"]
        assert weight.abs().max() < 8 * weight.square().mean().sqrt()


def test_a_linear_start_needs_an_activation_that_loses_nothing() -> None:
    with pytest.raises(CimError, match=r"model.linear is true, and model.activation is tanh; exp"):
        TrunkModel(activation="tanh", linear=True)
    with pytest.raises(CimError, match=r"model.linear is true, and model.hidden is 1; expected 2"):
        TrunkModel(hidden=1, linear=True)
    assert TrunkModel(width=8, hidden=64).start_dimensions == 0
