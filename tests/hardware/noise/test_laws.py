"""Changes that must never make results worse: more bits, less noise, less time, less leak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from crossbars import changed, with_crossbar

from cimtool.hardware.crossbar import leak_of
from cimtool.hardware.mvm import CrossbarMvm
from cimtool.passes.converters import fit_references

DIES = 12


def fitted(op: CrossbarMvm, x: np.ndarray) -> CrossbarMvm:
    return replace(op, references=fit_references(op, x))


def errors(kit: SimpleNamespace, op: CrossbarMvm, x: np.ndarray, **options: Any) -> np.ndarray:
    """Mean square error [DIES] at the output, against the exact product."""
    exact = x @ op.weight + op.bias
    noise, seconds = options["noise"], options.get("seconds")
    arrays = replace(kit.whole, on_off_ratio=options.get("ratio"))
    found = []
    for index in range(DIES):
        die = kit.on_die(op, noise, index=index, seconds=seconds, arrays=arrays)
        found.append(np.mean((die.run(x) - exact) ** 2.0))
    return np.array(found)


def never_worse(series: Sequence[np.ndarray]) -> None:
    """Each mean is at most the one before, beyond the interval of their difference."""
    for worse, better in pairwise(series):
        gain = worse - better
        assert gain.mean() > -2 * gain.std() / np.sqrt(DIES)
    assert series[-1].mean() < series[0].mean()


@pytest.fixture
def layer(kit: SimpleNamespace) -> CrossbarMvm:
    return kit.layer(kit.crossbar(encoding="differential", cell_bits=5, dac_bits=5), 64, 8)


def test_more_converter_bits(kit: SimpleNamespace, layer: CrossbarMvm) -> None:
    x, noise = kit.inputs(layer, 40), kit.noise(programming={"sigma": [0.2]})
    found = []
    for bits in (3, 4, 6, 8, 12):
        op = with_crossbar(layer, changed(layer.crossbar, adc_bits=bits))
        found.append(errors(kit, fitted(op, x), x, noise=noise))
    never_worse(found)


@pytest.mark.parametrize("kind", ["programming", "read", "stuck"])
def test_less_noise(kit: SimpleNamespace, layer: CrossbarMvm, kind: str) -> None:
    tables = {
        "programming": lambda level: {"sigma": [2.0 * level]},
        "read": lambda level: {"sigma": 0.3 * level},
        "stuck": lambda level: {"p_on": 0.1 * level, "p_off": 0.1 * level},
    }
    op = with_crossbar(replace(layer, references=(None,)), changed(layer.crossbar, adc_bits=None))
    x = kit.inputs(op, 40)
    found = [
        errors(kit, op, x, noise=kit.noise(**{kind: tables[kind](level)}))
        for level in (1.0, 0.5, 0.2, 0.05, 0.0)
    ]
    never_worse(found)
    assert found[-1].max() == 0  # without noise it is the exact product


def test_time_towards_t0(kit: SimpleNamespace, layer: CrossbarMvm) -> None:
    noise = kit.noise(
        t0=20.0, drift={"mean": {"polynomial": [0.06]}, "sigma": {"polynomial": [0.02]}}
    )
    op = with_crossbar(replace(layer, references=(None,)), changed(layer.crossbar, adc_bits=None))
    x = kit.inputs(op, 40)
    found = [
        errors(kit, op, x, noise=noise, seconds=s) for s in (3e7, 86400.0, 3600.0, 60.0, 1.0, 0.0)
    ]
    never_worse(found)
    assert found[-1].max() == 0


def test_the_on_off_ratio_towards_infinity(kit: SimpleNamespace) -> None:
    noise = kit.noise(programming={"sigma": [0.3]})
    found = []
    for ratio in (2.0, 5.0, 20.0, 1000.0, None):
        hardware = kit.crossbar(encoding="offset", adc_bits=None, leak=leak_of(ratio, 2))
        op = kit.layer(hardware, 64, 8)
        found.append(errors(kit, op, kit.inputs(op, 40), noise=noise, ratio=ratio))
    never_worse(found)


def test_all_limits_together_are_the_lossless_result(
    kit: SimpleNamespace, layer: CrossbarMvm
) -> None:
    op = with_crossbar(replace(layer, references=(None,)), changed(layer.crossbar, adc_bits=14))
    x = kit.inputs(op, 40)
    quiet = kit.noise(
        t0=20.0,
        programming={"sigma": [0.0]},
        drift={"mean": {"polynomial": [0.06]}, "sigma": {"polynomial": [0.02]}},
        read={"sigma": 0.0},
        stuck={},
        adc={},
    )
    assert errors(kit, op, x, noise=quiet, seconds=0.0).max() == 0
