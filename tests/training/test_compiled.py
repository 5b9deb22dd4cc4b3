from __future__ import annotations

import numpy as np
import pytest
import torch
from crossbars import at_steps, crossbar_of

from cimtool.base.toml_files import validated
from cimtool.hardware.crossbar import AdcOn
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.hardware.noise.die import Arrays, Die, draw
from cimtool.hardware.noise.spec import Noise, load_noise
from cimtool.hardware.stored import StoredWeights
from cimtool.simulation.die_program import Conditions
from cimtool.training.straight_through import layer_errors

DIES = 400


def layer(
    encoding: str,
    adc_on: AdcOn = "difference",
    adc_bits: int | None = 8,
    step: int | None = None,
) -> CrossbarMvm:
    crossbar = crossbar_of(
        rows=8, cell_bits=2, dac_bits=1, encoding=encoding, weight_bits=4,
        input_encoding="unsigned", input_bits=4, adc_bits=adc_bits, rounding="half-up",
        accumulator_bits=32, adc_on=adc_on,
    )  # fmt: skip
    weight = np.random.default_rng(0).integers(-7, 8, size=(16, 3))
    stored = StoredWeights(weight, crossbar)
    references = at_steps(crossbar, (step,) * len(stored.slices))
    return CrossbarMvm(stored, np.zeros(3, np.int64), np.ones(3), references)


def without_read_noise() -> Noise:
    return validated(Noise, {"preset": "neurram", "read": None}, "a test")


@pytest.mark.thorough("one code stands for the others", quick=("centred",))
@pytest.mark.parametrize(
    ("encoding", "adc_on"),
    [
        ("offset-flip", "difference"),
        ("centred", "difference"),
        ("differential", "difference"),
        ("differential", "polarity"),
    ],
)
def test_the_moments_are_those_of_dies(encoding: str, adc_on: AdcOn) -> None:
    op, noise = layer(encoding, adc_on), without_read_noise()
    found = layer_errors(op, Conditions(noise, noise.seconds(None)), None).weights
    assert found is not None
    off = np.zeros((DIES, *op.weight.shape))
    perfect = op.stored.slices
    for index in range(DIES):
        die = Die(1, index, noise.seconds(None))
        cells = draw(op.stored, Arrays(None, "columns", None), noise, die, "a").cells
        for ideal, real in zip(perfect, cells.slices, strict=True):
            beyond = real.digits / 2**cells.fraction_bits - ideal.digits
            signs = np.repeat(np.where(ideal.flipped, -1, 1), 8, axis=0)
            off[index] += signs * ideal.sign * beyond * (1 << ideal.shift)
    mean, deviation = (part.numpy().T for part in found)
    assert np.abs(off.mean(axis=0) - mean).max() < 5 * off.std() / np.sqrt(DIES)
    assert np.allclose(off.std(axis=0), deviation, rtol=0.2)


def test_read_noise_adds_to_the_variance() -> None:
    op, noise = layer("offset-flip"), load_noise("neurram")
    strong = validated(Noise, {"preset": "neurram", "read": {"sigma": 0.5}}, "a test")
    found = [layer_errors(op, Conditions(n, 1.0), None).weights for n in (noise, strong)]
    assert found[0] is not None
    assert found[1] is not None
    assert (found[1][1] > found[0][1]).all()
    assert torch.equal(found[1][0], found[0][0])


def test_converters_that_round_err_in_the_sums() -> None:
    # 2 row groups; 4 one-bit cycles weigh 1 + 4 + 16 + 64, slices of step 2^2 weigh 16 (1 + 16).
    variance = 2 * 85 * 16 * 17 / 12
    assert layer_errors(layer("offset-flip", step=2), None, None).sums == pytest.approx(
        variance**0.5
    )
    assert layer_errors(layer("offset-flip"), None, None).sums == 0


def test_a_lossless_converter_rounds_noise_at_step_one() -> None:
    noise = load_noise("neurram")
    found = layer_errors(layer("offset-flip"), Conditions(noise, 1.0), None)
    assert found.sums == pytest.approx((2 * 85 * 17 / 12) ** 0.5)
    without = layer("offset-flip", adc_bits=None)
    assert layer_errors(without, Conditions(noise, 1.0), None).sums == 0
