"""Use and cost of a CAM by a gallery."""

from __future__ import annotations

import pytest

from cimtool.costs.cam_search import CamUse, search_cost
from cimtool.hardware.cam import load_cam


def test_words_and_arrays_of_items() -> None:
    use = CamUse(load_cam("fefet2-tcam-45nm"), items=130, width=100)
    assert (use.words_per_item, use.words, use.cells, use.arrays) == (2, 260, 13_000, 6)
    assert use.energy_pj.value == pytest.approx(1.5 * 13_000 / 4096)
    assert use.latency_ns.value == 0.35


def test_what_is_not_given_is_missing() -> None:
    use = CamUse(load_cam("rram-l1-sapiens"), items=10, width=64)
    assert use.energy_pj.value is None
    cost = search_cost(use)
    assert cost.conversions == 10
    assert cost.energy_pj.missing == ("the search", "converters of words")
    assert cost.latency_ns.value == 5
    assert cost.latency_ns.lower_bound
