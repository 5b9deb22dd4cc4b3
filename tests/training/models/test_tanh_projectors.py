from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cimtool.base.errors import CimError
from cimtool.loading.checkpoint import read_checkpoint
from cimtool.loading.model import read_towers
from cimtool.loading.weights import find_weights
from cimtool.training.models.perceptron import TanhProjectors


def test_both_towers_end_in_one_space_of_points() -> None:
    torch.manual_seed(0)
    towers = TanhProjectors(text_hidden="9-8", video_hidden="none", width=5).build(6, 7)
    text, video = towers(torch.randn(3, 6), torch.randn(4, 7))
    assert (text.logvar, video.logvar) == (None, None)
    assert (text.mu.shape, video.mu.shape) == ((3, 5), (4, 5))
    assert text.mu.abs().max() < 1
    shapes = [tuple(one.shape) for one in towers.text_proj.state_dict().values()]
    assert shapes == [(9, 6), (9,), (8, 9), (8,), (5, 8), (5,)]


def test_what_is_saved_is_read_and_computes_the_same(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = TanhProjectors(text_hidden="9-8", video_hidden="9", width=5)
    towers = model.build(6, 7)
    torch.save({**towers.state_dict(), **model.deployed()}, tmp_path / "m.pth")
    held = read_checkpoint(tmp_path / "m.pth")
    layout, (tower, _) = read_towers(held)
    assert layout.name == model.layout
    rows = torch.randn(3, 6)
    found = tower.run({"x": rows.double().numpy()})["mu"]
    np.testing.assert_allclose(found, towers.text_tower(rows).mu.detach().numpy(), atol=1e-6)
    both = (one.arrays for one in find_weights(held))
    found = TanhProjectors.options_of(*both)
    assert found == {"text_hidden": "9-8", "video_hidden": "9", "width": 5}


def test_options_out_of_range() -> None:
    with pytest.raises(CimError, match=r"model\.width is 0; expected more than 0"):
        TanhProjectors(width=0)
    with pytest.raises(CimError, match=r'model\.video_hidden is "many"; expected widths'):
        TanhProjectors(video_hidden="many")
