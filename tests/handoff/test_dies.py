"""Taps of drawn dies: those of the dies that are simulated, told as statistics."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from handoff_bench import bus, numbers

from cimtool.base.arrays import IntArray
from cimtool.base.errors import CimError
from cimtool.bundle.bundle import read_bundle
from cimtool.bundle.dies import NoiseOptions, conditions_of, dies
from cimtool.bundle.exporters import Request, export_bundle
from cimtool.handoff.layers import HandoffSource, driven_layers
from cimtool.handoff.stimuli import layer_stimuli
from cimtool.handoff.taps import DIES_PART, column_places, taps
from cimtool.hardware.contract import layer_mvm
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.mvm import NoisyMvm

NOISE = NoiseOptions(trials=2, seed=3, time="1h", model="pcm-generic")
LAYER = "text.fc1"


@pytest.fixture(scope="module")
def handoff(small_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dies") / "here"
    export_bundle(read_bundle(small_bundle), "handoff", folder, Request(LAYER, noise=NOISE))
    return folder


def drawn(small_bundle: Path) -> list[tuple[CrossbarMvm, NoisyMvm, IntArray]]:
    """The layer, the same on each die, and its stimuli."""
    bundle = read_bundle(small_bundle)
    text, name = bundle.program.text, LAYER.removeprefix("text.")
    op = text.operations(CrossbarMvm)[name]
    x, _ = layer_stimuli(text, text.by_name[name], op, {})
    found = dies(bundle, conditions_of(bundle, NOISE), NOISE.trials)
    return [(op, die.program.text.operations(NoisyMvm)[name], x) for die in found]


def test_files_are_those_of_the_dies_that_are_simulated(handoff: Path, small_bundle: Path) -> None:
    said = json.loads((handoff / "dies/dies.json").read_text())["layers"]
    assert len(said) == NOISE.trials
    (layer,) = driven_layers(read_bundle(small_bundle), LAYER, None)
    of_dies = []
    for index, (_, op, x) in enumerate(drawn(small_bundle)):
        own = handoff / f"dies/d{index}/{LAYER}"
        np.testing.assert_array_equal(numbers(own / "layer_sum.hex"), op.run(x).ravel())
        cells = np.concatenate([one.digits for one in op.cells.slices], axis=1)
        expected = {"cells": cells.astype(np.int64)}
        seen = taps(op, x)
        for name, values in (("g0.sums", seen.sums), ("g0.codes", seen.codes)):
            expected[name] = values[:, 0].reshape(-1, values.shape[-1])
        for name, lines in expected.items():
            bits = said[f"d{index}/{LAYER}"]["lane_bits"][name.removeprefix("g0.")]
            lanes = bus(own / f"r0.c0/{name}.hex", bits)
            np.testing.assert_array_equal(lanes, layer.of_arrays(lines)[0])
        of_dies.append(cells)
    assert (of_dies[0] != of_dies[1]).any()


@pytest.mark.parametrize("index", range(NOISE.trials))
def test_codes_make_the_layer_sums(small_bundle: Path, index: int) -> None:
    perfect, op, x = drawn(small_bundle)[index]
    crossbar, layer, places = op.crossbar, op.layer, column_places(op.layer)
    seen = taps(op, x)
    sums, codes = seen.sums, seen.codes
    assert sums.shape == taps(perfect, x).sums.shape
    assert (sums != taps(perfect, x).sums << layer.cells.finer).any()

    def of_codes(p: IntArray, r: int, k: int, c: int) -> IntArray:
        at = crossbar.reference_of(k, c)
        one = layer.columns[at]
        assert one.law is not None
        return codes[:, r, c, places[at]] * one.step[r] + one.offset[r]

    total = layer_mvm(x, layer, of_codes)
    np.testing.assert_array_equal(np.clip(total, op.lo, op.hi), op.run(x))


def test_they_are_told_as_statistics_and_not_compared(handoff: Path) -> None:
    described = json.loads((handoff / "handoff.json").read_text())
    assert described["dies"]["bit_exact"] is False
    assert (described["dies"]["trials"], described["dies"]["seed"]) == (2, 3)
    assert "never bit-exact" in (handoff / "README.md").read_text()
    assert "never bit-exact" in (handoff / "dies/dies.json").read_text()
    assert "dies" not in (handoff / "Makefile").read_text()
    assert any(name.startswith("dies/d1/") for name in described["files"])


def test_without_noise_there_are_none(small_bundle: Path, tmp_path: Path) -> None:
    bundle = read_bundle(small_bundle)
    assert not DIES_PART.asked(HandoffSource(bundle, Request()))
    with pytest.raises(
        CimError, match='"onnx", which does not take noise; expected "handoff" with it'
    ):
        export_bundle(bundle, "onnx", tmp_path / "onnx", Request(noise=NOISE))
    plain = Request(LAYER, noise=NoiseOptions(trials=1))
    with pytest.raises(CimError, match=r"has no \[noise\], so noise has nothing to draw"):
        export_bundle(bundle, "handoff", tmp_path / "none", plain)
    assert list(tmp_path.iterdir()) == []
