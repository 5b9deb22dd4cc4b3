"""Small layers and noise models that the tests of noise share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from crossbars import at_steps, crossbar_of

from cimtool.hardware.crossbar import Crossbar
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.die import Arrays, Die
from cimtool.hardware.noise.mvm import NoisyMvm
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.stored import StoredWeights
from cimtool.ir.types import Type, integer
from cimtool.simulation.die_program import Conditions, LayerOnArrays, noisy_layer

WHOLE = Arrays(None, "columns", None)
LAYER = "text.fc1"


def noise_of(g_max: float = 20.0, **tables: Any) -> Noise:
    return Noise.model_validate({"source": "a test", "g_max": g_max, **tables})


def crossbar(**changes: Any) -> Crossbar:
    values: dict[str, Any] = {
        "rows": 16, "cell_bits": 2, "dac_bits": 2, "encoding": "offset-flip", "weight_bits": 6,
        "input_encoding": "twos-complement", "input_bits": 5, "adc_bits": 6,
        "rounding": "half-up", "accumulator_bits": 40,
    }  # fmt: skip
    return crossbar_of(**{**values, **changes})


def layer(hardware: Crossbar, rows: int = 40, width: int = 9, seed: int = 0) -> CrossbarMvm:
    rng = np.random.default_rng(seed)
    top = (1 << hardware.weights.bits - 1) - 1
    weight = rng.integers(-top, top + 1, (rows, width))
    base = hardware.fraction_bits + 1
    step = None if hardware.converter.bits is None else base
    references = at_steps(hardware, (step,) * hardware.slices, step)
    bias = rng.integers(-99, 100, width)
    return CrossbarMvm(StoredWeights(weight, hardware), bias, np.ones(width), references)


def inputs(op: CrossbarMvm, count: int, seed: int = 1) -> np.ndarray:
    top = (1 << op.crossbar.inputs.bits - 1) - 1
    return np.random.default_rng(seed).integers(-top, top + 1, (count, len(op.weight)))


def input_type(op: CrossbarMvm) -> Type:
    top = (1 << op.crossbar.inputs.bits - 1) - 1
    return integer(("n", len(op.weight)), -top, top, 1.0)


def on_die(
    op: CrossbarMvm,
    noise: Noise,
    *,
    seed: int = 0,
    index: int = 0,
    seconds: float | None = None,
    arrays: Arrays = WHOLE,
    name: str = LAYER,
) -> NoisyMvm:
    when = noise.seconds(None) if seconds is None else seconds
    conditions = Conditions(noise, when, "none", seed)
    place = LayerOnArrays(name, name, arrays)
    return noisy_layer(op, input_type(op), place, conditions, Die(seed, index, when))


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    """The functions above, for test modules, which cannot import from here."""
    return SimpleNamespace(
        noise=noise_of, crossbar=crossbar, layer=layer, inputs=inputs, on_die=on_die,
        input_type=input_type, whole=WHOLE, name=LAYER,
    )  # fmt: skip
