"""Temperature by activation energies: Arrhenius' law in plain arithmetic, corners, mistakes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpmath import exp, mpf

from cimtool.base.errors import CimError
from cimtool.base.toml_files import validated
from cimtool.hardware.noise.model import activated, heat_of
from cimtool.hardware.noise.spec import Noise

SAID = {"source": "a test", "status": "assumed"}
NU = 0.05


def noise(temperature: float | None = 25.0, energy: float | None = 1.1, **corner: Any) -> Noise:
    """Drift alike for all cells, with a corner `hot` at 85 C."""
    law = {"mean": {"polynomial": [NU]}, "sigma": {"polynomial": [0.0]}}
    if energy is not None:
        law["activation_energy"] = energy
    model = {"source": "a test", "g_max": 20.0, "t0": 20.0, "temperature": temperature}
    hot = {**SAID, "temperature": 85.0, **corner}
    given = {name: value for name, value in model.items() if value is not None}
    return validated(Noise, {**given, "drift": law, "corners": {"hot": hot}}, "my.toml: noise")


def by_hand(energy: str, hot: str, cold: str) -> mpf:
    """exp(Ea / k (1 / T0 - 1 / T)), with k in eV/K and degrees in C."""
    inverse = [1 / (mpf(degrees) + mpf("273.15")) for degrees in (cold, hot)]
    return exp(mpf(energy) / mpf("8.617333262e-5") * (inverse[0] - inverse[1]))


@pytest.mark.parametrize(
    ("energy", "hot", "cold"), [("1.1", "85", "25"), ("0.2", "-40", "25"), ("0.7", "125", "55")]
)
def test_the_factor_is_that_of_arrhenius(energy: str, hot: str, cold: str) -> None:
    found = activated(float(energy), heat_of(float(hot), float(cold)))
    assert found == pytest.approx(float(by_hand(energy, hot, cold)), rel=1e-12)


def test_a_textbook_factor() -> None:
    """1.1 eV from 55 C to 125 C is some 934 times, the bake of many retention tests."""
    assert activated(1.1, heat_of(125, 55)) == pytest.approx(934, rel=1e-3)
    assert activated(None, heat_of(125, 55)) == activated(1.1, heat_of(55, 55)) == 1


def held(kit: SimpleNamespace, model: Noise, seconds: float) -> float:
    """The conductance of all cells after so many seconds, as a share of the programmed."""
    op = kit.layer(kit.crossbar(encoding="offset"), 32, 8)
    cells = kit.on_die(op, model, seconds=seconds).cells
    digits = sum(int(s.digits.sum()) for s in op.stored.slices)
    found = sum(int(s.digits.sum()) for s in cells.slices) / (1 << cells.fraction_bits)
    return found / digits


def test_time_counts_more_often_where_it_is_hot(kit: SimpleNamespace) -> None:
    model = noise()
    for name, factor in (("nominal", 1.0), ("hot", float(by_hand("1.1", "85", "25")))):
        expected = ((20 + 3600 * factor) / 20) ** -NU
        assert held(kit, model.at_corner(name), 3600) == pytest.approx(expected, rel=2e-3)


def test_currents_follow_an_activation_energy(kit: SimpleNamespace) -> None:
    scale = {"factor": 0.8, "activation_energy": 0.02}
    model = noise(energy=None, scale=scale).at_corner("hot")
    expected = 0.8 * float(by_hand("0.02", "85", "25"))
    assert held(kit, model, 0) == pytest.approx(expected, rel=2e-3)


def test_a_mechanism_without_an_energy_is_the_same_at_every_temperature(
    kit: SimpleNamespace,
) -> None:
    model = noise(temperature=None, energy=None)
    assert held(kit, model, 3600) == held(kit, model.at_corner("hot"), 3600)


def test_a_corner_may_change_the_energy_and_its_changes_are_read_back() -> None:
    model = noise(drift={"activation_energy": 0.5})
    values = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    again = validated(Noise, values, "x")
    assert again == model
    assert again.at_corner("hot").heat == model.at_corner("hot").heat > 0 == model.heat
    assert again.at_corner("hot").mechanisms[0].energy == 0.5


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"temperature": None}, "temperature is missing: drift.activation_energy counts from it"),
        ({"temperature": -300.0}, "temperature = -300.0: must be a number from -273 to 1000"),
        (
            {"energy": -1.0},
            "activation_energy = -1.0: must be a number above 0, up to 10 (eV)",
        ),
    ],
)
def test_a_mistake_is_one_sentence(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(CimError) as caught:
        noise(**keys)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_dies_are_the_same_without_a_corner(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(encoding="offset"), 16, 4)
    plain, warm = (
        kit.on_die(op, model, seconds=60).cells for model in (noise(energy=None), noise())
    )
    for one, other in zip(plain.slices, warm.slices, strict=True):
        np.testing.assert_array_equal(one.digits, other.digits)
