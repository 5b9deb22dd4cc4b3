"""The energy of a score in the memory: one product of six, by a target's figures."""

from __future__ import annotations

import numpy as np
import pytest

from cimtool.hardware.target import load_target
from cimtool.training.items import Items, gaussian_items
from cimtool.training.score_energy import GALLERY, costs_in_memory


@pytest.fixture(scope="module")
def items() -> Items:
    rng = np.random.default_rng(0)
    names = ("text_mu", "text_logvar", "video_mu", "video_logvar")
    return gaussian_items({name: rng.normal(size=(GALLERY + 6, 16)) for name in names})


def test_products_with_vd_take_several_times_the_energy(items: Items) -> None:
    alone, both = costs_in_memory(items, load_target("hermes-pcm-14nm"))
    assert (alone.items, both.items) == (GALLERY, GALLERY)
    assert alone.cost.macs == GALLERY * 16
    assert both.cost.macs > 3 * alone.cost.macs
    assert alone.of_an_item.lower_bound
    one, several = alone.of_an_item.value, both.of_an_item.value
    assert one is not None
    assert several is not None
    assert 3 * one < several


def test_a_target_without_figures_prices_nothing(items: Items) -> None:
    alone, _ = costs_in_memory(items, load_target("ideal"))
    assert alone.of_an_item.value is None
