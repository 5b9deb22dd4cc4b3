from __future__ import annotations

import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.training.models.trunk import TrunkModel, TrunkProjector
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
