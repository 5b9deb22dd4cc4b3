from __future__ import annotations

import pytest
import torch
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cimtool.training.models.trunk import TrunkModel
from cimtool.training.towers import (
    ENCODED_ROWS,
    all_cosines,
    all_pairs_ed,
    all_pairs_vd,
    cosine_gap,
)


def test_rows_are_encoded_in_blocks() -> None:
    towers = TrunkModel(hidden=8, width=4).build(6, 5)
    text, video = torch.randn(ENCODED_ROWS + 3, 6), torch.randn(2, 5)
    found, _ = towers.encode(text, video)
    assert not towers.training
    torch.testing.assert_close(found.mu, towers.text_tower(text).mu)
    assert found.gaussian[1].shape == (ENCODED_ROWS + 3, 4)


def gaussians(seed: int, rows: int, width: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mu = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    return mu, torch.randn(rows, width, generator=generator, dtype=torch.float64).exp()


@settings(max_examples=examples(20))
@given(st.integers(0, 1000), st.integers(1, 5), st.integers(1, 5), st.integers(1, 9))
def test_all_pairs_statistics_equal_the_broadcast_ones(
    seed: int, n: int, m: int, width: int
) -> None:
    mu_t, s_t = gaussians(seed, n, width)
    mu_v, s_v = gaussians(seed + 1, m, width)
    delta2 = (mu_t[:, None] - mu_v[None]).square()
    s = s_t[:, None] + s_v[None]
    ed, vd = (delta2 + s).sum(2), (2 * s.square() + 4 * delta2 * s).sum(2)
    torch.testing.assert_close(all_pairs_ed(mu_t, s_t, mu_v, s_v), ed)
    torch.testing.assert_close(all_pairs_vd(mu_t, s_t, mu_v, s_v), vd)


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
