from __future__ import annotations

import pytest
import torch

from cimtool.training.cosine import all_cosines, cosine_gap


def test_cosines_of_all_pairs() -> None:
    generator = torch.Generator().manual_seed(0)
    text, video = (torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in (3, 4))
    wanted = [[torch.cosine_similarity(t, v, dim=0) for v in video] for t in text]
    torch.testing.assert_close(all_cosines(7 * text, video), torch.tensor(wanted).double())


def test_the_gap_is_right_pairs_less_wrong_ones() -> None:
    cosines = torch.tensor([[0.9, 0.1, 0.4], [0.2, 0.7, 0.0], [0.6, 0.3, 0.5]])
    assert cosine_gap(cosines).item() == pytest.approx(2.1 / 3 - 1.6 / 6)


def test_a_video_of_two_texts_is_no_wrong_one_of_either() -> None:
    cosines = torch.tensor([[0.9, 0.1, 0.4], [0.2, 0.7, 0.0], [0.6, 0.3, 0.5]])
    found = cosine_gap(cosines, torch.tensor([4, 1, 4]))
    assert found.item() == pytest.approx(2.1 / 3 - (0.1 + 0.2 + 0.0 + 0.3) / 4)
