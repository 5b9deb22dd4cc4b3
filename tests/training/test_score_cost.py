"""Costs of a score: products and multiplications of a pair, and energy in the memory."""

from __future__ import annotations

import numpy as np
import pytest

from cimtool.hardware.target import load_target
from cimtool.training.degrees import GALLERY, costs_in_memory, distance_cost, polynomial_cost
from cimtool.training.items import Items, gaussian_items


def test_vd_costs_five_of_six_products() -> None:
    assert [polynomial_cost(2, alone).products for alone in (True, False)] == [1, 6]
    assert distance_cost().products == 1


def test_multiplications_grow_with_the_degree() -> None:
    for alone in (True, False):
        counts = [polynomial_cost(degree, alone).multiplications for degree in (1, 2, 4)]
        assert counts == sorted(set(counts))
    both, one = polynomial_cost(3, False), polynomial_cost(3, True)
    assert both.multiplications > one.multiplications
    assert (both.products, both.features) == (6, 2)
    assert both.total(1024) - both.multiplications == 8 * 1024


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
    assert not alone.of_an_item.lower_bound
    one, several = alone.of_an_item.value, both.of_an_item.value
    assert one is not None
    assert several is not None
    assert 3 * one < several


def test_arrays_of_a_target_without_a_technology_have_no_price(items: Items) -> None:
    alone, _ = costs_in_memory(items, load_target("ideal"))
    assert alone.of_an_item.missing == ("MACs in arrays", "leakage")
