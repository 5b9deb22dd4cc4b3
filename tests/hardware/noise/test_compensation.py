"""Drift compensation: its factors, what they restore, and what reading them takes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cimtool.hardware.noise.mvm import FACTOR_BITS, NoisyMvm
from cimtool.hardware.noise.spec import Noise
from cimtool.hardware.references import AdcReferences
from cimtool.simulation.compensation import READOUT_ROWS
from cimtool.simulation.die_program import Conditions, LayerOnArrays, _layer
from cimtool.simulation.kernels.operations import fast_kernel

DAY = 86400.0


def drifting(kit: SimpleNamespace, spread: float, **tables: Any) -> Noise:
    drift = {"mean": {"polynomial": [0.06]}, "sigma": {"polynomial": [spread]}}
    return kit.noise(t0=20.0, drift=drift, **tables)


def read_after(
    kit: SimpleNamespace, noise: Noise, compensation: Any, **hardware: Any
) -> tuple[NoisyMvm, Any]:
    chosen = {"encoding": "differential", "cell_bits": 5, "adc_bits": 10, "rows": 32}
    op = kit.layer(kit.crossbar(**{**chosen, **hardware}), 96, 12)
    conditions = Conditions(noise, DAY, compensation)
    place = LayerOnArrays(kit.name, kit.name, kit.whole)
    return _layer(op, kit.input_type(op), place, conditions, 0)


def error(kit: SimpleNamespace, noisy: NoisyMvm) -> float:
    x = kit.inputs(noisy.perfect, 200)
    exact = x @ noisy.perfect.weight + noisy.perfect.bias
    return float(np.sqrt(np.mean((noisy.run(x) - exact) ** 2)))


def test_one_factor_restores_what_all_cells_lost_alike(kit: SimpleNamespace) -> None:
    lost = ((DAY + 20) / 20) ** 0.06
    for compensation in ("global", "column"):
        noisy, _ = read_after(kit, drifting(kit, 0.0), compensation)
        assert noisy.factors is not None
        factors = noisy.factors / (1 << FACTOR_BITS)
        np.testing.assert_allclose(factors, lost, rtol=0.02)


def test_global_is_one_factor_and_column_one_for_each_physical_column(
    kit: SimpleNamespace,
) -> None:
    one, _ = read_after(kit, drifting(kit, 0.02), "global", cell_bits=2)
    each, _ = read_after(kit, drifting(kit, 0.02), "column", cell_bits=2)
    assert one.factors is not None
    assert each.factors is not None
    assert one.factors.shape == each.factors.shape == (3, 3, 12)
    assert len(np.unique(one.factors)) == 1
    assert len(np.unique(each.factors)) > 50


def test_compensation_brings_results_nearer(kit: SimpleNamespace) -> None:
    noise = drifting(kit, 0.01, programming={"sigma": [0.2]}, read={"sigma": 0.01})
    found = {c: error(kit, read_after(kit, noise, c)[0]) for c in ("none", "global", "column")}
    assert found["global"] < 0.5 * found["none"]
    assert found["column"] < 1.1 * found["global"]


def test_offset_weights_are_restored_before_their_offset_is_taken_off(
    kit: SimpleNamespace,
) -> None:
    noise = drifting(kit, 0.0)
    # Without converters, whose rounding takes a percent off the factors.
    hardware = {"encoding": "offset", "cell_bits": 2, "adc_bits": None}
    plain, mended = (read_after(kit, noise, c, **hardware)[0] for c in ("none", "global"))
    assert error(kit, mended) < 0.01 * error(kit, plain)


def test_clipped_sums_do_not_decide(kit: SimpleNamespace) -> None:
    op = kit.layer(kit.crossbar(encoding="differential", cell_bits=5, adc_bits=6, rows=32), 96, 12)
    op = replace(op, references=(AdcReferences.from_zero(4),))  # full drive would clip most sums
    conditions = Conditions(drifting(kit, 0.0), DAY, "global")
    place = LayerOnArrays(kit.name, kit.name, kit.whole)
    noisy, _ = _layer(op, kit.input_type(op), place, conditions, 0)
    assert noisy.factors is not None
    lost = ((DAY + 20) / 20) ** 0.06
    assert abs(noisy.factors.flat[0] / (1 << FACTOR_BITS) / lost - 1) < 0.1


def test_the_readout_is_counted(kit: SimpleNamespace) -> None:
    _, cost = read_after(kit, drifting(kit, 0.01), "column", cell_bits=2)
    assert cost.products == 2 * READOUT_ROWS
    # 3 row groups, 3 slices, 3 cycles (two of two bits, one for the sign), 12 columns
    assert cost.conversions == 2 * READOUT_ROWS * 3 * 3 * 3 * 12
    assert read_after(kit, drifting(kit, 0.01), "none")[1].products == 0


def test_the_readout_is_the_same_every_time_and_noisy(kit: SimpleNamespace) -> None:
    quiet, noisy = (drifting(kit, 0.01, read={"sigma": s}) for s in (0.0, 0.2))
    one, again = (read_after(kit, noisy, "column")[0].factors for _ in range(2))
    without = read_after(kit, quiet, "column")[0].factors
    assert one is not None
    assert again is not None
    np.testing.assert_array_equal(one, again)
    assert (one != without).any()


@pytest.mark.parametrize("compensation", ["global", "column"])
def test_a_compensated_layer_runs_fast_alike(kit: SimpleNamespace, compensation: str) -> None:
    noisy, _ = read_after(kit, drifting(kit, 0.02, read={"sigma": 0.05}), compensation)
    x = kit.inputs(noisy.perfect, 30)
    np.testing.assert_array_equal(fast_kernel(noisy, ())(x), noisy.run(x))
