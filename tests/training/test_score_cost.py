"""The cost of a pair by each score: matrix products, and multiplications beside them."""

from __future__ import annotations

from cimtool.training.score_cost import distance_cost, polynomial_cost


def test_vd_costs_five_of_six_products() -> None:
    assert [polynomial_cost(2, alone).products for alone in (True, False)] == [1, 6]
    assert distance_cost().products == 1


def test_multiplications_grow_with_the_degree() -> None:
    for alone in (True, False):
        counts = [polynomial_cost(degree, alone).multiplications for degree in (1, 2, 4)]
        assert counts == sorted(set(counts))
    both, one = polynomial_cost(3, False), polynomial_cost(3, True)
    assert both.multiplications > one.multiplications
    assert both.total(1024) - both.multiplications == 6 * 1024
