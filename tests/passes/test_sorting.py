"""Rows in order by a network of comparisons."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from cimtool.ir.source import Sorted
from cimtool.passes.sorting import merge_exchange
from cimtool.simulation.simulator import Simulator

from .conftest import curved, passed


@pytest.mark.parametrize("count", range(1, 12))
def test_the_network_sorts_all_zeros_and_ones_and_so_all_numbers(count: int) -> None:
    """The principle of zeros and ones: Knuth, volume 3, 5.3.4, theorem Z."""
    rows = np.array(list(itertools.product((0, 1), repeat=count)))
    found = rows.copy()
    for pairs in merge_exchange(count):
        assert len(np.unique(pairs)) == pairs.size  # no place twice in a step
        first, second = found[:, pairs[:, 0]], found[:, pairs[:, 1]]
        found[:, pairs[:, 0]] = np.maximum(first, second)
        found[:, pairs[:, 1]] = np.minimum(first, second)
    np.testing.assert_array_equal(found, np.sort(rows, axis=1)[:, ::-1])


def test_comparisons_are_few() -> None:
    steps = list(merge_exchange(50))
    assert (len(steps), sum(map(len, steps))) == (21, 395)


def test_rows_in_order_are_exact_once_they_are_stored(models: SimpleNamespace) -> None:
    notes: list[str] = []
    job = models.job(*models.data, notes=notes)
    *pair, whole = passed(curved(Sorted(), 1.0), job, "calibrated", "lowered", "quantized")
    said = "text.curve: 12 numbers in order by 10 steps, 41 comparisons of each of 1 rows an item"
    assert f"{said} in the digital unit" in notes
    wanted, found = (Simulator(p).values("text", job.text, ["curve"])["curve"] for p in pair)
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    names = "curve.limited", "curve.moved10"
    given, made = Simulator(whole).values("text", job.text, names).values()
    np.testing.assert_array_equal(made, -np.sort(-given, axis=1))
