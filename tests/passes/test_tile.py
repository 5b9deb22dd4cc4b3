"""Tile: layers on crossbars, the same integers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.types import integer
from cimtool.simulation.simulator import Simulator, run_graph

from .conftest import passed


@pytest.mark.thorough("more of the same kind", quick=("isaac", "colonnade"))
@pytest.mark.parametrize("target", ["ideal", "isaac-rram-128", "hermes-pcm-14nm", "colonnade-65nm"])
def test_tiling_changes_no_number(models: SimpleNamespace, target: str) -> None:
    job = models.job(*models.data, target=target, array="8x128" if target != "ideal" else None)
    quantized, tiled = passed(models.small, job, "quantized", "tiled")
    for graph, other in zip(quantized.graphs[:2], tiled.graphs[:2], strict=True):
        rows = {"x": job.rows(graph.name)[:7]}
        expected, found = run_graph(graph, rows), run_graph(other, rows)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value)
    a, b = (Simulator(p).scores(job.text, job.video) for p in (quantized, tiled))
    np.testing.assert_array_equal(a, b)


def test_a_layer_is_laid_out_as_the_settings_say(models: SimpleNamespace) -> None:
    layers = {"text.mu": {"weight_bits": 6, "adc_bits": 5}}
    job = models.job(*models.data, target="isaac-rram-128", layers=layers)
    _, tiled = passed(models.small, job, "quantized", "tiled")
    ops = {n.name: n.op for n in tiled.text.nodes if isinstance(n.op, CrossbarMvm)}
    assert ops.keys() == {"fc1", "fc2", "mu", "logvar"}
    assert (ops["mu"].crossbar.weights.bits, ops["mu"].crossbar.converter.bits) == (6, 5)
    assert (ops["fc1"].crossbar.weights.bits, ops["fc1"].crossbar.converter.bits) == (8, 8)
    assert ops["mu"].references == (None,) * 3
    assert ops["fc1"].crossbar.inputs.name == "twos-complement"
    assert ops["fc2"].crossbar.inputs.name == "unsigned"  # after a ReLU
    assert ops["fc2"].crossbar.inputs.bits == 8


@pytest.mark.parametrize(
    ("lo", "hi", "encoding", "bits"),
    [
        (0, 255, "unsigned", 8),
        (-127, 127, "bipolar", 8),
        (-128, 3, "bipolar", 9),  # 128 is a magnitude of 8 bits
        (-1, 0, "bipolar", 2),
    ],
)
def test_a_sign_and_magnitude_hold_every_input(
    models: SimpleNamespace, lo: int, hi: int, encoding: str, bits: int
) -> None:
    settings = models.job(*models.data, target="hermes-pcm-14nm").settings
    crossbar = settings.crossbar(settings.input_code(integer(("n", 3), lo, hi, 1.0)))
    assert (crossbar.inputs.name, crossbar.inputs.bits) == (encoding, bits)
    weight, steps = np.eye(3, dtype=np.int64), crossbar.no_references
    op = CrossbarMvm(StoredWeights(weight, crossbar), np.zeros(3, np.int64), np.ones(3), steps)
    x = np.array([[lo, hi, 0]])
    np.testing.assert_array_equal(op.run(x), x)
