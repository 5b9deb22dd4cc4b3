from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.model import read_towers
from cimtool.loading.weights import find_weights
from cimtool.training.models.perceptron import Autoencoder


def test_one_encoder_serves_both_and_is_run_once() -> None:
    torch.manual_seed(0)
    towers = Autoencoder(hidden="9-8", width=5).build(6, 6)
    assert towers.text_proj is towers.video_proj
    rows = torch.randn(3, 6)
    text, video = towers(rows, rows)
    assert text is video
    assert text.mu.shape == (3, 5)
    assert text.logvar is None
    torch.testing.assert_close(text.mu, towers.video_tower(rows).mu)


def test_the_decoder_is_the_encoder_the_other_way_round() -> None:
    towers = Autoencoder(hidden="9-8", width=5).build(6, 6)
    shapes = [tuple(one.shape) for one in towers.decoder.state_dict().values()]
    assert shapes == [(8, 5), (8,), (9, 8), (9,), (6, 9), (6,)]


@pytest.mark.parametrize("activation", ["relu", "tanh", "leaky-relu"])
@pytest.mark.parametrize("hidden", ["9-8", "none"])
def test_what_is_saved_is_read_and_computes_the_same(
    tmp_path: Path, activation: str, hidden: str
) -> None:
    torch.manual_seed(0)
    model = Autoencoder(hidden=hidden, width=5, activation=activation)
    towers = model.build(6, 6)
    saved = {name: getattr(towers, name).state_dict() for name in ("text_proj", "video_proj")}
    torch.save({**saved, **model.deployed()}, tmp_path / "m.pth")
    held = read_checkpoint(tmp_path / "m.pth")
    layout, (tower, _) = read_towers(held)
    assert layout.name == model.layout
    rows = torch.randn(3, 6)
    found = tower.run({"x": rows.double().numpy()})["mu"]
    np.testing.assert_allclose(found, towers.text_tower(rows).mu.detach().numpy(), atol=1e-6)
    text, _ = find_weights(held)
    assert Autoencoder.options_of(text.arrays, text.arrays) == {"hidden": hidden, "width": 5}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, r"model\.width is 0; expected more than 0"),
        ({"hidden": "many"}, r'model\.hidden is "many"; expected widths'),
        ({"activation": "rela"}, r'model\.activation "rela" is not known: .*did you mean "relu"'),
    ],
)
def test_options_out_of_range(options: dict[str, object], message: str) -> None:
    with pytest.raises(CimError, match=message):
        Autoencoder(**options)
