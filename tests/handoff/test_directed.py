"""Directed vectors: what tells a requantiser that is a little wrong from the right one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from handoff_bench import numbers

from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.exporter import Request
from cimtool.handoff.directed import write_directed
from cimtool.handoff.part import HandoffSource
from cimtool.handoff.requantiser import (
    DIRECTED,
    low_bits_show,
    requantiser_range,
)


@pytest.mark.thorough("more circuits and faults; each simulator has one in the first tier")
def test_lost_bits_show_in_a_bundle(small_bundle: Path, tmp_path: Path) -> None:
    """In 95% of the channels in which any input of its range is requantised otherwise."""
    able = found = 0
    source = HandoffSource(read_bundle(small_bundle), Request())
    write_directed(source, tmp_path)
    for layer in source.layers:
        ((place, after),) = layer.requantisations.items()
        least, most = requantiser_range(layer, after)
        own, shape = tmp_path / place, (DIRECTED, len(least))
        x, shown = (
            numbers(own / f"requantiser_{name}.hex").reshape(shape) for name in ("in", "out")
        )
        assert ((x >= least) & (x <= most)).all()
        np.testing.assert_array_equal(after.rounded(x), shown)
        seen = low_bits_show(after, x, 6)
        possible = np.zeros_like(seen)
        every = range(int(least.min()), int(most.max()) + 1, 1 << 14)
        for first in every:
            given = np.clip(np.arange(first, first + (1 << 14))[:, None], least, most)
            possible |= low_bits_show(after, given, 6)
        able += possible.sum()
        found += (seen & possible).sum()
    assert able > 20
    assert found >= 0.95 * able, (found, able)
