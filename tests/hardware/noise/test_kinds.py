"""Mechanisms that are no part of cimtool: fresh noise and converters' errors by one class each."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cimtool.base.errors import CimError
from cimtool.hardware.noise.model import (
    CodeErrors,
    ConverterNoise,
    NonIdeality,
    ReadNoise,
    ReadState,
    Sigma,
)
from cimtool.hardware.noise.mvm import NoisyMvm
from cimtool.simulation.die_program import Conditions
from cimtool.simulation.kernels.operations import fast_kernel
from cimtool.training.straight_through import layer_errors

DIES = 600
"""Enough for variances within a fifth."""


@pytest.fixture(autouse=True, scope="module")
def others() -> Iterator[None]:
    """Register the classes of a plug-in for this module alone."""
    before = dict(NonIdeality.family)

    class Thermal(ReadNoise, name="thermal"):
        """Each cell reads g + sigma z in uS, whatever it conducts, anew in every cycle."""

        sigma: Sigma

        @property
        def shared(self) -> bool:
            return False

        def variance(self, g: np.ndarray, state: ReadState) -> np.ndarray:
            return np.full_like(g, (self.sigma / state.unit) ** 2)

    class Droop(ConverterNoise, name="droop"):
        """Every second converter reads some codes too low, each of `serves` columns."""

        codes: Sigma
        serves: int = 1

        @property
        def sharing(self) -> int:
            return self.serves

        def errors(self, count: int, rng: np.random.Generator) -> CodeErrors:
            none = np.zeros(count)
            return CodeErrors(-self.codes * (np.arange(count) % 2), none, none)

    assert {Thermal.name, Droop.name} == {"thermal", "droop"}
    yield
    NonIdeality.family.clear()
    NonIdeality.family.update(before)


def small(kit: SimpleNamespace, noise: dict[str, Any], **hardware: Any) -> NoisyMvm:
    chosen = {"encoding": "differential", "cell_bits": 5, "dac_bits": 5, "rows": None} | hardware
    return kit.on_die(kit.layer(kit.crossbar(**chosen), 9), kit.noise(**noise))


def test_fresh_noise_of_a_plug_in_is_drawn_for_every_conversion(kit: SimpleNamespace) -> None:
    op = kit.layer(
        kit.crossbar(encoding="differential", cell_bits=5, rows=None, adc_bits=None), 30, 4
    )
    x, noise = kit.inputs(op, 1), kit.noise(thermal={"sigma": 0.8})
    dies = [kit.on_die(op, noise, index=index) for index in range(DIES)]
    found = np.stack([die.run(x)[0] for die in dies])
    driven = (op.crossbar.digits(x)[:, 0] * op.crossbar.cycle_factors[:, None]) ** 2
    cell = (0.8 / (20.0 / 31)) ** 2
    np.testing.assert_allclose(found.var(axis=0), 2 * cell * driven.sum(), rtol=0.2)
    np.testing.assert_array_equal(fast_kernel(dies[0], ())(x), found[:1])


def test_training_with_the_hardware_knows_it(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(encoding="differential", cell_bits=5))
    conditions = Conditions(kit.noise(thermal={"sigma": 0.8}), 0.0)
    errors = layer_errors(op, conditions, None).weights
    assert errors is not None
    np.testing.assert_allclose(errors[1].numpy(), np.sqrt(2) * 0.8 / (20.0 / 31), rtol=1e-6)


def test_errors_of_converters_of_a_plug_in_act_in_every_conversion(kit: SimpleNamespace) -> None:
    found = small(kit, {"droop": {"codes": 3.0, "serves": 2}})
    x = np.zeros((1, 9), np.int64)
    low = np.arange(9) // 2 % 2
    # Two cycles, of which that of the sign counts -16: both see nothing but the converter.
    expected = (-3 * low * found.layer.references[0].step[0]) * (1 - 16) + found.perfect.bias
    np.testing.assert_array_equal(found.run(x)[0], expected)
    np.testing.assert_array_equal(fast_kernel(found, ())(x)[0], expected)


def test_errors_of_several_mechanisms_add_up(kit: SimpleNamespace) -> None:
    adc, droop = {"offset": 2.0, "gain": 0.01}, {"codes": 3.0}
    both, one, other = (
        small(kit, noise).errors
        for noise in ({"adc": adc, "droop": droop}, {"adc": adc}, {"droop": droop})
    )
    assert both is not None
    assert one is not None
    assert other is not None
    for total, *parts in zip(both, one, other, strict=True):
        np.testing.assert_array_equal(total, sum(parts))


def test_fresh_noise_of_two_mechanisms_adds_up(kit: SimpleNamespace) -> None:
    read = {"sigma": 0.05, "redraw": "cycle"}
    both, one, other = (
        small(kit, noise).fresh
        for noise in ({"read": read, "thermal": {"sigma": 1.0}}, {"read": read},
                      {"thermal": {"sigma": 1.0}})
    )  # fmt: skip
    assert both is not None
    assert one is not None
    assert other is not None
    total, *parts = (fresh.variance[0] / 2.0**fresh.bits for fresh in (both, one, other))
    np.testing.assert_allclose(total, sum(parts), rtol=0.02)


def test_fresh_noise_of_two_times_is_refused(kit: SimpleNamespace) -> None:
    with pytest.raises(ValueError, match=r"read and thermal are drawn anew at different times"):
        kit.noise(read={"sigma": 0.05}, thermal={"sigma": 1.0})


def test_a_mechanism_without_a_number_has_a_stream_of_its_name(kit: SimpleNamespace) -> None:
    op = small(kit, {"thermal": {"sigma": 1.0}})
    named = small(kit, {"read": {"sigma": 1.0}})
    assert op.fresh is not None
    assert named.fresh is not None
    assert op.fresh.key != named.fresh.key


def test_a_mechanism_of_no_kind_is_refused() -> None:
    with pytest.raises(TypeError, match=r"class Free is of no kind; .* subclass of DeviceNoise or"):

        class Free(NonIdeality, name="free"):
            """Changes nothing."""

    assert "free" not in NonIdeality.family


def test_an_unknown_mechanism_is_refused() -> None:
    with pytest.raises(CimError, match=r'noise "thermall" is not known: .*did you mean "thermal"'):
        NonIdeality.named("thermall", "noise")
