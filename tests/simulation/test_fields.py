"""Cells in fields of few bits: less memory, and the same bytes when a block is unpacked."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from cimtool.simulation.kernels import amx, dot, tiles
from cimtool.simulation.kernels.fields import unpack
from cimtool.simulation.kernels.fused import exact_layer


@pytest.mark.parametrize("kernel", [dot, amx])
@pytest.mark.parametrize(
    ("lo", "hi", "bits"),
    [(0, 1, 1), (-1, 0, 1), (0, 3, 2), (-2, 1, 2), (-1, 2, 4), (0, 15, 4), (-8, 7, 4), (0, 16, 8)],
)
@pytest.mark.parametrize("shape", [(300, 70), (5, 1)])
def test_cells_of_few_bits_take_few_bits(
    shape: tuple[int, int], lo: int, hi: int, bits: int, kernel: ModuleType
) -> None:
    weight = np.random.default_rng(bits).integers(lo, hi, shape, endpoint=True)
    weight.flat[:2] = lo, hi
    layer = exact_layer(weight, np.zeros(shape[1], np.int64), (0, 255))
    cells, expected = kernel.pack(layer), dot.pack_bytes(layer)
    assert cells.bits == bits
    blocks = -(-shape[1] // tiles.WIDTH)
    assert cells.words.nbytes <= bits / 8 * expected.words.nbytes + blocks * 512 + 2048
    if bits < 8:
        extent = int(cells.starts[-1]) // blocks
        words = np.zeros((blocks, extent * 8 // bits), np.int32)
        for b in range(blocks):
            unpack(cells.words, b * extent, extent, bits, cells.sign, words[b], 0)
        whole = expected.words.reshape(blocks, -1)
        np.testing.assert_array_equal(words[:, : whole.shape[1]], whole)
