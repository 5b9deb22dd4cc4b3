from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.model import read_towers
from cimtool.loading.source import ModelSource
from cimtool.loading.weights import find_weights
from cimtool.training.models.perceptron import VariationalAutoencoder


@pytest.mark.parametrize("hidden", ["9-8", "9", "none"])
def test_what_is_saved_is_read_and_computes_the_same(tmp_path: Path, hidden: str) -> None:
    torch.manual_seed(0)
    model = VariationalAutoencoder(hidden=hidden, width=5, activation="tanh")
    towers = model.build(6, 6)
    saved = {name: getattr(towers, name).state_dict() for name in ("text_proj", "video_proj")}
    torch.save({**saved, "head": model.head, **model.deployed()}, tmp_path / "m.pth")
    held = read_checkpoint(tmp_path / "m.pth")
    layout, (tower, _) = read_towers(held)
    assert layout.name == model.layout
    rows = torch.randn(3, 6)
    found = tower.run({"x": rows.double().numpy()})
    mu, logvar = (one.detach().numpy() for one in towers.text_tower(rows).gaussian)
    np.testing.assert_allclose(found["mu"], mu, atol=1e-6)
    np.testing.assert_allclose(found["s"], np.exp(logvar), rtol=1e-5)
    text, _ = find_weights(held)
    options = VariationalAutoencoder.options_of(text.arrays, text.arrays)
    assert options == {"hidden": hidden, "width": 5}
    assert VariationalAutoencoder.options_of({}, {}) == {}
    loaded = ModelSource(tmp_path / "m.pth", a=0.5, b=1.0).load()
    assert loaded.head.name == "csd"
    with pytest.raises(CimError, match=r'm\.pth: does not give a and b, which head "csd" needs'):
        ModelSource(tmp_path / "m.pth").load()


def test_variances_begin_small_and_the_decoder_takes_points() -> None:
    torch.manual_seed(0)
    towers = VariationalAutoencoder(hidden="9", width=5).build(6, 6)
    code, _ = towers(torch.randn(4, 6), torch.randn(4, 6))
    assert code.gaussian[1].mean().item() == pytest.approx(-3.0, abs=0.5)
    assert towers.decoder(code.mu).shape == (4, 6)


def test_options_out_of_range() -> None:
    with pytest.raises(CimError, match=r"model\.width is 0; expected more than 0"):
        VariationalAutoencoder(width=0)
