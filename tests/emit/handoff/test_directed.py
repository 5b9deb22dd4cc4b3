"""Directed inputs of requantisers: a multiplier that lacks bits shows in nearly every channel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from handoff_bench import numbers

from cimtool.bundle.bundle import read_bundle
from cimtool.emit.handoff.directed import DROPPED, write_directed
from cimtool.emit.handoff.layers import driven_layers


def test_a_multiplier_without_its_lowest_bits_is_found(small_bundle: Path, tmp_path: Path) -> None:
    """In 95% of the channels in which any input of its range is requantised otherwise."""
    able = found = 0
    layers = driven_layers(read_bundle(small_bundle), "*", None)
    write_directed(layers, tmp_path)
    for layer in layers:
        after = layer.requantisation
        assert after is not None
        known = layer.graph.types[layer.graph.by_name[after.name].inputs[0]]
        width = len(after.shift)
        x = numbers(tmp_path / layer.name / "inputs.hex").reshape(width, 4).T
        shown = numbers(tmp_path / layer.name / "outputs.hex").reshape(width, 4).T
        assert ((x >= known.lo) & (x <= known.hi)).all()
        np.testing.assert_array_equal(after.rounded(x), shown)
        short = after.with_multiplier(after.multiplier >> DROPPED << DROPPED)
        seen = (short.rounded(x) != shown).any(axis=0)
        lo, hi = (np.broadcast_to(end, width) for end in (known.lo, known.hi))
        for j in range(width):
            every = np.arange(lo[j], hi[j] + 1)
            y, z = (
                np.clip((every * m + (1 << after.shift[j] - 1)) >> after.shift[j], a, b)
                for m, a, b in (
                    (one.multiplier[j], after.lo[j], after.hi[j]) for one in (after, short)
                )
            )
            if (y != z).any():
                able += 1
                found += bool(seen[j])
    assert able > 20
    assert found >= 0.95 * able, (found, able)
