"""Projectors whose values have very many numbers an item: refused before they are computed."""

from __future__ import annotations

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.base.untrusted import memory_limited
from cimtool.ir.arithmetic import Arrange
from cimtool.ir.heads import TowerBuilder
from cimtool.ir.program import Graph
from cimtool.passes.room import require_room
from cimtool.simulation.simulator import ROW_BLOCK, block_height, run_graph, run_rows


def spread(side: int) -> Graph:
    """Four numbers spread to side x side an item, of which the first four are taken."""
    builder = TowerBuilder(4)
    places = np.arange(side**2).reshape(side, side) % 4
    many = builder.add("many", Arrange(1, places), "x")
    return builder.tower(builder.add("few", Arrange(side, np.arange(4)[None, :]), many))


def test_large_values_count_on_all_rows_and_the_limit_may_be_said() -> None:
    graph = spread(600)
    require_room(graph, np.zeros((279, 4)), "cal.npz")
    sentence = (
        r"^cal\.npz: tower\.many \(arrange\): 360,000 numbers an item, and on 280 rows such "
        r"values take 806,400,000 bytes of memory; expected at most 805,306,368: 279 rows, or a "
        r"larger max_memory$"
    )
    with pytest.raises(CimError, match=sentence):
        require_room(graph, np.zeros((280, 4)), "cal.npz")
    with memory_limited(1 << 30):
        require_room(graph, np.zeros((280, 4)), "cal.npz")
    require_room(spread(256), np.zeros((1 << 20, 4)), "cal.npz")  # no more than LARGE


def test_rows_of_large_items_are_computed_in_smaller_blocks() -> None:
    assert block_height(spread(100), ROW_BLOCK) == ROW_BLOCK
    graph = spread(1000)
    assert block_height(graph, ROW_BLOCK) == 33
    rows = np.random.default_rng(0).normal(size=(40, 4))
    np.testing.assert_array_equal(run_rows(graph, rows)["mu"], run_graph(graph, {"x": rows})["mu"])
