"""Layers in C: every form of the integer contract, by three compilers, and nothing undefined."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from c_layers import compared
from crossbars import PLAIN, changed
from random_layers import ANALOG, ENCODINGS, input_limits, integers, random_crossbar, random_layer

from cimtool.base.arrays import IntArray
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights

LAYERS, ROWS = 100, 256
COMPILERS = {
    "gcc": ("-O2", "-fsanitize=undefined", "-fno-sanitize-recover=all"),
    "clang": ("-O2", "-fsanitize=undefined", "-fsanitize-trap=undefined"),
    "tcc": (),
}


@cache
def random_layers(encoding: str) -> list[tuple[CrossbarMvm, IntArray, IntArray]]:
    """Layers of one weight code with everything else, and inputs at the ends and between.

    Each compiler takes the same.
    """
    rng = np.random.default_rng(ENCODINGS.index(encoding))
    found = []
    for _ in range(LAYERS):
        layer = random_layer(rng, random_crossbar(rng, (encoding,)))
        limits = input_limits(layer.crossbar)
        blocks = (integers(rng, *limits, (ROWS // 16, len(layer.weight))) for _ in range(16))
        x = np.concatenate(list(blocks))
        found.append((layer, x, layer.run(x)))
    return found


@pytest.mark.thorough("other codes and compilers", quick=("differential-tcc",))
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_no_value_differs(encoding: str, compiler: str, tmp_path: Path) -> None:
    layers = random_layers(encoding)
    count, differing = compared(layers, tmp_path, compiler, *COMPILERS[compiler])
    assert count >= 50_000
    assert differing == 0
    converting = sum(not layer.exact for layer, _, _ in layers)
    assert converting > LAYERS // 2 or encoding not in ANALOG


def test_one_wrong_weight_differs(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    crossbar = changed(PLAIN, rows=8)
    weight = rng.integers(-127, 128, (20, 150))  # blocks of 64, 64 and 22 columns
    right, wrong = (
        CrossbarMvm(
            StoredWeights(w, crossbar),
            np.zeros(150, np.int64),
            np.ones(150),
            crossbar.no_references,
        )
        for w in (weight, np.where(weight == weight[3, 2], 0, weight))
    )
    x = rng.integers(-128, 128, (50, 20))
    assert compared([(right, x, right.run(x))], tmp_path, "gcc") == (7500, 0)
    count, differing = compared([(wrong, x, right.run(x))], tmp_path, "gcc")
    assert count == 7500
    assert differing > 40
