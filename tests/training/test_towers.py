from __future__ import annotations

import torch

from cimtool.training.models.trunk import TrunkModel
from cimtool.training.towers import ENCODED_ROWS


def test_rows_are_encoded_in_blocks() -> None:
    towers = TrunkModel(hidden=8, width=4).build(6, 5)
    text, video = torch.randn(ENCODED_ROWS + 3, 6), torch.randn(2, 5)
    found, _ = towers.encode(text, video)
    assert not towers.training
    torch.testing.assert_close(found.mu, towers.text_tower(text).mu)
    assert found.gaussian[1].shape == (ENCODED_ROWS + 3, 4)
