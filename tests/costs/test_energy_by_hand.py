"""The whole energy of a text, every part of it worked out beside it: weights stay, or are loaded.

Two layers of 24-32-16, all weights 1, with a rounding between them. An array takes 32 rows of 8
weights of 8 bits. All prices are the target's own, and plain numbers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from quantities import known

from cimtool.costs.estimate import Estimate, ScoredQuery, estimate
from cimtool.hardware.configuration import Configuration
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.settings import resolve
from cimtool.hardware.stored import StoredWeights
from cimtool.hardware.target import load_target
from cimtool.ir.arithmetic import Add
from cimtool.ir.integer import Requant
from cimtool.ir.program import MODALITIES, Builder, Program, score_inputs
from cimtool.ir.types import integer
from tests.kits.hand_chip import hand_chip

PRICES = {
    "multiplications": 0.003, "additions": 0.01, "shifts": 0.002, "limits": 0.005, "sram": 0.2,
    "wires": 0.3, "host": 4.0, "dram": 9.0,
}  # fmt: skip
"""pJ a bit, of a product a bit of either factor by one of the other."""

AREA, MAC, WRITE = 2.0, 0.1, 0.5
LEAKAGE = (8.63 * 12.6 * 0.354 * 0.648) ** 0.25
"""mW/mm2 of adder, multiplier, comparator and counter at 40 nm."""

CONTROL = (0.11 / 0.89 * 0.25 / 0.75) ** 0.5
"""Clock and control as a share of the arithmetic: 11% and 25% of both."""

MACS = 24 * 32 + 32 * 16


def estimated(folder: Path, arrays: int, rewritable: str) -> Estimate:
    """The estimate of both layers on a chip of so many arrays."""
    file = folder / "hand.toml"
    figures = (
        ("clock", 100, "MHz", "array"), ("mac_energy", MAC, "pJ", "array"),
        ("write_energy", WRITE, "pJ", "array"), ("write_latency", 5, "ns", "array"),
        ("area", AREA, "mm2", "chip"),
    )  # fmt: skip
    digital = {"clock": 100, "lanes": 8, "bandwidth": 1}
    file.write_text(hand_chip(arrays, rewritable, 40, digital, PRICES, figures))
    target = load_target(file)
    settings = resolve(target, None, {})
    graphs = []
    for name in MODALITIES:
        builder = Builder(name, {"x": integer(("n", 24), 0, 255, 1.0)})
        value = "x"
        for layer, rows, columns in (("a", 24, 32), ("b", 32, 16)):
            crossbar = settings.crossbar(settings.input_code(builder.types[value]))
            stored = StoredWeights(np.ones((rows, columns), np.int64), crossbar)
            bias, scale = np.ones(columns, np.int64), np.ones(columns)
            mvm = CrossbarMvm(stored, bias, scale, crossbar.no_references)
            value = builder.add(layer, mvm, value)
            if layer == "a":
                rounding = Requant(np.int64(3), np.int64(6), 0, 255, np.float64(1))
                value = builder.add("rounded", rounding, value)
        graphs.append(builder.graph({"b": "b"}))
    one = np.int64(1)
    score = Builder("score", score_inputs(*graphs))
    score.add("logit", Add((one, one), np.int64(0), np.float64(1)), "text.b", "text.b")
    program = Program(*graphs, score.graph({"logit": "logit"}))
    return estimate(program, Configuration(target, settings), ScoredQuery(16))


def around_arrays(time: float) -> dict[str, float]:
    """The energy in pJ of all but memory and writing of a text that takes `time` in ns."""
    # Sums of 24 and 32 inputs up to 255, and 1: 6,121 and 8,161 have 13 bits. Times 3: 15.
    arithmetic = (
        PRICES["additions"] * (32 * 13 + 32 * 15 + 16 * 13)  # bias, rounding, bias
        + PRICES["multiplications"] * 32 * 13 * 2
        + PRICES["shifts"] * 32 * 15
        + PRICES["limits"] * 32 * 8 * 2  # either limit
    )
    return {
        "arrays": MAC * MACS,
        "digital": arithmetic,
        "clock and control": CONTROL * arithmetic,
        "buffers": PRICES["sram"] * 2 * (32 * 13 + 32 * 8 + 16 * 13),  # written and read
        "wires": PRICES["wires"] * (24 * 8 + 32 * 13 + 32 * 8 + 16 * 13),  # in, out, in, out
        "links": PRICES["host"] * 24 * 8,
        "leakage": LEAKAGE * AREA * time,  # mW times ns are pJ
    }


def check_energy(found: Estimate, time: float, wanted: dict[str, float]) -> None:
    """The text takes this time and, part by part and in all, this energy."""
    assert known(found.text.latency_ns) == pytest.approx(time)
    parts = {name: one.energy.value for name, one in found.text.parts.items() if one.energy.value}
    assert parts == pytest.approx(wanted)
    assert known(found.text.energy_pj) == pytest.approx(sum(wanted.values()))
    assert found.text.energy_pj.missing == ()


PRODUCT, BIAS_A, ROUNDING, BIAS_B = 4 * 10, 32 / 8 * 10, 4 * 32 / 8 * 10, 16 / 8 * 10
"""Times in ns: four cycles of 2 bits of an input; 8 operations in each 10 ns."""


def test_the_whole_energy_of_a_text_whose_weights_stay(tmp_path: Path) -> None:
    found = estimated(tmp_path, 12, "field")
    assert (found.floorplan.chips, found.floorplan.loads) == (1, 0)
    time = PRODUCT + BIAS_A + ROUNDING + PRODUCT + BIAS_B
    check_energy(found, time, around_arrays(time))


def test_the_whole_energy_of_a_text_whose_weights_are_loaded_into_one_array(tmp_path: Path) -> None:
    found = estimated(tmp_path, 1, "per-inference")
    assert found.floorplan.kept == ()
    # A byte a ns: four tiles of 24 x 8 weights, then two of 32 x 8, each longer than its writing.
    # The first of the latter is read while the sums of the former are rounded.
    reads = [24 * 8] * 4 + [32 * 8] * 2
    assert min(reads) > 32 * 5
    assert reads[4] > BIAS_A + ROUNDING
    time = sum(reads) + 6 * PRODUCT + BIAS_B
    loaded = {"memory": PRICES["dram"] * 8 * MACS, "writing": WRITE * 8 * MACS}
    check_energy(found, time, around_arrays(time) | loaded)
